package publisher_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// BenchmarkPublish publishes jobs whose handler does nothing, with and without somebody
// who wants to hear of their ends.
func BenchmarkPublish(b *testing.B) {
	for _, wanted := range []bool{false, true} {
		name := "nobody hears of ends"
		if wanted {
			name = "ends are a stream"
		}
		b.Run(name, func(b *testing.B) {
			rdb := redistest.Start(b).Client(b)
			client, err := jobs.NewClient(rdb, jobs.WithDestinations("bench"))
			if err != nil {
				b.Fatal(err)
			}
			if wanted {
				if _, err := store.WantEvents(b.Context(), rdb, store.DefaultNamespace.Queues("bench")...); err != nil {
					b.Fatal(err)
				}
			}
			specs := make([]*jobs.Spec, b.N)
			for i := range specs {
				specs[i] = jobs.New("bench", i)
			}
			if _, err := client.EnqueueMany(b.Context(), specs); err != nil {
				b.Fatal(err)
			}
			done := make(chan struct{}, b.N)
			p, err := publisher.New(rdb, publisher.Options{
				Logger:    slog.New(slog.DiscardHandler),
				Observers: []publisher.Observer{{OnJob: func(publisher.JobEvent) { done <- struct{}{} }}},
			})
			if err != nil {
				b.Fatal(err)
			}
			if err := p.Handle("bench", publisher.Func(func(context.Context, *jobs.Job) error { return nil }), publisher.Concurrency(64)); err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			b.ResetTimer()
			began := time.Now()
			go func() { ended <- p.Run(ctx) }()
			for range b.N {
				<-done
			}
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "jobs/s")
			b.StopTimer()
			cancel()
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
			if n := rdb.XLen(b.Context(), store.EventsKey(store.DefaultNamespace.Queue("bench", store.Default))).Val(); wanted && n != int64(b.N) {
				b.Fatalf("%d entries of %d ends", n, b.N)
			}
		})
	}
}
