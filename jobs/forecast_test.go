package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
		o, err := breaker.DefaultNamespace.ReadOne(ctx, b.rdb, breaker.Query{Slots: true, Limits: true}, b.dest)
		return err == nil && len(o.Slots) == 1 && len(o.Limits.Declared) == len(rates)
	})
	return br
}

// Jobs that were enqueued at once start one after the other, in line behind the others.
func TestETAsOfMany(t *testing.T) {
	t.Parallel()
	b, ctx := newBench(t), context.Background()
	b.served("60/1h")
	for round, n := range []int{20, 120} { // by a new snapshot, and by one that has none of them
		var specs []*jobs.Spec
		for i := range n {
			specs = append(specs, jobs.New(b.dest, i, jobs.ID(fmt.Sprint(b.dest, n, "-", i))))
		}
		specs[5].Delay, specs[6].After = 3*time.Hour, []string{specs[0].ID}
		results, err := b.EnqueueMany(ctx, specs)
		b.must(err)
		list := make([]*jobs.Job, n)
		for i, r := range results {
			list[i] = r.Job
		}
		list[7].Duplicate, list[8] = true, nil
		etas, err := b.ETAs(ctx, list)
		b.must(err)
		if e := etas[5]; e.Because != "its own time" || etas[6].At != nil || etas[7] != nil || etas[8] != nil || n > 100 && etas[100] != nil {
			t.Errorf("of %d: later %+v, a child %+v, a duplicate %v, none %v", n, e, etas[6], etas[7], etas[8])
		}
		for i, want := range map[int]time.Duration{0: 0, 4: 4 * time.Minute, 19: 17 * time.Minute} { // two of them are not counted
			want += time.Duration(round) * 18 * time.Minute
			if off := etas[i].At.Sub(list[i].CreatedAt) - want; off.Abs() > 3*time.Minute {
				t.Errorf("of %d: job %d starts %v off", n, i, off)
			}
		}
	}
}

// counter counts commands.
type counter struct{ n atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.count(cmd); return next(ctx, cmd) }
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.count(cmds...); return next(ctx, cmds) }
}

// count counts commands but those of a new connection.
func (c *counter) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if name := cmd.Name(); name != "client" && name != "hello" {
			c.n.Add(1)
		}
	}
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
		own := redis.NewClient(rdb.(*redis.Client).Options()) //nolint:forcetypeassert // both are
		defer own.Close()
		client, err := jobs.NewClient(own, jobs.WithDestinations(b.dest)) // which has no forecast yet
		b.must(err)
		if _, err := client.Forecast(ctx, b.dest, ""); err != nil { // Redis knows the scripts
			t.Fatal(err)
		}
		client, err = jobs.NewClient(own, jobs.WithDestinations(b.dest))
		b.must(err)
		sent := &counter{}
		own.AddHook(sent)
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

// What a job's ETA stands on, by how it waits, and why there is none.
func TestETA(t *testing.T) {
	t.Parallel()
	b, ctx := newBench(t), context.Background()
	b.served("60/1h")
	first := b.enqueue(jobs.ID("first-" + b.dest))
	for range 28 {
		b.enqueue()
	}
	last := b.enqueue(jobs.ID("last-" + b.dest))
	urgent := b.enqueue(jobs.Prioritize(jobs.PriorityHigh))
	child, later := b.enqueue(jobs.After(last.ID)), b.enqueue(jobs.Delay(5*time.Hour))
	paused := b.enqueue(jobs.ID("paused-" + b.dest))
	b.must(b.Pause(ctx, paused.ID, jobs.By("ann")))
	orphan := b.enqueue(jobs.After(paused.ID))
	now, err := b.Now(ctx)
	b.must(err)
	zero, far := 0, 29
	for name, c := range map[string]struct {
		id      string
		place   jobs.Place
		after   time.Duration
		because string
	}{
		"the next one":          {first.ID, jobs.Place{Ahead: &zero}, time.Minute, "60 calls an hour"},
		"the last one":          {last.ID, jobs.Place{Ahead: &far}, 30 * time.Minute, "60 calls an hour"},
		"an urgent one":         {urgent.ID, jobs.Place{Ahead: &zero}, 0, "60 calls an hour"},
		"a child":               {child.ID, jobs.Place{}, 30 * time.Minute, "60 calls an hour"},
		"one with a time":       {later.ID, jobs.Place{}, 5 * time.Hour, "its own time"},
		"a paused one":          {paused.ID, jobs.Place{}, -1, "it is paused by ann"},
		"a child of the paused": {orphan.ID, jobs.Place{}, -1, "it waits for " + paused.ID + ", which has no time: it is paused by ann"},
	} {
		e, err := b.ETA(ctx, b.get(c.id), c.place)
		switch {
		case err != nil || e == nil || e.Because != c.because:
			t.Errorf("%s: %+v, %v, want because %q", name, e, err, c.because)
		case c.after < 0 && e.At != nil || c.after >= 0 && (e.At == nil || (e.At.Sub(now)-c.after).Abs() > 90*time.Second):
			t.Errorf("%s: at %v, want after %v", name, e.At, c.after)
		case e.At != nil && (e.From.After(*e.At) || e.To.Before(*e.At)):
			t.Errorf("%s: %v is not between %v and %v", name, e.At, e.From, e.To)
		}
	}
	// The ways to a parent do not multiply.
	generation := []string{last.ID}
	for range 4 {
		var next []string
		for range 6 {
			next = append(next, b.enqueue(jobs.After(generation...)).ID)
		}
		generation = next
	}
	sent := &counter{}
	b.rdb.(*redis.Client).AddHook(sent) //nolint:forcetypeassert // it is
	if e, err := b.ETA(ctx, b.enqueue(jobs.After(generation...)), jobs.Place{}); err != nil || e.At != nil || e.Because != "it waits for more parents than are looked at" || sent.n.Load() > 2000 {
		t.Errorf("many parents: %+v, %v, after %d commands", e, err, sent.n.Load())
	}
	ended := b.get(first.ID)
	ended.Status = jobs.Completed
	if e, err := b.ETA(ctx, ended, jobs.Place{}); e != nil || err != nil {
		t.Errorf("ended: %+v, %v", e, err)
	}
}

