package breaker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Where callers wait, a call that ends passes its slot on without Redis: never are there more calls than slots, and no
// instance keeps others from calling.
func TestSlotsArePassedOn(t *testing.T) {
	t.Parallel()
	const slots, calls, callers = 2, 400, 8
	for name, o := range map[string]Options{
		"of the destination": {FleetConcurrency: slots},
		"of a key":           {KeyConcurrency: slots},
		"of both":            {FleetConcurrency: slots, KeyConcurrency: slots},
		"of a named limit":   {FleetConcurrency: callers, Limits: []NamedLimit{{Name: "shared", Concurrency: slots}}},
	} {
		for of, instances := range map[string]int{"one instance": 1, "two instances": 2} {
			t.Run(name+"/"+of, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				o := o
				o.Destination, o.RefreshInterval = "api", time.Hour
				var left, running, most, granted atomic.Int64
				left.Store(calls)
				made := make([]atomic.Int64, instances)
				var all sync.WaitGroup
				fleet := make([]*Breaker, instances)
				for i := range fleet {
					fleet[i] = start(t, s.Client(t), o).Key("k")
				}
				for i, b := range fleet {
					for range callers {
						all.Go(func() {
							for left.Add(-1) >= 0 {
								p, err := b.Wait(patient(t), 0)
								if err != nil {
									t.Error(err)
									return
								}
								if p.turn == 0 {
									granted.Add(1)
								}
								n := running.Add(1)
								for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
								}
								<-time.After(time.Millisecond) // the call's length
								made[i].Add(1)
								running.Add(-1)
								if _, err := p.Report(patient(t), Success()); err != nil {
									t.Error(err)
								}
							}
						})
					}
				}
				all.Wait()
				if most.Load() > slots {
					t.Errorf("%d calls at once, want at most %d", most.Load(), slots)
				}
				if n := granted.Load(); n > calls/4 {
					t.Errorf("Redis has granted %d slots for %d calls, want one for about %d calls", n, calls, mostTurns)
				}
				for i := range made {
					if made[i].Load() == 0 {
						t.Errorf("instance %d has made none of %d calls", i, calls)
					}
				}
			})
		}
	}
}

// A slot that is passed on again and again goes to others that wait for it, and to whom it cannot be passed.
func TestASlotIsGivenToOthers(t *testing.T) {
	t.Parallel()
	for name, fleet := range map[string]func(start func(Options) *Breaker) (keeps, waits *Breaker){
		"another instance": func(start func(Options) *Breaker) (keeps, waits *Breaker) {
			return start(Options{}), start(Options{})
		},
		"another key": func(start func(Options) *Breaker) (keeps, waits *Breaker) {
			b := start(Options{KeyConcurrency: 1})
			return b.Key("k"), b.Key("other")
		},
		"a longer lease": func(start func(Options) *Breaker) (keeps, waits *Breaker) {
			b := start(Options{})
			return b, b.Lease(time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			keeps, waits := fleet(func(o Options) *Breaker {
				o.Destination, o.FleetConcurrency, o.RefreshInterval = "api", 1, time.Hour
				return start(t, s.Client(t), o)
			})
			ctx, stop := context.WithCancel(patient(t))
			var calls atomic.Int64
			var all sync.WaitGroup
			defer all.Wait()
			defer stop()
			for range 4 {
				all.Go(func() {
					for {
						p, err := keeps.Wait(ctx, 0)
						if err != nil {
							return
						}
						<-time.After(time.Millisecond) // the call's length
						calls.Add(1)
						_, _ = p.Report(context.WithoutCancel(ctx), Success())
					}
				})
			}
			redistest.Eventually(t, "calls", func() bool { return calls.Load() > 2*mostTurns })
			for range 3 {
				refused := calls.Load()
				p, err := waits.Wait(patient(t), 0)
				if err != nil {
					t.Fatal(err)
				}
				if n := calls.Load() - refused; n > 3*mostTurns {
					t.Errorf("the others have made %d calls meanwhile, want about %d at most", n, mostTurns)
				}
				if _, err := p.Report(patient(t), Success()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// in is a caller of Wait that stands in line.
func inLine(t *testing.T, b *Breaker) <-chan Permit {
	t.Helper()
	got := make(chan Permit, 1)
	go func() {
		p, err := b.Wait(patient(t), 0)
		if err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		got <- p
	}()
	redistest.Eventually(t, "in line", func() bool { return !b.waiting.empty(b.key) })
	return got
}

func TestASlotIsPassedOnOnce(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{FleetConcurrency: 1})
		p, err := h.b.Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		full := func(what string) {
			t.Helper()
			if p, err := h.b.Allow(patient(t)); !errors.Is(err, ErrOpen) {
				t.Errorf("%s: a second call may begin: %+v, %v", what, p, err)
			}
		}
		got := inLine(t, h.b)
		h.report(p, Success())
		next := <-got
		if next.Until() != p.Until() || !next.Metered() {
			t.Errorf("the next permit is until %v, want the lease of the slot, until %v", next.Until(), p.Until())
		}
		full("passed on")
		h.report(p, Success())
		_ = p.Release(patient(t))
		_ = p.End(patient(t))
		full("the first one is reported and released again")
		_ = next.Release(patient(t))
		last, err := h.b.Allow(patient(t))
		if err != nil {
			t.Fatalf("given back: %v", err)
		}

		// A slot that was given back is not passed on.
		h.report(last, Neutral())
		other, err := h.b.Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		got = inLine(t, h.b)
		h.report(last, Success())
		full("reported again")
		h.report(other, Success())
		dead := <-got

		// If its process dies, the lease ends.
		past := dead.Until().Sub(h.clock.now())
		h.clock.advance(past, past)
		if _, err := h.b.Allow(patient(t)); err != nil {
			t.Errorf("after the lease: %v", err)
		}
	})
}

// What the API says of a call takes effect before the next one: a call that was not accepted passes nothing on, nor does
// one of a slot whose lease would be too short for a call.
func TestASlotIsNotPassedOn(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Outcome{
		"refused": RateLimited(time.Hour), "failed": Failure(), "outage": Answered(503), "neutral": Neutral(),
		"a low budget": Success().WithBudget(Budget{Remaining: 1, Reset: time.Hour}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, redistest.Embedded(t), Options{Destination: "api", FleetConcurrency: 1})
			p := soon(t, b)
			place := b.Line()
			if _, err := p.Report(patient(t), o); err != nil {
				t.Fatal(err)
			}
			if len(place.passed) > 0 {
				t.Error("the slot was passed on")
			}
			place.Leave(patient(t))
		})
	}
	t.Run("its lease", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, redistest.Embedded(t), Options{FleetConcurrency: 1})
		p, err := h.b.Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		place := h.b.Line()
		h.clock.advance(keepSlot+time.Second, keepSlot+time.Second)
		h.report(p, Success())
		if len(place.passed) > 0 {
			t.Error("the slot was passed on")
		}
		place.Leave(patient(t))
	})
}

