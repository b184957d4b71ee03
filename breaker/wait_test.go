package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestWaitGrantsInOrderOfArrival(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	b := start(t, rdb, Options{Destination: "api"})
	if _, err := DefaultNamespace.Trip(t.Context(), rdb, "api", TripOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			permit, err := b.Wait(t.Context(), 0)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			report(t, b, Success())
			_ = permit.Release(t.Context())
		})
		redistest.Eventually(t, "a waiter", func() bool {
			b.waiting.mu.Lock()
			defer b.waiting.mu.Unlock()
			return len(b.waiting.of[""]) == i+1
		})
	}
	if _, err := DefaultNamespace.Reset(t.Context(), rdb, "api", "ann"); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
		t.Errorf("granted in the order %v", order)
	}
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	b := start(t, rdb, Options{Destination: "api"})
	if _, err := DefaultNamespace.Trip(t.Context(), rdb, "api", TripOptions{For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
	began := time.Now()
	var open *OpenError
	if _, err := b.Wait(t.Context(), time.Minute); !errors.As(err, &open) || open.RetryAfter < 50*time.Minute || time.Since(began) > 30*time.Second {
		t.Errorf("in vain: %v after %v", err, time.Since(began))
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := b.Wait(ctx, 0); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrOpen) {
		t.Errorf("cancelled: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = b.Close() })
	if _, err := b.Wait(t.Context(), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Who waits for a declared window gets what others give back, long before its end.
func TestWaitGetsWhatIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"of the destination": "", "of a key": "k"} {
		for of, other := range map[string]bool{"by this instance": false, "by another": true} {
			t.Run(name+"/"+of, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				rate := Rates{{Calls: 2, Per: time.Hour, Zone: "UTC"}}
				o := Options{Destination: "api", Rate: rate, RefreshInterval: time.Hour}
				if key != "" {
					o.Rate, o.KeyRate = nil, rate
				}
				waits := start(t, s.Client(t), o).Key(key)
				takes := waits
				if other {
					takes = start(t, s.Client(t), o).Key(key)
				}
				soon(t, takes)
				taken := soon(t, takes)
				got := make(chan error, 1)
				go func() {
					_, err := waits.Wait(t.Context(), 0) // without a deadline, or it is in vain
					got <- err
				}()
				redistest.Eventually(t, "refused, and in line", func() bool { return !waits.waiting.empty(key) })
				if err := taken.Release(patient(t)); err != nil {
					t.Fatal(err)
				}
				if err := <-got; err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// Callers of many keys that wait for the destination wait in one line: a free slot costs a few scripts,
// and not one for each key.
func TestKeysWaitForTheDestinationInOneLine(t *testing.T) {
	t.Parallel()
	const keys = 100
	s := redistest.Start(t)
	b := start(t, s.Client(t), Options{Destination: "api", FleetConcurrency: 2, RefreshInterval: time.Hour})
	permits := []Permit{soon(t, b), soon(t, b)}
	var calls sync.WaitGroup
	for i := range keys {
		calls.Go(func() {
			p, err := b.Key(fmt.Sprint("k", i)).Wait(patient(t), 0)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := p.Report(patient(t), Success()); err != nil {
				t.Error(err)
			}
		})
	}
	redistest.Eventually(t, "all in line", func() bool {
		b.waiting.mu.Lock()
		defer b.waiting.mu.Unlock()
		return len(b.waiting.of[""]) == keys
	})
	s.ResetStats(t)
	for _, p := range permits {
		if err := p.Release(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
	calls.Wait()
	if n := s.CommandStats(t)["evalsha"]; n > 5*keys {
		t.Errorf("%d scripts for %d calls", n, keys)
	}
}

// Callers that wait for their key and callers that wait for the destination do not wait for each other.
func TestLinesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := start(t, s.Client(t), Options{Destination: "api", FleetConcurrency: 2, KeyConcurrency: 1, RefreshInterval: time.Hour})
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() {
			p, err := b.Key(fmt.Sprint("k", i%4)).Wait(patient(t), 0)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := p.Report(patient(t), Success()); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}
