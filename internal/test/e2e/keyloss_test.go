package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
	f := newFleet(t, redistest.Start(t), fakeapi.Options{})
	f.start()
	f.start()
	f.trip(0) // until it is reset
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
}
