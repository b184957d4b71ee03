package breaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// tickOnce does what the link of b does every few seconds: its interval is an hour.
func tickOnce(t *testing.T, b *Breaker) {
	t.Helper()
	b.link.alive.at = time.Time{}
	b.link.reportAlive(t.Context())
	_, due := b.link.tick()
	b.link.register(t.Context(), due)
}

// Registrations of a process with many Breakers are valid for up to an hour. If it dies, the
// others find out in half a minute, and its calls are no capacity any more; if it was only away,
// it registers again.
func TestDeadProcessIsNoCapacity(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		const destinations = 3
		links := 0
		process := func(calls int) (all []*Breaker) {
			links++ // Breakers with another interval have another link
			for i := range destinations {
				all = append(all, start(t, rdb, Options{Destination: fmt.Sprint("api-", i), MaxInFlight: calls, RefreshInterval: time.Duration(links) * time.Hour}))
			}
			tickOnce(t, all[0])
			return all
		}
		capacities := func(when string, want string) {
			t.Helper()
			for i := range destinations {
				if got := rdb.HGet(t.Context(), placeOf(fmt.Sprint("api-", i), "").keys[1], ":capacity").Val(); got != want {
					t.Errorf("%s: the capacity of destination %d is %s, want %s", when, i, got, want)
				}
			}
		}
		lapse := func(b *Breaker) {
			t.Helper()
			if err := rdb.ZAdd(t.Context(), DefaultNamespace.aliveKey(), redis.Z{Score: float64(time.Now().Add(-time.Second).UnixMilli()), Member: b.link.id}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		mine, theirs := process(3), process(7)
		tickOnce(t, mine[0])
		capacities("both alive", "10")
		lapse(theirs[0])
		tickOnce(t, mine[0])
		capacities("one dead", "3")
		tickOnce(t, theirs[0]) // the others may be about to unregister it
		tickOnce(t, theirs[0])
		capacities("it was only away", "10")
		// After an outage of all, none unregisters another.
		lapse(mine[0])
		lapse(theirs[0])
		tickOnce(t, mine[0])
		tickOnce(t, theirs[0])
		for range 2 {
			tickOnce(t, mine[0])
			tickOnce(t, theirs[0])
			capacities("after an outage of all", "10")
		}
		for _, b := range theirs {
			_ = b.Close()
		}
		capacities("one closed", "3")
		if n, err := rdb.ZCard(t.Context(), DefaultNamespace.aliveKey()).Result(); n != 1 || err != nil {
			t.Errorf("%d processes are known, %v; want that of the open Breakers", n, err)
		}
	})
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

// Where Redis fails when a process follows up on a report, that is repeated: neither does a dead
// process stay capacity, nor does this one stay out.
func TestFailedFollowUpIsRepeated(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	allow := func(rules ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "worker"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	allow("on", ">secret", "~*", "&*", "+@all")
	o := *admin.(*redis.Client).Options()
	o.Username, o.Password = "worker", "secret"
	rdb := redis.NewClient(&o)
	t.Cleanup(func() { _ = rdb.Close() })
	mine := start(t, rdb, Options{Destination: "api", MaxInFlight: 3, RefreshInterval: time.Hour})
	theirs := start(t, admin, Options{Destination: "api", MaxInFlight: 7, RefreshInterval: time.Hour})
	lapse := func(b *Breaker) {
		t.Helper()
		if err := admin.ZAdd(t.Context(), DefaultNamespace.aliveKey(), redis.Z{Score: float64(time.Now().Add(-time.Second).UnixMilli()), Member: b.link.id}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	registered := func(when string, b *Breaker, want bool) {
		t.Helper()
		if got, err := admin.HExists(t.Context(), b.place.instances(), b.id).Result(); got != want || err != nil {
			t.Errorf("%s: registered %v, %v; want %v", when, got, err, want)
		}
	}
	tickOnce(t, mine)
	tickOnce(t, theirs)
	tickOnce(t, mine)
	registered("both alive", theirs, true)

	lapse(theirs)
	allow("-hdel")
	tickOnce(t, mine)
	registered("dead, Redis fails", theirs, true)
	allow("+hdel")
	tickOnce(t, mine)
	registered("dead", theirs, false)

	lapse(mine)
	tickOnce(t, mine)
	if err := admin.HDel(t.Context(), mine.place.instances(), mine.id).Err(); err != nil {
		t.Fatal(err)
	}
	allow("-hexists")
	tickOnce(t, mine)
	registered("away, Redis fails", mine, false)
	allow("+hexists")
	tickOnce(t, mine)
	registered("away", mine, true)
}

// However many processes die at once, all are unregistered.
func TestManyDeadProcesses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	b := start(t, rdb, Options{Destination: "api", MaxInFlight: 3, RefreshInterval: time.Hour})
	tickOnce(t, b)
	const dead = 250
	_, err := rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range dead {
			id := fmt.Sprint("dead-", i)
			pipe.ZAdd(t.Context(), DefaultNamespace.aliveKey(), redis.Z{Score: float64(time.Now().Add(-time.Minute).UnixMilli()), Member: id})
			pipe.HSet(t.Context(), b.place.instances(), id, fmt.Sprint("1 ", time.Now().Add(time.Hour).UnixMilli()))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		tickOnce(t, b)
	}
	if n, err := rdb.HLen(t.Context(), b.place.instances()).Result(); n != 1 || err != nil {
		t.Errorf("%d instances are registered, %v; want 1", n, err)
	}
}