// Who has passed a slot on has nothing to do with it any more, whatever it does and whatever becomes of the slot.
func TestAPassedSlotIsTheNextCalls(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{FleetConcurrency: 2})
		ahead, err := h.b.AllowN(patient(t), 2, 0, 0)
		if err != nil || len(ahead) != 2 {
			t.Fatal(len(ahead), err)
		}
		place := h.b.Line()
		h.report(ahead[0], Success())
		if len(place.passed) == 0 {
			t.Fatal("the slot was not passed on")
		}
		next := <-place.passed
		place.Leave(patient(t))
		h.report(next, Success().Ongoing())
		for what, again := range map[string]func() error{
			"ended": func() error { return ahead[0].End(patient(t)) }, "released": func() error { return ahead[0].Release(patient(t)) },
			"reported":             func() error { _, err := ahead[0].Report(patient(t), Neutral()); return err },
			"released with others": func() error { return h.b.ReleaseAll(patient(t), ahead) },
		} {
			if err := again(); err != nil {
				t.Error(err)
			}
			_ = ahead[1].Release(patient(t))
			p, err := h.b.Allow(patient(t))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if _, err := h.b.Allow(patient(t)); !errors.Is(err, ErrOpen) {
				t.Errorf("the first one is %s again: %v, want the next one to have its slot still", what, err)
			}
			h.report(p, Neutral())
		}
		if err := next.End(patient(t)); err != nil {
			t.Error(err)
		}
		if n := h.b.slotsHeld.Load(); n != 0 {
			t.Errorf("the instance has %d slots, want none", n)
		}
	})
}

// The lease of a slot that is passed on is never shorter than the calls know, nor than a caller asks for.
func TestALeaseOfItsOwnLength(t *testing.T) {
	t.Parallel()
	const long = 10 * time.Minute
	t.Run("a longer one is kept", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, redistest.Embedded(t), Options{FleetConcurrency: 1})
		p, err := h.b.Lease(long).Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		for range mostTurns / 2 {
			place := h.b.Line()
			h.report(p, Success())
			p = <-place.passed
			place.Leave(patient(t))
		}
		redistest.Eventually(t, "it is renewed", func() bool {
			p.slot.mu.Lock()
			defer p.slot.mu.Unlock()
			return p.slot.since > 0
		})
		h.clock.advance(DefaultProbeTimeout+time.Second, DefaultProbeTimeout+time.Second)
		if _, err := h.b.Allow(patient(t)); !errors.Is(err, ErrOpen) {
			t.Errorf("beside a call with a lease until %v a second one may begin: %v", p.Until(), err)
		}
	})
	t.Run("one that is asked for", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, redistest.Embedded(t), Options{FleetConcurrency: 1})
		p, err := h.b.Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		place := h.b.Lease(DefaultProbeTimeout - time.Second).Line()
		h.clock.advance(2*time.Second, 2*time.Second)
		h.report(p, Success())
		if len(place.passed) > 0 {
			t.Error("a slot was passed on whose lease is shorter than the caller asks for")
		}
		place.Leave(patient(t))
	})
}

// A slot is renewed in CLOSED alone: otherwise it would take the probe.
func TestASlotIsNoProbe(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{FleetConcurrency: 2})
		p, err := h.b.Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		h.byHand(policy.Tripped, "", millis(time.Second), "")
		h.clock.advance(2*time.Second, 2*time.Second)
		if got := advance(h); !strings.HasPrefix(got, "HALF_OPEN") {
			t.Fatal(got)
		}
		p.renewSlot(1)
		if probe, err := h.b.Allow(patient(t)); err != nil || !probe.Probe() || p.slot.since > 0 {
			t.Errorf("the next call gets %+v, %v, want the probe", probe, err)
		}
	})
}

// The slot of a permit that was handed to others is theirs.
func TestAHandedSlot(t *testing.T) {
	t.Parallel()
	b := start(t, redistest.Embedded(t), Options{Destination: "api", FleetConcurrency: 1})
	text, err := soon(t, b).MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Permit(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Report(patient(t), Success()); err != nil {
		t.Fatal(err)
	}
	if n := b.slotsHeld.Load(); n != 0 {
		t.Errorf("the instance has %d slots, want none", n)
	}
}
