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
package jobs
