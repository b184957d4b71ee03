// Package breakerhttp puts a shared circuit breaker in front of an HTTP client: a
// [Transport] asks it before each request and reports what the answer says.
//
//	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart"})
//	…
//	client := &http.Client{
//		Transport: breakerhttp.New(b, nil, breakerhttp.Wait(5*time.Second)),
//		Timeout:   30 * time.Second,
//	}
//
// A request that the breaker refuses is not sent: its error wraps [ErrNotSent] and, if the
// breaker was asked, the [*breaker.OpenError] with the wait.
//
// # What an answer means
//
//	429 (RateLimitedStatus, RateLimitedIf)   rate limited, with the hint of its headers
//	403 of RateLimitedStatus without a hint  a success
//	5xx, no answer                           a failure
//	the request's context was cancelled      neutral
//	any other status                         a success
//
// Headers about the limit (package hint) are read from every answer: how many calls are left, and, from a
// rate-limited answer, how long to wait.
//
// The report is made when the header of the answer has arrived, before RoundTrip returns. The
// body is passed on as it is, and nothing is read from it. If the report does not reach
// Redis, the answer is returned all the same, at most [breaker.Options.Timeout] later.
//
// A probe must end with its lease (see [breaker.Permit.Until]): the header has to
// arrive by then, or the request is cut and counts as a failure. The body may take
// longer.
//
// # One request, several calls
//
// A client above a Transport that sends again, such as http.Client for redirects, asks the
// breaker for each request. A RoundTripper below it does not: [http.Transport] by itself
// repeats a request without a body, or with an Idempotency-Key, if the connection that it had
// kept turns out to be broken.
package breakerhttp
