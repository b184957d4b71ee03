package breaker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A pool without a free connection is a Redis that cannot be asked: with a Rate no call is made, whatever FailClosed
// says, neither the one that waited nor those behind it.
func TestRateWithAnExhaustedPool(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{
		Addr: s.Addr(), PoolSize: 1, PoolTimeout: time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	rate := Rates{{Calls: 1, Per: time.Hour}}
	o := Options{Destination: "open", Rate: rate, RefreshInterval: time.Hour}
	open := start(t, rdb, o)
	o.Destination, o.FailClosed = "closed", true
	closed := start(t, rdb, o)
	redistest.Eventually(t, "the first reads", func() bool { return open.View().Known && closed.View().Known })

	taken := rdb.Conn() // the only one
	if err := taken.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := open.Allow(ctx); !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
				t.Errorf("without Redis: %v", err)
			}
		})
		calls.Go(func() {
			if _, err := open.Allow(t.Context()); !errors.Is(err, ErrUnavailable) {
				t.Errorf("without Redis, without a deadline: %v", err)
			}
		})
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := closed.Allow(ctx); !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
				t.Errorf("fails closed: %v", err)
			}
		})
	}
	calls.Go(func() { // whose time is over makes no call
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := open.Allow(ctx); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in too little time: %v", err)
		}
	})
	calls.Wait()

	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the rate with a connection again", func() bool {
		_, err := open.Allow(t.Context())
		return errors.Is(err, ErrOpen)
	})
}
