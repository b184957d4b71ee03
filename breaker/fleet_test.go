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

	"github.com/tidegate/tidegate/internal/testkit/redistest"
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
	if _, err := Reset(t.Context(), s.Client(t), d, "ann"); err != nil {
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

func TestRefreshFindsWhatTheSubscriptionMissed(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	d := redistest.Name(t, "deaf")
	var heard recorder
	b := start(t, deaf{s.Client(t)}, Options{Destination: d, RefreshInterval: 50 * time.Millisecond, OnEvent: heard.add})
	rdb := s.Client(t)
	if _, err := Trip(t.Context(), rdb, d, TripOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("seen after %v, with a read every 50ms", took)
	}
	if _, err := Reset(t.Context(), rdb, d, "ann"); err != nil {
		t.Fatal(err)
	}
	awaitView(t, b, "CLOSED", func(v View) bool { return v.State == Closed })
	events := heard.await(t, 2)
	if len(events) != 2 || events[0].To != Open || events[1].To != Closed {
		t.Errorf("events: %+v", events)
	}
}

func TestLostSubscriptionIsHealed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	const d = "lost-subscription"
	var heard recorder
	b := start(t, s.Client(t), Options{Destination: d, RefreshInterval: 200 * time.Millisecond, OnEvent: heard.add})
	awaitSubscribers(t, rdb, d, 1)
	for range 5 {
		if err := rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := Trip(t.Context(), rdb, d, TripOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
		if _, err := Reset(t.Context(), rdb, d, ""); err != nil {
			t.Fatal(err)
		}
		awaitView(t, b, "CLOSED", func(v View) bool { return v.State == Closed })
		awaitSubscribers(t, rdb, d, 1)
	}
	sameAsHistory(t, rdb, d, heard.await(t, 10))
}

func TestEventsReachEveryInstanceOnceAndInOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	rdb := s.Client(t)
	d := redistest.Name(t, "events")
	if _, err := Trip(t.Context(), rdb, d, TripOptions{}); err != nil { // before New: not told
		t.Fatal(err)
	}
	o := Options{NoLearning: true, Destination: d, FailureThreshold: 1, Cooldown: time.Millisecond, RefreshInterval: 20 * time.Millisecond}
	instances := make([]recorder, 3)
	var acting *Breaker
	for i := range instances {
		o.OnEvent = instances[i].add
		client := s.Client(t)
		if i == 2 {
			client = deaf{client}
		}
		acting = start(t, client, o)
	}
	if _, err := Reset(t.Context(), rdb, d, "ann"); err != nil {
		t.Fatal(err)
	}
	awaitView(t, acting, "CLOSED", func(v View) bool { return v.State == Closed })
	const incidents = 30
	for range incidents {
		report(t, acting, RateLimited(0))
		awaitProbe(t, acting, Success())
	}
	for i := range instances {
		events := instances[i].await(t, 1+3*incidents)
		if events[0].To != Closed || events[0].Cause != CauseReset || events[0].By != "ann" {
			t.Errorf("instance %d: the first event is %+v, want ann's reset", i, events[0])
		}
		history := sameAsHistory(t, rdb, d, events)
		for j, e := range history[2:] {
			if want := []State{Open, HalfOpen, Closed}[j%3]; e.To != want {
				t.Fatalf("transition %d is to %v, want %v", j, e.To, want)
			}
		}
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

// sameAsHistory checks that the events are the last of the history.
func sameAsHistory(t *testing.T, rdb redis.UniversalClient, d string, events []Event) []Event {
	t.Helper()
	history, err := History(t.Context(), rdb, d, 0)
	if err != nil {
		t.Fatal(err)
	}
	last := history[max(0, len(history)-len(events)):]
	if diff := cmp.Diff(last, events); diff != "" {
		t.Errorf("events are not as in the history (-history +events):\n%s", diff)
	}
	return history
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
	if _, err := Trip(t.Context(), rdb, d, TripOptions{}); err != nil {
		t.Fatal(err)
	}
	<-entered
	if _, err := Reset(t.Context(), rdb, d, ""); err != nil {
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
		if _, err := Trip(t.Context(), rdb, d, TripOptions{Reason: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := History(t.Context(), rdb, d, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1000 || all[0].Reason != "3" || all[999].Reason != "1002" {
		t.Errorf("%d transitions from %q to %q, want 1000 from 3 to 1002", len(all), all[0].Reason, all[len(all)-1].Reason)
	}
	last, err := History(t.Context(), rdb, d, 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all[998:], last); diff != "" {
		t.Errorf("the last two differ:\n%s", diff)
	}
	none, err := History(t.Context(), rdb, redistest.Name(t, "unused"), 10)
	if len(none) != 0 || err != nil {
		t.Errorf("history of an unused breaker: %v, %v", none, err)
	}
}

func TestMissedEventsFillMoreThanOnePage(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	rdb := s.Client(t)
	d := redistest.Name(t, "pages")
	var heard recorder
	b := start(t, deaf{s.Client(t)}, Options{Destination: d, RefreshInterval: time.Hour, OnEvent: heard.add})
	const transitions = 3*historyPage + 7
	for range transitions {
		if _, err := Trip(t.Context(), rdb, d, TripOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.wake(taskRefresh)
	sameAsHistory(t, rdb, d, heard.await(t, transitions))
}

// readsOf is how often an instance has looked for changes: at the stamp, or at the snapshot.
func readsOf(stats map[string]int64) int64 { return stats["evalsha"] + stats["mget"] }

func TestInstanceThatOnlyWaitsCostsThreeCommandsPerRead(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const d = "waiting"
	start(t, s.Client(t), Options{Destination: d, RefreshInterval: 20 * time.Millisecond})
	rdb := s.Client(t)
	awaitSubscribers(t, rdb, d, 1)
	for _, c := range []struct {
		state   State
		perRead int64
	}{{Closed, 2}, {Open, 3}} {
		if c.state == Open {
			if _, err := Trip(t.Context(), rdb, d, TripOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		s.ResetStats(t)
		redistest.Eventually(t, "20 reads", func() bool { return readsOf(s.CommandStats(t)) >= 20 })
		stats := s.CommandStats(t)
		var total int64
		for _, n := range stats {
			total += n
		}
		// Every tenth read while not CLOSED looks at the hash as well. A read
		// may be under way when the counts are taken.
		if limit := readsOf(stats)*c.perRead + c.perRead + 2; total > limit {
			t.Errorf("%v: %d commands for %d reads, want at most %d: %v", c.state, total, readsOf(stats), limit, stats)
		}
	}
}
