// Package httpdest sends jobs to HTTP APIs.
//
// A [Destination] is a handler for package publisher. It makes the request of a job (request.go), with credentials
// (auth.go, token.go), sends it (sending.go), and classifies the response (answer.go): as the API itself decides,
// else by answer [Rules] (rules.go), else by its status and the hints in its headers. What becomes of the job is up to
// package publisher.
//
//	api, err := httpdest.New(httpdest.Options{URL: "https://api.example.com/v1", AuthToken: token})
//	err = p.Handle("deviantart", api)
//
// A nil context panics, as in the standard library.
package httpdest
