package breaker

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // it reports every refused connection
	if role := os.Getenv(roleVariable); role != "" {
		log.SetFlags(0)
		if err := runRole(role); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(redistest.MainWithoutLeaks(m))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// bothRedises runs a test of the rules on a real Redis and on the embedded one.
func bothRedises(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Shared(t).Client(t))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, embedded(t))
	})
}

func embedded(t testing.TB) redis.UniversalClient {
	t.Helper()
	return clientOf(t, miniredis.RunT(t).Addr())
}

func clientOf(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// start makes a Breaker that is closed when the test ends.
func start(t testing.TB, rdb redis.UniversalClient, o Options) *Breaker {
	t.Helper()
	b, err := New(t.Context(), rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	return b
}

func closeAtEnd(t testing.TB, b *Breaker) {
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// eventually waits until cond holds, at most for ten seconds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("not within 10s: %s", what)
		case <-tick.C:
		}
	}
}

// awaitView waits until the view of b satisfies cond, woken by its changes.
func awaitView(t testing.TB, b *Breaker, what string, cond func(View) bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for {
		changed := b.Changed()
		if cond(b.View()) {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("not within 10s: %s; the view is %+v", what, b.View())
		}
	}
}

// awaitSubscribers waits until n subscriptions to the breaker's events exist.
func awaitSubscribers(t testing.TB, rdb redis.UniversalClient, destination string, n int64) {
	t.Helper()
	channel := placeOf(destination, "").channel
	eventually(t, fmt.Sprintf("%d subscriptions to %s", n, channel), func() bool {
		got, err := rdb.PubSubNumSub(context.Background(), channel).Result()
		return err == nil && got[channel] >= n
	})
}

func placeOf(destination, key string) place { return DefaultNamespace.placeOf(destination, key) }
