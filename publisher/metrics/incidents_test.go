package metrics_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// sum adds the series of names up over instances.
func sum(instances []*instance, names ...string) float64 {
	total := 0.0
	for _, in := range instances {
		values := in.values()
		for _, name := range names {
			total += values[name]
		}
	}
	return total
}

func incidents(cause string) string { return `circuit_breaker_incidents_total{cause="` + cause + `"}` }

// Three publishers hear of every incident, and one of them counts it: whose call it
// was, or any of them if it was nobody's call.
func TestIncidentsAreCountedOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{Latency: 5 * time.Millisecond})
	rules := breaker.Options{FailureThreshold: 1, Cooldown: 100 * time.Millisecond, NoLearning: true}
	var fleet []*instance
	for range 3 {
		fleet = append(fleet, r.make(metrics.Options{}, nil, rules).run())
	}
	everybody := func(what, series string) {
		t.Helper()
		for _, in := range fleet {
			redistest.Eventually(t, what, func() bool { return in.values()[`circuit_breaker_state{state="`+series+`"}`] == 1 })
		}
	}
	counted := func(byCalls, byHand float64) {
		t.Helper()
		threshold, ramp, manual := incidents(breaker.CauseThreshold), incidents(breaker.CauseRamp), incidents(breaker.CauseManual)
		redistest.Eventually(t, "the incident is counted", func() bool { return sum(fleet, threshold, ramp, manual) >= byCalls+byHand })
		if calls, hand := sum(fleet, threshold, ramp), sum(fleet, manual); calls != byCalls || hand != byHand {
			t.Fatalf("%v incidents by calls and %v by hand are counted, want %v and %v", calls, hand, byCalls, byHand)
		}
	}
	const by = 4.0
	for i := range int(by) { // by a call, with a probe that fails
		r.api.Queue(fakeapi.Answer{Status: http.StatusTooManyRequests}, fakeapi.Answer{Status: http.StatusTooManyRequests})
		r.ended(r.enqueue(nil), jobs.Completed)
		everybody("closed", "closed")
		counted(float64(i)+1, 0)
	}
	if got := sum(fleet, `circuit_breaker_probes_total{result="rate_limited"}`); got != by {
		t.Errorf("%v probes have failed, want %v", got, by)
	}
	for i := range 4 { // by hand
		_, err := breaker.DefaultNamespace.Trip(t.Context(), r.rdb, r.dest, breaker.TripOptions{For: time.Hour})
		r.must(err)
		everybody("open", "open")
		counted(by, float64(i)+1)
		_, err = breaker.DefaultNamespace.Trip(t.Context(), r.rdb, r.dest, breaker.TripOptions{For: 2 * time.Hour}) // longer, and no other incident
		r.must(err)
		_, err = breaker.DefaultNamespace.Reset(t.Context(), r.rdb, r.dest, "test")
		r.must(err)
		everybody("closed", "closed")
		counted(by, float64(i)+1)
	}
	// Those of keys are none of the destination's.
	_, err := breaker.DefaultNamespace.Trip(t.Context(), r.rdb, r.dest+"/alice", breaker.TripOptions{For: time.Hour})
	r.must(err)
	for _, in := range fleet {
		redistest.Eventually(t, "the key is open", func() bool { return in.values()["circuit_breaker_open_keys"] == 1 })
	}
	// Each instance counts in a goroutine of its own: one that is late may count twice.
	for range 20 {
		counted(by, 4)
	}
	// So are their ends: how long each took, and who had a part in it.
	for _, histogram := range []string{"circuit_breaker_recovery_seconds", "circuit_breaker_participants"} {
		redistest.Eventually(t, "the ends are counted", func() bool { return sum(fleet, histogram+"_count") >= by+4 })
		if ends := sum(fleet, histogram+"_count"); ends != by+4 {
			t.Errorf("%s: %v ends, want %v", histogram, ends, by+4)
		}
	}
}

// Without Redis nobody can agree on who counts: each process counts the incidents that
// calls of its own have begun.
func TestIncidentsWithoutRedis(t *testing.T) {
	t.Parallel()
	m := newBare(t)
	p, err := publisher.New(redistest.Shared(t).Client(t), publisher.Options{Logger: silent, Worker: "me:1"})
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(p)
	opened := breaker.Event{Name: "d", From: breaker.Closed, To: breaker.Open, Cause: breaker.CauseThreshold, By: "me:1", Incident: "i1"}
	with := func(change func(*breaker.Event)) breaker.Event {
		e := opened
		change(&e)
		return e
	}
	for _, e := range []breaker.Event{
		opened,
		with(func(e *breaker.Event) { e.By = "other:1" }),
		with(func(e *breaker.Event) { e.By, e.Cause = "ann", breaker.CauseManual }),
		with(func(e *breaker.Event) { e.From = breaker.HalfOpen }),
		with(func(e *breaker.Event) { e.From = breaker.Open }),
		with(func(e *breaker.Event) { e.To = breaker.HalfOpen }),
		with(func(e *breaker.Event) { e.To = breaker.Closed }),
		with(func(e *breaker.Event) { e.Name, e.Key = "d/k", "k" }),
	} {
		transition(m.Metrics, e)
	}
	if got := m.count("tidegate_circuit_breaker_incidents_total"); got != 1 {
		t.Errorf("%v incidents, want 1", got)
	}
}

// Whoever began an incident may have died before it could count it: one of the others
// does, and one only.
func TestIncidentOfADeadWorkerIsCounted(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	fleet := []*instance{
		r.make(metrics.Options{}, nil, breaker.Options{}), r.make(metrics.Options{}, nil, breaker.Options{}),
	}
	for _, in := range slices.Concat(fleet, fleet) {
		transition(in.m, breaker.Event{
			Name: r.dest, From: breaker.Closed, To: breaker.Open, Cause: breaker.CauseThreshold, By: "dead:1", Incident: r.dest + "-1",
		})
	}
	if got := sum(fleet, incidents(breaker.CauseThreshold)); got != 1 {
		t.Errorf("%v incidents, want 1", got)
	}
}

// transition reports a transition to m, as a publisher does.
func transition(m *metrics.Metrics, e breaker.Event) {
	var o publisher.Options
	m.Observe(&o)
	o.Observers[0].OnTransition(e)
}