// A job that would expire before it can start is refused if it asks for it, and nothing is enqueued.
func TestIfLate(t *testing.T) {
	t.Parallel()
	b, ctx := newBench(t), context.Background()
	b.served("60/1h")
	var specs []*jobs.Spec
	for range 60 {
		specs = append(specs, jobs.New(b.dest, 1))
	}
	if _, err := b.EnqueueMany(ctx, specs); err != nil {
		t.Fatal(err)
	}
	spec := func(opts ...jobs.Option) *jobs.Spec {
		return jobs.New(b.dest, 1, append(opts, jobs.IfLate(jobs.LateReject))...)
	}
	results, err := b.EnqueueMany(ctx, []*jobs.Spec{
		spec(jobs.TTL(10 * time.Minute)), spec(jobs.TTL(3 * time.Hour)), spec(),
		spec(jobs.TTL(time.Hour), jobs.Prioritize(jobs.PriorityHigh)), jobs.New(b.dest, 1, jobs.TTL(10*time.Minute)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		late, is := errors.AsType[*jobs.LateError](r.Err)
		if is != (i == 0) || is != jobs.Refused(r.Err) || is != (r.Job == nil) {
			t.Errorf("job %d: %v", i, r.Err)
		}
		if is && (!strings.HasPrefix(late.Error(), "would start at ") || !strings.Contains(late.Error(), "), expires at ")) {
			t.Errorf("the error is %q", late)
		}
	}
	if got := b.stats().Counts[jobs.Pending]; got != 64 {
		t.Errorf("%d jobs are pending, want 64", got)
	}
	// Jobs with a time of their own are not before others.
	batch := []*jobs.Spec{}
	for range 90 {
		batch = append(batch, jobs.New(b.dest, 1, jobs.Delay(48*time.Hour)))
	}
	if results, err := b.EnqueueMany(ctx, append(batch, spec(jobs.TTL(90*time.Minute)))); err != nil || results[90].Err != nil {
		t.Errorf("behind later ones: %v, %v", results[90].Err, err)
	}
	// An enqueue that is repeated gives the job that it made, in whatever queue.
	if _, err := b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.ID("other-"+b.dest), jobs.Prioritize(jobs.PriorityHigh))); err != nil {
		t.Fatal(err)
	}
	if j, err := b.Enqueue(ctx, spec(jobs.ID("other-"+b.dest), jobs.TTL(10*time.Minute))); err != nil || !j.Duplicate {
		t.Errorf("repeated with another priority: %+v, %v", j, err)
	}
	known := b.enqueue(jobs.ID("known-"+b.dest), jobs.TTL(10*time.Minute))
	if j, err := b.Enqueue(ctx, spec(jobs.ID(known.ID), jobs.TTL(10*time.Minute))); err != nil || !j.Duplicate {
		t.Errorf("repeated: %+v, %v", j, err)
	}
	if err := jobs.New(b.dest, 1, jobs.IfLate("never")).Validate(jobs.Limits{}); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("an unknown policy: %v", err)
	}
}

// The window of an API that announces none: what it accepted before it said when to come again.
func TestForecastOfAWindowThatRefused(t *testing.T) {
	t.Parallel()
	b, ctx := newBench(t), context.Background()
	br := b.served("1000000/1s")
	api, err := breaker.New(ctx, b.rdb, breaker.Options{Destination: b.dest, MaxInFlight: 10})
	b.must(err)
	b.must(br.Close())
	b.t.Cleanup(func() { _ = api.Close() })
	for range 20 {
		fetched, err := store.Fetch(ctx, b.rdb, store.FetchArgs{Queue: b.queue(), Lease: time.Minute, Max: 1, Worker: "w", Run: b.enqueue().ID})
		b.must(err)
		_, err = store.Complete(ctx, b.rdb, store.CompleteArgs{Queue: b.queue(), Retention: time.Hour, Worker: "w", Jobs: []store.Completion{{ID: fetched.Jobs[0].ID}}})
		b.must(err)
	}
	permit, err := api.Allow(ctx)
	b.must(err)
	_, err = permit.Report(ctx, breaker.RateLimited(9*time.Minute+50*time.Second))
	b.must(err)
	b.enqueueMany(100)
	f, err := b.Forecast(ctx, b.dest, "")
	b.must(err)
	if want := 10*time.Minute + 4*15*time.Minute; f.EmptyAt.At == nil || (f.EmptyAt.At.Sub(f.At)-want).Abs() > time.Minute {
		t.Errorf("%+v, want 20 jobs after each of 5 quarters of an hour: in %v", f.EmptyAt, want)
	}
}
