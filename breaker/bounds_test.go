package breaker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
		b.redis.mu.Lock()
		b.redis.steady = 1 // it has followed Redis's clock for long
		b.redis.mu.Unlock()
		if _, err := b.Allow(ctx); err != nil {
			t.Fatal(err)
		}
		if left := rdb.ZCard(ctx, calls).Val(); left > n-98 || left < n-400 {
			t.Errorf("%d are left after one call, want about %d", left, n-99)
		}
	})
}

// A list of changes that was lost is repaired in parts, and each instance reads the breakers that it had missed.
func TestLostListOfChangesIsRepairedInParts(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Database(t).Client(t)
	o := Options{Destination: redistest.Name(t, "d"), RefreshInterval: 10 * time.Millisecond}
	const n = 3000
	others := make([]any, 0, 2*n)
	for i := range n {
		name := fmt.Sprintf("%s/key%d", o.Destination, i)
		others = append(others, name, fmt.Sprintf(`{"name":%q,"state":"OPEN","cause":"manual","revision":%d}`, name, i+1))
	}
	b, err := newTestBreaker(rdb, o, realClock)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	notClosed, changes := b.place.keys[1], b.place.keys[4]
	if err := rdb.HSet(ctx, notClosed, others...).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := DefaultNamespace.Trip(ctx, rdb, o.Destination+"/first", TripOptions{}); err != nil { // a change since the loss
		t.Fatal(err)
	}
	listed, more := int64(1), true
	for parts := 1; more; parts++ {
		if err := b.register(ctx, time.Minute); err != nil {
			t.Fatal(err)
		}
		now := rdb.ZCard(ctx, changes).Val() // a part may find no further breaker where few are left
		if now > listed+1200 || parts > 10 {
			t.Fatalf("part %d made %d breakers of %d", parts, now, listed)
		}
		listed, more = now, b.relisting.Load()
		if err := b.readSnapshot(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if listed != n+1 {
		t.Errorf("the repair ended at %d breakers of %d", listed, n+1)
	}
	for i := range n {
		if s := b.Key(fmt.Sprint("key", i)).Status(); s.State != Open {
			t.Fatalf("key%d is %s", i, s.State)
		}
	}
	if fields, err := rdb.HGet(ctx, notClosed, ":relisting").Result(); err == nil {
		t.Errorf("the repair is at %s", fields)
	}
}
