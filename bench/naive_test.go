package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// naiveBreaker is the shared breaker that one writes first: the keys <name>:state,
// <name>:failures and <name>:open_until, read and written one after the other. Nothing
// in it is atomic: that is the point.
type naiveBreaker struct {
	rdb       redis.UniversalClient
	threshold int64
	cooldown  time.Duration

	state, failures, openUntil string // keys
}

// The values of the key of the state.
const (
	closed   = "CLOSED"
	open     = "OPEN"
	halfOpen = "HALF_OPEN"
)

// newNaive returns a breaker that opens for the cooldown after threshold rate-limited
// responses in a row.
func newNaive(rdb redis.UniversalClient, name string, threshold int, cooldown time.Duration) *naiveBreaker {
	return &naiveBreaker{
		rdb: rdb, threshold: int64(threshold), cooldown: cooldown,
		state: name + ":state", failures: name + ":failures", openUntil: name + ":open_until",
	}
}

// Allow reports whether a call may be made and, if not, until when the breaker is
// open. Once that time has come every caller may try.
func (b *naiveBreaker) Allow(ctx context.Context) (ok bool, until time.Time, err error) {
	state, err := b.rdb.Get(ctx, b.state).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, time.Time{}, fmt.Errorf("naive: read state: %w", err)
	}
	if state != open {
		return true, time.Time{}, nil
	}
	ms, err := b.rdb.Get(ctx, b.openUntil).Int64()
	if err != nil {
		return false, time.Time{}, fmt.Errorf("naive: read open_until: %w", err)
	}
	if until = time.UnixMilli(ms); time.Now().Before(until) {
		return false, until, nil
	}
	return true, time.Time{}, b.set(ctx, b.state, halfOpen)
}

// Succeeded reports that a call was accepted.
func (b *naiveBreaker) Succeeded(ctx context.Context) error {
	if err := b.set(ctx, b.failures, 0); err != nil {
		return err
	}
	return b.set(ctx, b.state, closed)
}

// RateLimited reports that a call was refused. A hint above 0 is how long the API asked
// to wait: it opens the breaker at once for that long.
func (b *naiveBreaker) RateLimited(ctx context.Context, hint time.Duration) error {
	n, err := b.rdb.Incr(ctx, b.failures).Result()
	if err != nil {
		return fmt.Errorf("naive: count failure: %w", err)
	}
	wait := b.cooldown
	switch {
	case hint > 0:
		wait = hint
	case n < b.threshold:
		return nil
	}
	if err := b.set(ctx, b.openUntil, time.Now().Add(wait).UnixMilli()); err != nil {
		return err
	}
	return b.set(ctx, b.state, open)
}

func (b *naiveBreaker) set(ctx context.Context, key string, value any) error {
	if err := b.rdb.Set(ctx, key, value, 0).Err(); err != nil {
		return fmt.Errorf("naive: write %s: %w", key, err)
	}
	return nil
}

// TestNaiveBreaker holds the competitor to what its documentation says of it.
func TestNaiveBreaker(t *testing.T) {
	t.Parallel()
	const cooldown = 50 * time.Millisecond
	ctx := t.Context()
	b := newNaive(redistest.Shared(t).Client(t), redistest.Name(t, "naive"), 2, cooldown)
	limited := func(hint time.Duration) {
		t.Helper()
		if err := b.RateLimited(ctx, hint); err != nil {
			t.Fatal(err)
		}
	}
	allowed := func(want bool) time.Time {
		t.Helper()
		ok, until, err := b.Allow(ctx)
		if err != nil || ok != want {
			t.Fatalf("Allow = %t, %v; want %t", ok, err, want)
		}
		return until
	}
	allowed(true)
	limited(0)
	allowed(true)
	limited(0)
	until := allowed(false)
	<-time.After(time.Until(until))
	allowed(true) // HALF_OPEN: everybody may
	allowed(true)
	limited(0) // the count is still there: open again at once
	allowed(false)
	if err := b.Succeeded(ctx); err != nil { // also one that had begun before
		t.Fatal(err)
	}
	allowed(true)
	limited(time.Minute)
	if left := time.Until(allowed(false)); left < 50*time.Second {
		t.Errorf("open for %s, want the hint's minute", left)
	}
}
