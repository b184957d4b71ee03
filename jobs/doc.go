// Package jobs is the vocabulary of Tidegate and its producer: what a job is,
// how it is enqueued and looked up, and what a publisher can say of a call.
//
// An application enqueues with a [Client]:
//
//	client, err := jobs.NewClient(rdb)
//	job, err := client.Enqueue(ctx, jobs.New("deviantart", payload, jobs.Key(userID)))
//
// A publisher written in Go answers with one of the outcomes of this package:
// nil, [Reschedule], [RateLimited], [Fail], [Discard] or any other error.
//
// The circuit breaker learns from each of them whether the API lets calls in. nil,
// Reschedule, Fail and Discard say that the API has answered: an open breaker closes
// after such a probe. RateLimited opens it. A plain error, a panic and the timeout say
// nothing about the limit: the next probe follows later. Two things refine that:
//   - Where the publisher has set Job.Response, its status decides: 5xx counts as a
//     plain error, any other status as an answer.
//   - Fail or Discard of an error that wraps a [net.Error] counts as a plain error.
//
// So return a plain error where the API did not answer.
package jobs
