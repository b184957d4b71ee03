// Package call is the room of one call of a job: its HTTP request, the place of its key in the URL, its credentials,
// expressions of operators over JSON, and how far the call has come.
//
// It knows jobs, and makes no call itself: package publisher/httpdest does.
package call
