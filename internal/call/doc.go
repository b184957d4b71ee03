// Package call is the room of one call of a job: its HTTP request, the place of its key in the URL, its credentials, and
// expressions of operators over JSON.
//
// It knows jobs, and makes no call itself: package publisher does.
package call
