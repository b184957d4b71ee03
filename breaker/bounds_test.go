package breaker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redistest"
)

// A report forgets a bounded number of old ones: after a minute of many calls with failures, the
// first report after a pause would hold up Redis for all of them.
func TestForgottenReportsAreBounded(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		b, err := New(ctx, rdb, Options{Destination: redistest.Name(t, "d")})
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, b)
		const n = 1000
		old := make([]redis.Z, n)
		for i := range old {
			old[i] = redis.Z{Score: float64(time.Now().Add(-time.Hour).UnixMilli()), Member: fmt.Sprint("old", i)}
		}
		reports := b.place.keys[3] // KEYS[4]
		if err := rdb.ZAdd(ctx, reports, old...).Err(); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			p, err := b.Allow(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Report(ctx, RateLimited(0)); err != nil {
				t.Fatal(err)
			}
			if left, want := rdb.ZCard(ctx, reports).Val(), int64(n-99*(i+1)); left != want {
				t.Errorf("after %d reports %d are left, want %d", i+1, left, want)
			}
		}
	})
}

// A call forgets a hundred calls whose leases have ended, and counts none of them.
func TestForgottenCallsAreBounded(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		b, err := New(ctx, rdb, Options{Destination: redistest.Name(t, "d"), FleetConcurrency: 1})
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, b)
		const n = 1000
		old := make([]redis.Z, n)
		for i := range old {
			old[i] = redis.Z{Score: float64(time.Now().Add(-time.Hour).UnixMilli()), Member: fmt.Sprint("old", i)}
		}
		calls := b.place.keys[slices.IndexFunc(b.place.keys, func(k string) bool { return strings.HasSuffix(k, "-inflight") })]
		if err := rdb.ZAdd(ctx, calls, old...).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Allow(ctx); err != nil {
			t.Fatal(err)
		}
		if left := rdb.ZCard(ctx, calls).Val(); left > n-98 || left < n-400 {
			t.Errorf("%d are left after one call, want about %d", left, n-99)
		}
	})
}
