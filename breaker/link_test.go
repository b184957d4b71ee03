package breaker

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
		if _, err := DefaultNamespace.Trip(t.Context(), rdb, b.Name(), TripOptions{}); err != nil {
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

// Each registration is valid until after the next one is due, however many Breakers there
// are; else the capacity of the fleet would be too small meanwhile.
func TestRegistrationsOverlap(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	var all []*Breaker
	for i := range 60 {
		b, err := New(t.Context(), rdb, Options{Destination: fmt.Sprintf("api-%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		all = append(all, b)
	}
	overlaps := func(when string) {
		t.Helper()
		for _, b := range all {
			_, until, _ := strings.Cut(rdb.HGet(t.Context(), b.place.keys[6], b.id).Val(), " ")
			ms, err := strconv.ParseInt(until, 10, 64)
			if due := time.Unix(0, b.registerAt.Load()); err != nil || !time.UnixMilli(ms).After(due) {
				t.Errorf("%s, %s: registered until %v, next at %v (%v)", when, b.Name(), time.UnixMilli(ms), due, err)
			}
		}
	}
	overlaps("at the start")
	for _, b := range all {
		if err := b.enroll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	overlaps("later")
}

// A Breaker that joins while the last one with its channel leaves is subscribed.
func TestJoinWhileTheChannelIsLeft(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	open := func(destination string) *Breaker {
		b, err := New(t.Context(), rdb, Options{Destination: destination, RefreshInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	other := open("other")
	defer other.Close()
	awaitSubscribers(t, rdb, "other", 1)
	b := open("api")
	for range 20 {
		awaitSubscribers(t, rdb, "api", 1)
		var leaving sync.WaitGroup
		leaving.Go(func() { _ = b.Close() })
		next := open("api")
		leaving.Wait()
		b = next
	}
	defer b.Close()
	b.link.unsubscribe(b.place.channel) // as by one that left before
	if _, err := DefaultNamespace.Trip(t.Context(), rdb, b.Name(), TripOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
}

// Where Redis refuses to read the stamps of several destinations by one command, as one
// node of a Cluster does, they are read one by one.
func TestStampsOneByOne(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-mget", "-subscribe").Err(); err != nil {
		t.Fatal(err)
	}
	o := *admin.(*redis.Client).Options()
	o.Username, o.Password = "reader", "secret"
	rdb := redis.NewClient(&o)
	defer rdb.Close()
	b, err := New(t.Context(), rdb, Options{Destination: "api", RefreshInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	awaitView(t, b, "known", func(v View) bool { return v.Known })
	if _, err := DefaultNamespace.Trip(t.Context(), admin, "api", TripOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
	if took := time.Since(began); took > 5*time.Second { // the next registration would find it
		t.Errorf("seen after %v, with a read every 20ms", took)
	}
}

// Instances that start or end change the capacity: the others read no snapshot for that.
func TestCapacityIsTakenFromTheStamp(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := start(t, deaf{s.Client(t)}, Options{Destination: "api", RefreshInterval: time.Hour})
	known := strings.Fields(*b.stamp.Load())
	s.ResetStats(t)
	b.stamped(t.Context(), known[0]+" 99 "+known[2], nil)
	if got := b.capacity.Load(); got != 99 {
		t.Errorf("capacity %d, want 99", got)
	}
	b.tasks.mu.Lock()
	if b.tasks.running || b.tasks.wanted != 0 {
		t.Error("the instance reads the snapshot")
	}
	b.tasks.mu.Unlock()
	b.stamped(t.Context(), "1 "+known[1]+" "+known[2], nil) // another version
	redistest.Eventually(t, "the instance reads the snapshot", func() bool { return s.CommandStats(t)["evalsha"] > 0 })
}

// A refused registration is not asked for again with each read.
func TestRefusedRegistrationBacksOff(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	o := *admin.(*redis.Client).Options()
	o.Username, o.Password = "worker", "secret"
	rdb := redis.NewClient(&o)
	defer rdb.Close()
	var all []*Breaker
	for i := range 10 {
		all = append(all, start(t, rdb, Options{Destination: fmt.Sprint("api-", i), RefreshInterval: 20 * time.Millisecond}))
	}
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "worker", "-hgetall").Err(); err != nil {
		t.Fatal(err)
	}
	s.ResetStats(t)
	for _, b := range all {
		b.registerAt.Store(0)
	}
	redistest.Eventually(t, "50 reads", func() bool { return readsOf(s.CommandStats(t)) >= 50 })
	if n := s.CommandStats(t)["evalsha"]; n < 10 || n > 100 {
		t.Errorf("%d scripts in 50 reads, want 10 registrations, and 10 for each second", n)
	}
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "worker", "+hgetall").Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "registrations", func() bool {
		for _, b := range all {
			if b.registerPause.Load() != 0 {
				return false
			}
		}
		return true
	})
}
