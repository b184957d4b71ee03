package breaker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

func TestWaitGrantsInOrderOfArrival(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	b := start(t, rdb, Options{Destination: "api"})
	if _, err := Trip(t.Context(), rdb, "api", TripOptions{}); err != nil {
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
	if _, err := Reset(t.Context(), rdb, "api", "ann"); err != nil {
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
	if _, err := Trip(t.Context(), rdb, "api", TripOptions{For: time.Hour}); err != nil {
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
