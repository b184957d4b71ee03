package metrics_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// What a scrape takes that reads from Redis, with a million jobs waiting, scheduled, to
// be retried and completed, and one that may use what was read before.
func BenchmarkScrape(b *testing.B) {
	server := redistest.Start(b)
	rdb := server.Client(b)
	for _, row := range []struct {
		name   string
		jobs   int
		maxAge time.Duration
	}{
		{"10 jobs", 10, -1},
		{"1,000,000 jobs", 1_000_000, -1},
		{"read before", 10, time.Hour},
	} {
		b.Run(row.name, func(b *testing.B) {
			destination := redistest.Name(b, "bench")
			client, err := jobs.NewClient(rdb, jobs.WithDestinations(destination), jobs.WithLogger(silent))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := client.Enqueue(b.Context(), jobs.New(destination, nil)); err != nil { // the oldest one is looked at
				b.Fatal(err)
			}
			fill(b, rdb, destination, row.jobs)
			reg := prometheus.NewRegistry()
			m, err := metrics.New(reg, metrics.Options{Redis: rdb, MaxAge: row.maxAge, Logger: silent})
			if err != nil {
				b.Fatal(err)
			}
			p, err := publisher.New(rdb, publisher.Options{Logger: silent})
			if err != nil {
				b.Fatal(err)
			}
			if err := p.Handle(destination, publisher.Func(func(context.Context, *jobs.Job) error { return nil })); err != nil {
				b.Fatal(err)
			}
			m.Watch(p)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := reg.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What being observed costs a job that completes at its first call.
func BenchmarkObserve(b *testing.B) {
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Options{Logger: silent})
	if err != nil {
		b.Fatal(err)
	}
	var o publisher.Options
	m.Observe(&o)
	job := &jobs.Job{ID: "j", Destination: "d", Key: "k"}
	call := publisher.Call{Destination: "d", Key: "k", Job: "j", Outcome: publisher.OutcomeSuccess, Status: 201, Took: time.Millisecond}
	event := publisher.JobEvent{Destination: "d", Job: job, Result: publisher.Completed, Called: true, Outcome: publisher.OutcomeSuccess, Took: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		o.Observers[0].OnCall(call)
		o.Observers[0].OnJob(event)
	}
}
