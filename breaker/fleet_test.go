package breaker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// deaf is a client whose subscriptions hear nothing.
type deaf struct{ redis.UniversalClient }

func (d deaf) Subscribe(ctx context.Context, _ ...string) *redis.PubSub {
	return d.UniversalClient.Subscribe(ctx, "nothing-is-said-here")
}

// recorder keeps events.
type recorder struct {
	mu     sync.Mutex
	events []Event
}

func (r *recorder) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) all() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// await waits for n events, then returns all.
func (r *recorder) await(t *testing.T, n int) []Event {
	t.Helper()
	redistest.Eventually(t, fmt.Sprintf("%d events", n), func() bool { return len(r.all()) >= n })
	return r.all()
}

func report(t *testing.T, b *Breaker, o Outcome) Status {
	t.Helper()
	permit, err := b.Allow(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	s, err := permit.Report(patient(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpeningReachesOtherInstances(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	d := redistest.Name(t, "reach")
	o := Options{Destination: d, FailureThreshold: 2, RefreshInterval: time.Hour} // only messages can bring it
	a, b := start(t, s.Client(t), o), start(t, s.Client(t), o)
	awaitSubscribers(t, s.Client(t), d, 2)

	report(t, a, RateLimited(0))
	awaitView(t, b, "one failure", func(v View) bool { return v.Failures == 1 })
	// The other instance's success resets what this one counted.
	report(t, b, Success())
	awaitView(t, a, "no failure", func(v View) bool { return v.Failures == 0 })

	report(t, a, RateLimited(0))
	awaitView(t, b, "one failure", func(v View) bool { return v.Failures == 1 })
	if status := report(t, a, RateLimited(0)); status.State != Open {
		t.Fatalf("after two failures: %+v", status)
	}
	awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
	va, vb := a.View(), b.View()
	if va.Version != vb.Version || va.Incident != vb.Incident || va.OpenUntilRedis != vb.OpenUntilRedis {
		t.Errorf("the instances disagree: %+v, %+v", va, vb)
	}
	if diff := vb.OpenUntil.Sub(va.OpenUntil).Abs(); diff > time.Second {
		t.Errorf("the instances' ends differ by %v", diff)
	}
	if _, err := DefaultNamespace.Reset(t.Context(), s.Client(t), d, "ann"); err != nil {
		t.Fatal(err)
	}
	for _, instance := range []*Breaker{a, b} {
		awaitView(t, instance, "CLOSED", func(v View) bool { return v.State == Closed })
	}
}

func TestProbeIsKnownToOtherInstances(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	d := redistest.Name(t, "lease")
	o := Options{Destination: d, FailureThreshold: 1, Cooldown: time.Millisecond, RefreshInterval: time.Hour}
	a, b := start(t, s.Client(t), o), start(t, s.Client(t), o)
	awaitSubscribers(t, s.Client(t), d, 2)
	report(t, a, RateLimited(0))
	awaitView(t, a, "the end of the cooldown", func(v View) bool {
		wait(t.Context(), time.Until(v.OpenUntil))
		return a.View().State == HalfOpen
	})
	permit, err := a.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	awaitView(t, b, "a probe under way", func(v View) bool { return v.State == HalfOpen && v.ProbeAt.After(time.Now()) })
	if err := permit.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitView(t, b, "a probe given back", func(v View) bool { return v.State == HalfOpen && v.ProbeAt.IsZero() })
	if permit, err = b.Allow(t.Context()); err != nil || !permit.Probe() {
		t.Errorf("the other instance got no probe: %+v, %v", permit, err)
	}
}

// awaitProbe waits for the probe and reports it.
func awaitProbe(t *testing.T, b *Breaker, o Outcome) {
	t.Helper()
	var permit Permit
	redistest.Eventually(t, "a probe", func() bool {
		var err error
		permit, err = b.Allow(t.Context())
		return err == nil
	})
	if _, err := permit.Report(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func TestSlowOnEventHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	d := redistest.Name(t, "slow")
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	defer close(leave)
	b := start(t, s.Client(t), Options{Destination: d, RefreshInterval: time.Hour, OnEvent: func(Event) {
		entered <- struct{}{}
		<-leave
	}})
	rdb := s.Client(t)
	awaitSubscribers(t, rdb, d, 1)
	if _, err := DefaultNamespace.Trip(t.Context(), rdb, d, TripOptions{}); err != nil {
		t.Fatal(err)
	}
	<-entered
	if _, err := DefaultNamespace.Reset(t.Context(), rdb, d, ""); err != nil {
		t.Fatal(err)
	}
	awaitView(t, b, "CLOSED", func(v View) bool { return v.State == Closed })
	report(t, b, RateLimited(0))
}

func TestHistoryIsCapped(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	d := redistest.Name(t, "history")
	const transitions = 1003
	for i := range transitions {
		if _, err := DefaultNamespace.Trip(t.Context(), rdb, d, TripOptions{Reason: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := historyOf(t.Context(), rdb, d, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1000 || all[0].Reason != "3" || all[999].Reason != "1002" {
		t.Errorf("%d transitions from %q to %q, want 1000 from 3 to 1002", len(all), all[0].Reason, all[len(all)-1].Reason)
	}
	last, err := historyOf(t.Context(), rdb, d, 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all[998:], last); diff != "" {
		t.Errorf("the last two differ:\n%s", diff)
	}
	none, err := historyOf(t.Context(), rdb, redistest.Name(t, "unused"), 10)
	if len(none) != 0 || err != nil {
		t.Errorf("history of an unused breaker: %v, %v", none, err)
	}
}

// readsOf is how often an instance has looked for changes: at the stamp, or at the snapshot.
func readsOf(stats map[string]int64) int64 { return stats["evalsha"] + stats["mget"] }
