package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// served registers a worker of the destination that makes ten calls at once, by the rate.
func (b *bench) served(rate string) *breaker.Breaker {
	b.t.Helper()
	ctx := context.Background()
	rates, err := breaker.ParseRates(rate)
	b.must(err)
	now, err := b.Now(ctx)
	b.must(err)
	entry, err := json.Marshal(store.Worker{SeenAt: now.UnixMilli(), Destinations: []string{b.dest}})
	b.must(err)
	b.must(b.rdb.HSet(ctx, store.DefaultNamespace.WorkersKey(), "w-"+b.dest, entry).Err())
	br, err := breaker.New(ctx, b.rdb, breaker.Options{Destination: b.dest, Rate: rates, MaxInFlight: 10})
	b.must(err)
	b.t.Cleanup(func() { _ = br.Close() })
	redistest.Eventually(b.t, "the instance is registered", func() bool {
		o, err := breaker.DefaultNamespace.Outlook(ctx, b.rdb, b.dest)
		return err == nil && len(o.Slots) == 1 && len(o.Limits.Declared) == len(rates)
	})
	return br
}

// counter counts commands.
type counter struct{ n atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.n.Add(1); return next(ctx, cmd) }
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.n.Add(int64(len(cmds))); return next(ctx, cmds) }
}

// A forecast of jobs of each priority, of later ones, and of those that expire, by ten commands.
func TestForecast(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b, ctx := benchOn(t, rdb), context.Background()
		if f, err := b.Forecast(ctx, b.dest, ""); err != nil || f.EmptyAt.Because != "no job waits" {
			t.Errorf("without jobs: %+v, %v", f, err)
		}
		b.served("60/1h")
		for i := range 60 {
			opts := []jobs.Option{jobs.Prioritize(jobs.PriorityHigh)}
			switch {
			case i >= 50:
				opts = []jobs.Option{jobs.Prioritize(jobs.PriorityLow), jobs.ID(fmt.Sprint(b.dest, i)), jobs.TTL(10 * time.Minute)}
			case i >= 40:
				opts = []jobs.Option{jobs.Delay(3 * time.Hour)}
			}
			b.enqueue(opts...)
		}
		client, err := jobs.NewClient(rdb, jobs.WithDestinations(b.dest)) // which has no forecast yet
		b.must(err)
		if _, err := client.Forecast(ctx, b.dest, ""); err != nil { // Redis knows the scripts
			t.Fatal(err)
		}
		client, err = jobs.NewClient(rdb, jobs.WithDestinations(b.dest))
		b.must(err)
		sent := &counter{}
		rdb.AddHook(sent)
		f, err := client.Forecast(ctx, b.dest, "")
		if err != nil {
			t.Fatal(err)
		}
		first := sent.n.Load()
		if _, err := client.Forecast(ctx, b.dest, ""); err != nil {
			t.Fatal(err)
		}
		// Both also read whether the destination is known.
		if more := sent.n.Load() - first; first-more > 10 || more > 1 {
			t.Errorf("a forecast takes %d commands and the next one %d", first-more, more)
		}
		empty := 3*time.Hour + 9*time.Minute
		if f.Backlog != 60 || f.Binding != "60 calls an hour" || f.EmptyAt.At == nil || (f.EmptyAt.At.Sub(f.At)-empty).Abs() > 2*time.Minute {
			t.Errorf("%+v, want 60 jobs that have started in %v", f, empty)
		}
		if f.Expire < 7 || f.Expire > 10 || len(f.First) == 0 || f.First[0].ID[:len(b.dest)] != b.dest {
			t.Errorf("%d expire, first %+v; want most of the 10 of low priority", f.Expire, f.First)
		}
		if _, err := b.PauseDestination(ctx, b.dest, jobs.By("ann")); err != nil {
			t.Fatal(err)
		}
		client, err = jobs.NewClient(rdb)
		b.must(err)
		if f, err := client.Forecast(ctx, b.dest, "alice"); err != nil || f.EmptyAt.At != nil || f.EmptyAt.Because != b.dest+" is paused by ann" || f.Key == nil {
			t.Errorf("paused: %+v, %v", f, err)
		}
	})
}
