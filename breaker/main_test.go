package breaker

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		log.SetFlags(0)
		if err := runRole(role); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(redistest.Main(m))
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
	redistest.Eventually(t, fmt.Sprintf("%d subscriptions to %s", n, channel), func() bool {
		got, err := rdb.PubSubNumSub(context.Background(), channel).Result()
		return err == nil && got[channel] >= n
	})
}

func placeOf(destination, key string) place { return DefaultNamespace.placeOf(destination, key) }
