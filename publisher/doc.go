// Package publisher sends jobs to their destinations.
//
// A Publisher runs one asynq Server for all destinations. Each call needs a permit of its
// destination's circuit breaker, which all instances share through Redis. While the breaker
// is open no job is fetched, and jobs in flight are rescheduled for the end of the cooldown.
//
//	p, err := publisher.New(rdb, publisher.Options{})
//	err = p.Handle("deviantart", publisher.Typed(func(ctx context.Context, job *jobs.Job, p Picture) error {
//		…
//	}))
//	err = p.Run(ctx)
//
// The result of a handler decides the outcome of the job: nil completes it; jobs.RateLimited
// counts as a failure for the breaker and reschedules the job; jobs.Reschedule reschedules it;
// jobs.Discard fails it; jobs.Fail and any other error fail or retry it by its own policy.
//
// Package httpdest has a handler that sends jobs to an HTTP API without code.
//
// A nil context panics, as in the standard library.
package publisher
