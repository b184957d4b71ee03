package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// published is how soon everything must be published after keys were lost.
const published = 30 * time.Second

// breakerKeys lists what the breakers of the destination have in Redis.
func (f *fleet) breakerKeys() []string {
	f.t.Helper()
	keys, err := f.rdb.Keys(context.Background(), "tidegate:{"+f.dest+"}:*").Result()
	if err != nil {
		f.t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

func (f *fleet) del(keys ...string) {
	f.t.Helper()
	if err := f.rdb.Del(context.Background(), keys...).Err(); err != nil {
		f.t.Fatal(err)
	}
}

// A key that is deleted while the breaker is OPEN for a while, by whatever mistake,
// wedges nothing: the jobs are published when that while is over, or sooner.
func TestLostKeyWhileOpen(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{Latency: 10 * time.Millisecond})
	f.env["DESTINATION_0_RATE"] = "2000/1s" // has a key, and is reached by nobody
	f.start()
	f.start()
	f.waitCompleted(f.enqueue(10), 10*time.Second)
	f.trip(100 * time.Millisecond)
	f.trip(100*time.Millisecond, "alice")
	var names []string
	for _, key := range f.breakerKeys() {
		names = append(names, strings.TrimPrefix(key, "tidegate:{"+f.dest+"}:"))
	}
	important := []string{"breaker", "breaker:alice", "notclosed", "breaker-changes", "breaker-instances"}
	for _, want := range important {
		if !slices.Contains(names, want) {
			t.Errorf("no key %q to lose among %q", want, names)
		}
	}
	if !long {
		names = important
	}
	for _, name := range append(names, "*") {
		f.trip(time.Second)
		f.trip(time.Second, "alice")
		ids := slices.Concat(f.enqueue(10), f.enqueue(5, jobs.Key("alice")), f.enqueue(5, jobs.Key("bob")))
		if name == "*" {
			f.del(f.breakerKeys()...)
		} else {
			f.del("tidegate:{" + f.dest + "}:" + name)
		}
		started := time.Now()
		f.waitCompleted(ids, published)
		if took := time.Since(started); took > 6*time.Second {
			t.Logf("without %s: published after %s", name, took)
		}
	}
}

// The hash of a breaker that is OPEN for a long time is lost: it is CLOSED then, and
// the workers find that out by themselves.
func TestLostBreakerIsClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		key  string
		lose func(*fleet)
	}{
		{"destination", "", func(f *fleet) { f.del("tidegate:{" + f.dest + "}:breaker") }},
		{"key", "alice", func(f *fleet) { f.del("tidegate:{" + f.dest + "}:breaker:alice") }},
		{"all", "alice", func(f *fleet) { f.del(f.breakerKeys()...) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, redistest.Shared(t), fakeapi.Options{})
			workers := map[string]*worker{"1": f.start(), "2": f.start()}
			if c.key == "" {
				f.tripAll(time.Hour, workers)
			} else {
				f.trip(time.Hour, c.key)
				for name, w := range workers {
					redistest.Await(t, 2*time.Minute, "worker "+name+" knows that the key is open", func() bool {
						return w.scrape().of("tidegate_circuit_breaker_open_keys", f.dest)[""] == 1
					})
				}
			}
			ids := f.enqueue(20, jobs.Key("alice"))
			if c.key != "" {
				f.waitCompleted(f.enqueue(5, jobs.Key("bob")), 5*time.Second)
			}
			if n := len(f.api.Receipts()); c.key == "" && n > 0 || n > 5 {
				t.Fatalf("%d calls while the breaker is OPEN", n)
			}
			c.lose(f)
			started := time.Now()
			f.waitCompleted(ids, published)
			t.Logf("published %s after the loss", time.Since(started).Round(10*time.Millisecond))
		})
	}
}

// Keys are lost at all moments of incidents, one after the other and all at once, with
// and without what the API tells: everything is published in the end.
func TestKeysAreLostAllTheTime(t *testing.T) {
	t.Parallel()
	n := 200
	if long {
		n = 2000
	}
	for name, hints := range map[string]fakeapi.Hint{"hints": fakeapi.RetryAfter | fakeapi.RateLimit, "no hints": fakeapi.NoHints} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, redistest.Shared(t), fakeapi.Options{
				Limiter: fakeapi.FixedWindow{Quota: 40, Window: time.Second}, Hints: hints, Latency: 30 * time.Millisecond,
			})
			f.env["CIRCUIT_BREAKER_COOLDOWN_MS"] = "300"
			f.env["CIRCUIT_BREAKER_PROBE_TIMEOUT_MS"] = "2000"
			ids := f.enqueue(n)
			for range 2 {
				f.start()
			}
			tick := time.NewTicker(37 * time.Millisecond)
			defer tick.Stop()
			lost := map[string]int{}
			for i := 0; f.api.Stats().Accepted < n*3/4; i++ {
				<-tick.C
				keys := f.breakerKeys()
				if len(keys) == 0 {
					continue
				}
				if i%10 != 9 {
					keys = keys[i%len(keys):][:1]
				}
				f.del(keys...)
				for _, key := range keys {
					lost[strings.TrimPrefix(key, "tidegate:{"+f.dest+"}:")]++
				}
			}
			f.waitCompleted(ids, published)
			f.exactlyOnce(ids)
			if lost["breaker"] == 0 || lost["notclosed"] == 0 {
				t.Errorf("not all were lost: %v", lost)
			}
			t.Logf("%d calls, %d refused; lost %v", f.api.Stats().Calls, f.api.Stats().Limited, lost)
		})
	}
}

// FLUSHALL takes the jobs, too; what comes after it is published by the workers that
// saw it happen.
func TestFlushAllWhileOpen(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{time.Hour, 0} { // 0: until it is reset
		t.Run(length.String(), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, redistest.Start(t), fakeapi.Options{})
			f.start()
			f.start()
			f.trip(length)
			f.enqueue(20)
			if err := f.rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			ids := f.enqueue(20)
			f.waitCompleted(ids, published)
			f.exactlyOnce(ids)
			if s := f.state(); s != breaker.Closed {
				t.Errorf("the breaker is %s", s)
			}
		})
	}
}
