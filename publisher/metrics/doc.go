// Package metrics has Prometheus metrics of a publisher and of its queues.
//
//	m, err := metrics.New(prometheus.DefaultRegisterer, metrics.Options{Redis: rdb})
//	options := publisher.Options{…}
//	m.Observe(&options)
//	p, err := publisher.New(rdb, options)
//	err = p.Handle("example", handler)
//	m.Watch(p)
//	err = p.Run(ctx)
//
// Labels are bounded: destinations, statuses and words of Tidegate's own, never a job,
// a key or an address. What a process counts itself is to be added up over processes
// with sum. The state of breakers, and what is read from Redis, is the same in all of
// them: take max by (destination). docs/operations.md lists every metric.
//
// A scrape reads from Redis at most once per [Options.MaxAge], with four commands for
// each destination whatever the number of jobs.
package metrics
