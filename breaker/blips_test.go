package breaker

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Whatever a process loses of Redis for a moment, it grants no permit above what is declared, to whom asks and to whom
// waits; after that it goes on.
func TestDeclaredLimitsHoldThroughBlips(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const blips, slots, calls = 4, 3, 200
	for _, limit := range []struct {
		name string
		key  string
		o    Options
		most int
	}{
		{"concurrency", "", Options{FleetConcurrency: slots}, 1 << 30},
		{"of a key", "alice", Options{KeyConcurrency: slots}, 1 << 30},
		{"rate", "", Options{Rate: Rates{{Calls: calls, Per: 24 * time.Hour, Burst: calls}}}, calls},
		{"named", "", Options{Limits: []NamedLimit{{Name: "shared", Concurrency: slots}}}, 1 << 30},
	} {
		for _, fault := range []string{"replies lost", "connections killed", "killed"} {
			t.Run(limit.name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t, redistest.WithAOF())
				p := redistest.NewLossy(t, s.Addr())
				blip := redistest.Blips(t, s, p, nil)[fault]
				o := limit.o
				o.Destination, o.Timeout, o.Logger = "api", 500*time.Millisecond, redistest.Logger(t)
				var inFlight redistest.Gauge
				var refused atomic.Int64
				ctx := t.Context()
				var calling sync.WaitGroup
				t.Cleanup(calling.Wait)
				for range 2 {
					b := start(t, p.Client(t), o).Key(limit.key)
					if len(o.Limits) > 0 {
						b = b.Draws(Draw{Limit: "shared", Cost: 1})
					}
					for i := range 8 {
						calling.Go(func() {
							for ctx.Err() == nil {
								wait := time.Second
								if i%2 == 0 {
									wait = -1 // it asks
								}
								permit, err := b.Wait(ctx, wait)
								switch {
								case err == nil:
									inFlight.Begin()
								case errors.Is(err, ErrOpen):
									refused.Add(1)
								case !errors.Is(err, ErrUnavailable) && ctx.Err() == nil:
									t.Error(err)
								}
								select {
								case <-time.After(5 * time.Millisecond): // the call's length, or a pause
								case <-ctx.Done():
								}
								if err == nil {
									inFlight.End()
									_, _ = permit.Report(ctx, Success()) // it is repeated
								}
							}
						})
					}
				}
				total := func() int {
					_, total := inFlight.Counts()
					return total
				}
				redistest.Eventually(t, "calls before the first blip", func() bool { return total() >= 2*slots })
				for i := range blips {
					if i == blips/2 && limit.name == "rate" {
						redistest.Eventually(t, "the rate is used up", func() bool { return refused.Load() > 0 })
					}
					last := total()
					blip()
					if limit.name != "rate" {
						redistest.Eventually(t, "calls after the blip", func() bool { return total() >= last+2*slots })
					}
				}
				most, n := inFlight.Counts()
				t.Logf("%d calls, at most %d at once", n, most)
				if n > limit.most {
					t.Errorf("%d calls, of %d", n, limit.most)
				}
				if limit.name != "rate" && most > slots {
					t.Errorf("%d calls at once, of %d", most, slots)
				}
			})
		}
	}
}
