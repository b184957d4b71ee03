package breaker

import (
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A Redis that is full takes all that the breaker has to write, whatever it does.
func TestFullRedisTakesEverything(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	o := Options{
		Destination: "api", MaxInFlight: 2, Rate: Rates{{Calls: 1_000_000, Per: time.Second, Burst: 1000}},
		RefreshInterval: time.Hour, FailureThreshold: 1,
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(t.Context(), "probe", "x", 0).Err(); err == nil {
		t.Fatal("Redis is not full")
	}
	b := start(t, rdb, o)
	if err := b.register(t.Context(), validFor*registerEvery); err != nil {
		t.Fatalf("registration: %v", err)
	}
	for _, name := range []string{"api", "api/k"} {
		of := b
		if name != "api" {
			of = b.Key("k")
		}
		if st := report(t, of, told(3, time.Hour, 100)); st.Budget == nil || st.Budget.Remaining != 3 {
			t.Errorf("%s: after an answer that told of the budget: %+v", name, st)
		}
		counted, err := of.Allow(t.Context())
		if err != nil || !counted.Metered() {
			t.Errorf("%s: counted call: %+v, %v", name, counted, err)
		}
		if err := counted.Release(t.Context()); err != nil {
			t.Errorf("%s: release: %v", name, err)
		}
		report(t, of, Failure())
		incident := report(t, of, RateLimited(time.Hour)).Incident
		of.Rescheduled(incident, 3)
		b.flushRescheduled(t.Context())
		if st, err := DefaultNamespace.Get(t.Context(), rdb, name); err != nil || st.State != Open || st.Rescheduled != 3 {
			t.Errorf("%s: after a 429: %+v, %v", name, st, err)
		}
		if _, err := DefaultNamespace.Trip(t.Context(), rdb, name, TripOptions{For: time.Millisecond}); err != nil {
			t.Errorf("%s: trip: %v", name, err)
		}
		redistest.Eventually(t, "a probe", func() bool {
			if err := b.readSnapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			p, err := of.Allow(t.Context())
			if err != nil {
				if !errors.Is(err, ErrOpen) {
					t.Fatal(err)
				}
				return false
			}
			_, err = p.Report(t.Context(), Success())
			return err == nil && p.Probe()
		})
		report(t, of, Success()) // in slow start
		if _, err := DefaultNamespace.ForceClosed(t.Context(), rdb, name, TripOptions{}); err != nil {
			t.Errorf("%s: force: %v", name, err)
		}
		if _, err := DefaultNamespace.Reset(t.Context(), rdb, name, ""); err != nil {
			t.Errorf("%s: reset: %v", name, err)
		}
		if err := b.readSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if in, err := incidentsOf(t.Context(), rdb, "api/k", 0); err != nil || len(in) != 1 || in[0].Rescheduled != 3 {
		t.Errorf("incidents: %+v, %v", in, err)
	}
}
