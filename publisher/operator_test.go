package publisher_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// While an operator has paused a destination nothing is started but what was in hand,
// through restarts of the workers and of Redis; afterwards everything goes on.
func TestOperatorPausesADestination(t *testing.T) {
	t.Parallel()
	const n, workers, concurrency = 400, 2, 5
	server := redistest.Start(t, redistest.WithAOF())
	b := fixtureOn(t, server)
	other := fixtureOn(t, server)
	ctx := context.Background()
	var mu sync.Mutex
	var started []string
	handler := func(_ context.Context, j *jobs.Job) error {
		mu.Lock()
		started = append(started, j.ID)
		mu.Unlock()
		<-time.After(5 * time.Millisecond)
		return nil
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(started)
	}
	var ids []string
	for _, p := range []jobs.Priority{jobs.PriorityHigh, jobs.PriorityDefault, jobs.PriorityLow, jobs.PriorityDefault} {
		ids = append(ids, b.enqueueMany(n/4, jobs.Prioritize(p))...)
	}
	start := func() (stop func()) {
		var stops []func()
		for range workers {
			stops = append(stops, b.run(b.options(), handler, publisher.Concurrency(concurrency)))
		}
		return func() {
			for _, s := range stops {
				s()
			}
		}
	}
	stop := start()
	redistest.Eventually(t, "jobs flow", func() bool { return count() >= n/8 })
	if changed, err := b.client.PauseDestination(ctx, b.dest); err != nil || !changed {
		t.Fatalf("pause: %v, %v", changed, err)
	}
	// What the workers have taken by now they may start.
	var inHand []string
	for _, q := range store.DefaultNamespace.Queues(b.dest) {
		inHand = append(inHand, b.rdb.LRange(ctx, store.ActiveKey(q), 0, -1).Val()...)
	}
	mu.Lock()
	before := slices.Clone(started)
	mu.Unlock()
	if len(inHand) > workers*concurrency+2*workers {
		t.Errorf("%d jobs in hand of %d slots", len(inHand), workers*concurrency)
	}
	redistest.Eventually(t, "what was in hand has ended", func() bool {
		left := int64(0)
		for _, q := range store.DefaultNamespace.Queues(b.dest) {
			left += b.rdb.LLen(ctx, store.ActiveKey(q)).Val()
		}
		return left == 0
	})
	// Whatever else could start something comes by: polls, beats, new jobs.
	quiet := func(what string) {
		t.Helper()
		ids = append(ids, b.enqueueMany(5)...)
		at := count()
		<-time.After(1200 * time.Millisecond)
		if more := count() - at; more != 0 {
			t.Errorf("%s: %d jobs were started", what, more)
		}
	}
	quiet("paused")
	mu.Lock()
	for _, id := range started {
		if !slices.Contains(before, id) && !slices.Contains(inHand, id) {
			t.Errorf("job %s was started after the pause and had not been in hand", id)
		}
	}
	mu.Unlock()
	if changed, err := b.client.PauseDestination(ctx, b.dest); err != nil || changed {
		t.Errorf("a second pause: %v, %v", changed, err)
	}
	// Another destination has nothing to do with it.
	var others tally
	o := other.options()
	other.run(o, func(_ context.Context, j *jobs.Job) error {
		others.add(j.ID)
		return nil
	})
	other.enqueue()
	other.want(publisher.Completed)

	stop()
	stop = start()
	quiet("after a restart of the workers")
	server.Stop()
	server.Restart()
	redistest.Eventually(t, "Redis is back", func() bool { return b.rdb.Ping(ctx).Err() == nil })
	stats, err := b.client.Stats(ctx, b.dest)
	if err != nil {
		t.Fatal(err)
	}
	if !stats[0].Paused {
		t.Error("stats say that it is not paused")
	}
	quiet("after a restart of Redis")

	if changed, err := b.client.ResumeDestination(ctx, b.dest); err != nil || !changed {
		t.Fatalf("resume: %v, %v", changed, err)
	}
	at := count()
	redistest.Eventually(t, "jobs flow again", func() bool { return count() > at })
	redistest.Eventually(t, "all have been started", func() bool { return count() == len(ids) })
	stop()
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(started)
	if once := slices.Compact(slices.Clone(started)); len(once) != len(ids) || len(started) != len(ids) {
		t.Errorf("%d jobs, %d of them started, %d starts", len(ids), len(once), len(started))
	}
	stats, err = b.client.Stats(ctx, b.dest)
	if err != nil {
		t.Fatal(err)
	}
	if got := stats[0]; got.Paused || got.Backlog != 0 || got.Counts[jobs.Completed] != len(ids) {
		t.Errorf("at the end: %+v", got)
	}
}
