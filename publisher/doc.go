// Package publisher sends jobs to their destinations.
//
// A Publisher runs one asynq Server for all destinations. Each job passes its
// destination's circuit breaker, which every instance shares through Redis;
// while the breaker is open nothing is fetched, and the jobs in flight are
// rescheduled for the end of the cooldown.
//
//	p, err := publisher.New(rdb, publisher.Options{})
//	err = p.Handle("deviantart", publisher.Typed(func(ctx context.Context, job *jobs.Job, p Picture) error {
//		…
//	}))
//	err = p.Run(ctx)
//
// What a handler returns decides what becomes of the job: nil completes it;
// jobs.RateLimited counts against the breaker and reschedules; jobs.Reschedule
// reschedules it; jobs.Discard fails it; jobs.Fail and any other error fail it or
// retry it by its own policy.
package publisher
