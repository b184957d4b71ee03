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
// Labels are bounded: destinations, statuses and other constants, never a job, a key or an
// address. Aggregate the counters of processes with sum. The state of breakers and the metrics
// of queues are the same in all processes: use max by (destination). docs/operations.md lists
// every metric.
//
// A scrape reads from Redis at most once per [Options.MaxAge], with seven commands for
// each destination whatever the number of jobs.
package metrics
