// Package jobs enqueues the jobs of Tidegate, looks them up and acts on them. A
// handler returns nil, [Reschedule], [RateLimited], [Fail], [Discard] or any other error.
//
//	client, err := jobs.NewClient(rdb)
//	job, err := client.Enqueue(ctx, jobs.New("deviantart", payload, jobs.Key(userID)))
//
// A nil context panics, as in the standard library.
package jobs
