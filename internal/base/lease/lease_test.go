package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// One holder at a time, by its name; the same in a Redis that is full.
func TestLease(t *testing.T) {
	t.Parallel()
	const long = 24 * time.Hour
	for _, row := range []struct{ name, maxmemory string }{{"with room", "0"}, {"full", "1"}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			rdb := redistest.Start(t).Client(t)
			if err := rdb.ConfigSet(ctx, "maxmemory", row.maxmemory).Err(); err != nil {
				t.Fatal(err)
			}
			if err := rdb.Set(ctx, "probe", "x", 0).Err(); (err != nil) != (row.name == "full") {
				t.Fatalf("a write: %v", err)
			}
			const key = "tidegate:lease"
			acquire := func(holder string, ttl time.Duration) func() (bool, error) {
				return func() (bool, error) { return Acquire(ctx, rdb, key, holder, ttl) }
			}
			extend := func(holder string, ttl time.Duration) func() (bool, error) {
				return func() (bool, error) { return Extend(ctx, rdb, key, holder, ttl) }
			}
			release := func(holder string) func() (bool, error) {
				return func() (bool, error) { return true, Release(ctx, rdb, key, holder) }
			}
			for i, step := range []struct {
				do     func() (bool, error)
				want   bool
				holder string // after it
				left   time.Duration
			}{
				{extend("a", long), false, "", 0}, // it was never a's
				{acquire("a", time.Hour), true, "a", time.Hour},
				{acquire("b", long), false, "a", time.Hour},
				{extend("b", long), false, "a", time.Hour},
				{release("b"), true, "a", time.Hour},
				{acquire("a", 4*time.Hour), true, "a", 4 * time.Hour},
				{extend("a", long), true, "a", long},
				{release("a"), true, "", 0},
				{release("a"), true, "", 0},
				{acquire("b", long), true, "b", long},
				{extend("a", long), false, "b", long}, // it was, and is another's now
				{acquire("b", 0), true, "", 0},        // a millisecond
				{func() (bool, error) { return Once(ctx, rdb, key, long) }, true, "?", long},
				{func() (bool, error) { return Once(ctx, rdb, key, long) }, false, "?", long},
			} {
				if got, err := step.do(); err != nil || got != step.want {
					t.Errorf("step %d: %v, %v, want %v", i, got, err, step.want)
				}
				if step.holder == "" {
					for rdb.Exists(ctx, key).Val() != 0 && t.Context().Err() == nil { // a millisecond
					}
					continue
				}
				if got, _, _ := strings.Cut(rdb.Get(ctx, key).Val(), "\n"); got != step.holder && step.holder != "?" {
					t.Errorf("step %d: %q holds it, want %q", i, got, step.holder)
				}
				if left := rdb.PTTL(ctx, key).Val(); left > step.left || left < step.left/2 {
					t.Errorf("step %d: it ends in %v, want %v", i, left, step.left)
				}
			}
		})
	}
}

// When Redis's clock goes back, a lease ends its length after that at the latest.
func TestLeaseWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	clock, option := redistest.WithClock(t)
	rdb := redistest.Start(t, option).Client(t)
	acquire := func(holder string, ttl time.Duration) bool {
		t.Helper()
		held, err := Acquire(t.Context(), rdb, "lease", holder, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	acquire("a", time.Hour)
	clock.Step(-10 * time.Hour)
	if acquire("b", time.Hour) {
		t.Error("b has the lease of a")
	}
	if left := rdb.PTTL(t.Context(), "lease").Val(); left > time.Hour || left < time.Hour/2 {
		t.Errorf("it ends in %s, want an hour", left)
	}
	clock.Step(2 * time.Hour)
	if !acquire("b", time.Second) {
		t.Error("a has it after its end")
	}
}

// A lease that has ended is anybody's.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	key := redistest.Name(t, "lease")
	if held, err := Acquire(t.Context(), rdb, key, "a", 20*time.Millisecond); err != nil || !held {
		t.Fatalf("%v, %v", held, err)
	}
	for {
		held, err := Acquire(t.Context(), rdb, key, "b", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if held {
			return
		}
	}
}
