package breaker

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func outOf(f *inFlight, key string) [2]int {
	_, out, keyed := f.count(key)
	return [2]int{out, keyed}
}

// A permit that is never reported is in flight for as long as a call can take.
func TestPermitsThatAreNeverReportedEndAfterProbeTimeout(t *testing.T) {
	t.Parallel()
	tick := func(h *harness) string {
		h.b.expirePermits()
		return live(h)
	}
	runRows(t, Options{MaxInFlight: 100, ProbeTimeout: 40 * second},
		row{0, tick, "100"},
		row{0, both(tries(60, "leaked"), of("a", tries(40, "of a"))), "40"},
		row{0, tick, "100"},
		row{0, call(told(90, 10*minute, 5000)), "CLOSED left=90/10m0s of 5000"},
		row{0, try("x"), "D CLOSED budget for 1s"},
		row{40*second - time.Millisecond, both(tick, try("x")), "D CLOSED budget for 1s"},
		row{40 * second, both(tick, try("x")), "counted"},
		row{40 * second, tries(100, "y"), "89, then D CLOSED budget for 1s"},
		// A late report changes nothing.
		row{40 * second, tellAll(60, "leaked", Neutral()), "CLOSED left=90/9m20s of 5000"},
		row{40 * second, try("x"), "D CLOSED budget for 1s"},
	)
}

// Sixteen goroutines come and go, and report twice; the counts stay right.
func TestFlightsUnderManyGoroutines(t *testing.T) {
	t.Parallel()
	b := start(t, redistest.Embedded(t), Options{Destination: "api", RefreshInterval: time.Hour})
	var group sync.WaitGroup
	const goroutines, rounds = 16, 500
	kept := make([]Permit, goroutines)
	for g := range goroutines {
		group.Go(func() {
			key := fmt.Sprint("key-", g%4)
			for i := range rounds {
				p, err := b.Key([]string{"", key}[i%2]).Allow(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					if p, err = p.ForKey(t.Context(), key); err != nil {
						t.Error(err)
						return
					}
				}
				if i == rounds-1 {
					kept[g] = p
					return
				}
				for range 2 {
					if i%3 == 0 {
						err = p.Release(t.Context())
					} else {
						_, err = p.Report(t.Context(), Success())
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
				if i%50 == 0 {
					if _, out, keyed := b.inFlight.count(key); out > goroutines || keyed > goroutines/4 || out < 0 || keyed < 0 {
						t.Errorf("%d out, %d of %s", out, keyed, key)
					}
				}
			}
		})
	}
	group.Wait()
	if got := outOf(b.inFlight, "key-0"); got != [2]int{goroutines, goroutines / 4} {
		t.Errorf("%v are out, want %d and %d", got, goroutines, goroutines/4)
	}
	for _, p := range kept {
		for range 3 {
			if _, err := p.Report(t.Context(), Success()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := outOf(b.inFlight, "key-0"); got != [2]int{0, 0} {
		t.Errorf("%v are out after all reports", got)
	}
}

// Not parallel: it counts allocations. A healthy keyed call costs what one without a
// key does, and the name in the status that Report returns; so does a permit that
// becomes a key's.
func TestHealthyKeyedPathCostsOneAllocationAndNoCommand(t *testing.T) {
	s := redistest.Start(t)
	b := start(t, s.Client(t), Options{Destination: "api", RefreshInterval: time.Hour})
	rdb := s.Client(t)
	if _, err := DefaultNamespace.Trip(t.Context(), rdb, "api/open", TripOptions{}); err != nil { // one key of others is not healthy
		t.Fatal(err)
	}
	awaitView(t, b.Key("open"), "OPEN", func(v View) bool { return v.State == Open })
	settle(t, s)
	key := b.Key("healthy")
	ctx := t.Context()
	for _, c := range []struct {
		name string
		call func() error
		want float64 // the name in the status that Report returns, of a breaker with nothing to remember
	}{
		{"keyed", func() error { return healthyCall(ctx, key) }, 1},
		{"the key is made anew", func() error { return healthyCall(ctx, b.Key("healthy")) }, 1},
		{"for a key", func() error {
			p, err := b.Allow(ctx)
			if err != nil {
				return err
			}
			if p, err = p.ForKey(ctx, "healthy"); err != nil {
				return err
			}
			_, err = p.Report(ctx, Success())
			return err
		}, 1},
		{"another outcome", func() error {
			p, err := key.Allow(ctx)
			if err != nil {
				return err
			}
			_, err = p.Report(ctx, Failure())
			return err
		}, 1},
		{"much is left", func() error {
			p, err := key.Allow(ctx)
			if err != nil {
				return err
			}
			_, err = p.Report(ctx, told(1000, time.Minute, 5000))
			return err
		}, 1},
		{"released", func() error {
			p, err := key.Allow(ctx)
			if err != nil {
				return err
			}
			return p.Release(ctx)
		}, 0},
	} {
		s.ResetStats(t)
		var failed error
		got := testing.AllocsPerRun(1000, func() {
			if err := c.call(); err != nil {
				failed = err
			}
		})
		if failed != nil {
			t.Fatalf("%s: %v", c.name, failed)
		}
		if got != c.want {
			t.Errorf("%s: %v allocations per call, want %v", c.name, got, c.want)
		}
		if stats := s.CommandStats(t); len(stats) != 0 {
			t.Errorf("%s: commands for 1000 calls: %v, want none", c.name, stats)
		}
	}
}

func BenchmarkHealthyKeyedPath(b *testing.B) {
	s := redistest.Start(b)
	br := start(b, s.Client(b), Options{Destination: "api"})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := healthyCall(ctx, br.Key("healthy")); err != nil {
			b.Fatal(err)
		}
	}
}
