package breaker

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// Not parallel: it counts goroutines. What a process costs while nothing happens does not
// grow with its Breakers, but for registrations.
func TestBreakersOfAProcessShareWhatTheyCost(t *testing.T) {
	const interval, reads = 200 * time.Millisecond, 15
	for _, breakers := range []int{1, 100} {
		t.Run(fmt.Sprint(breakers), func(t *testing.T) {
			s := redistest.Start(t)
			rdb, own := s.Client(t), s.Client(t)
			if err := own.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			before := runtime.NumGoroutine()
			var all []*Breaker
			for i := range breakers {
				b, err := New(t.Context(), rdb, Options{Destination: fmt.Sprintf("api-%d", i), RefreshInterval: interval})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, b)
			}
			defer func() {
				for _, b := range all {
					_ = b.Close()
				}
			}()
			awaitSubscribers(t, own, fmt.Sprintf("api-%d", breakers-1), 1)
			redistest.Eventually(t, "idle Breakers", func() bool {
				s.ResetStats(t)
				wait(t.Context(), 2*interval)
				return s.CommandStats(t)["evalsha"] == 0
			})
			s.ResetStats(t)
			began := time.Now()
			redistest.Eventually(t, "reads", func() bool { return readsOf(s.CommandStats(t)) >= reads })
			stats, took := s.CommandStats(t), time.Since(began)
			var total int64
			for _, n := range stats {
				total += n
			}
			clients, err := own.ClientList(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			subscriptions := 0
			for line := range strings.Lines(clients) {
				if !strings.Contains(line, " sub=0 ") {
					subscriptions++
				}
			}
			goroutines := runtime.NumGoroutine() - before
			t.Logf("%d Breakers: %d commands in %d reads, %.1f s: %v; %d subscriptions; %d goroutines more",
				breakers, total, reads, took.Seconds(), stats, subscriptions, goroutines)
			// A registration of each Breaker every 10 s or slower has some 12 commands.
			if limit := int64(reads*4 + 12*15); total > limit {
				t.Errorf("%d commands, want at most %d: %v", total, limit, stats)
			}
			if subscriptions != 1 {
				t.Errorf("%d connections with subscriptions, want 1", subscriptions)
			}
			if goroutines > 15 {
				t.Errorf("%d goroutines for %d Breakers", goroutines, breakers)
			}
		})
	}
}

// Each Breaker of a link hears of its own destination, also if others have left, and one
// that comes when the last has left begins anew.
func TestLinkEndsWithItsLastBreaker(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	open := func(destination string) *Breaker {
		b, err := New(t.Context(), rdb, Options{Destination: destination, RefreshInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		awaitSubscribers(t, rdb, destination, 1)
		return b
	}
	hears := func(b *Breaker) {
		t.Helper()
		if _, err := Trip(t.Context(), rdb, b.Name(), TripOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
	}
	a, b := open("a"), open("b")
	if a.link != b.link {
		t.Error("two Breakers of a client have two links")
	}
	hears(a)
	_ = a.Close()
	channel := placeOf("a", "").channel
	redistest.Eventually(t, "end of the subscription to a", func() bool {
		got, err := rdb.PubSubNumSub(t.Context(), channel).Result()
		return err == nil && got[channel] == 0
	})
	hears(b)
	old := b.link
	_ = b.Close()
	select {
	case <-old.ctx.Done():
	default:
		t.Error("the link outlives its last Breaker")
	}
	c := open("c")
	defer c.Close()
	if c.link == old {
		t.Error("a link that has ended is used again")
	}
	hears(c)
}
