package breaker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// idleAfter is IDLE_AFTER of the scripts.
const idleAfter = time.Hour

// known are the names that Redis remembers, and those that the instance does.
func known(h *harness) string {
	names, err := h.rdb.ZRange(h.t.Context(), placeOf(h.place.name, "").keys[4], 0, -1).Result()
	if err != nil {
		h.t.Fatal(err)
	}
	listed, err := h.rdb.HKeys(h.t.Context(), placeOf(h.place.name, "").keys[1]).Result()
	if err != nil {
		h.t.Fatal(err)
	}
	plain := 0
	for _, name := range listed {
		if strings.HasPrefix(name, ":") {
			plain++
		}
	}
	return fmt.Sprintf("%d changed, %d listed, %d here", len(names), len(listed)-plain, h.b.keys.n.Load())
}

// whole has the instance read all that Redis has, as it does once a minute.
func whole(h *harness) string {
	h.b.whole.Store(true)
	return look(h)
}

func TestIdleKeysAreForgotten(t *testing.T) {
	t.Parallel()
	runRows(t, Options{NoLearning: true, FailureThreshold: 2, Cooldown: minute},
		row{0, of("failed", call(RateLimited(0))), "CLOSED failures=1"},
		row{0, of("opened", call(RateLimited(10*minute))), "OPEN 10m0s failures=1 hint wasted=1"},
		row{0, of("probed", call(RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
		row{0, of("tripped", trip(0)), "OPEN until reset manual"},
		row{0, of("forced", force(0)), "CLOSED forced closed"},
		row{0, of("forced-for-a-time", force(30*minute)), "CLOSED forced closed"},
		row{0, known, "6 changed, 6 listed, 6 here"},
		row{minute, of("probed", call(Failure())), "HALF_OPEN failures=1 hint wasted=1"},
		row{idleAfter - time.Millisecond, both(live, known), "6 changed, 6 listed, 6 here"},
		row{idleAfter, both(live, known), "5 changed, 5 listed, 6 here"},
		row{idleAfter, both(look, known), "5 changed, 5 listed, 6 here"},
		row{idleAfter, both(whole, known), "5 changed, 5 listed, 5 here"},
		row{idleAfter, of("failed", get), "CLOSED failures=1"}, // its hash ends by itself, on Redis's own clock
		row{idleAfter + minute + second, both(live, both(whole, known)), "4 changed, 4 listed, 4 here"},
		row{idleAfter + 10*minute, both(live, both(whole, known)), "3 changed, 3 listed, 3 here"},
		row{idleAfter + 30*minute, both(live, both(whole, known)), "2 changed, 2 listed, 2 here"},
		row{1000 * time.Hour, both(live, both(whole, known)), "2 changed, 2 listed, 2 here"},
		row{1000 * time.Hour, of("tripped", get), "OPEN until reset manual"},
		row{1000 * time.Hour, of("forced", get), "CLOSED forced closed"},
		row{1000 * time.Hour, of("tripped", look), "OPEN until reset manual"},
	)
}

func TestHashesOfIdleKeysEndByThemselves(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{NoLearning: true, FailureThreshold: 2, Cooldown: minute})
		ttl := func(key string) time.Duration {
			t.Helper()
			left, err := rdb.PTTL(t.Context(), placeOf(h.place.name, key).keys[14]).Result()
			if err != nil {
				t.Fatal(err)
			}
			return left
		}
		near := func(what string, got, want time.Duration) {
			t.Helper()
			if got > want || got < want-minute {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		of("k", call(RateLimited(0)))(h)
		near("CLOSED", ttl("k"), idleAfter)
		of("k", call(RateLimited(10*minute)))(h)
		near("OPEN", ttl("k"), idleAfter+10*minute)
		of("k", trip(0))(h)
		if got := ttl("k"); got != -1 {
			t.Errorf("tripped until reset: %v", got)
		}
		of("k", trip(minute))(h)
		near("tripped for a minute", ttl("k"), idleAfter+minute)
		of("k", force(0))(h)
		if got := ttl("k"); got != -1 {
			t.Errorf("forced until reset: %v", got)
		}
		of("k", reset)(h)
		near("reset", ttl("k"), idleAfter)
		if got, err := rdb.PTTL(t.Context(), h.place.keys[0]).Result(); got != -2 || err != nil {
			t.Errorf("the destination's: %v, %v", got, err) // it has none yet
		}
		trip(minute)(h)
		if got, err := rdb.PTTL(t.Context(), h.place.keys[0]).Result(); got != -1 || err != nil {
			t.Errorf("the destination's: %v, %v", got, err)
		}
	})
}

// Forgotten keys that were not CLOSED end their incident for whoever listens.
func TestForgottenOpenKeyEndsItsIncident(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{FailureThreshold: 1})
		of("k", call(refusedToken.WithReason("invalid_grant", true)))(h)
		incident := h.b.Key("k").Status().Incident
		h.clock.advance(idleAfter+5*minute, idleAfter+5*minute)
		live(h)
		whole(h)
		h.b.events.mu.Lock()
		defer h.b.events.mu.Unlock()
		queue := h.b.events.queue
		if len(queue) == 0 || queue[len(queue)-1].Cause != CauseLost || queue[len(queue)-1].Incident != incident || queue[len(queue)-1].Key != "k" || !queue[len(queue)-1].Permanent {
			t.Errorf("incident %s, events %+v", incident, queue)
		}
	})
}

// Ten thousand keys, each with an incident behind it or under way: memory is bounded
// in Redis and in the instance, and an instance's reads are one a time.
func TestManyKeysCostBoundedMemoryAndOneReadATime(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const keys = 3_000
	s := redistest.Start(t)
	rdb := s.Client(t)
	const d = "many"
	empty := usedMemory(t, rdb)
	acting := start(t, s.Client(t), Options{Destination: d, RefreshInterval: time.Hour, FailureThreshold: 1})
	var asked []redis.Cmder
	for from := 0; from < keys; from += 500 { // as so many calls would, in fewer round trips
		pipe := rdb.Pipeline()
		for i := from; i < from+500; i++ {
			p := placeOf(d, fmt.Sprintf("user-%05d", i))
			own := swapOf(t, nil, policy.Event{Kind: policy.Limited, Permit: token(uint64(i)), Hint: 3_600_000, Threshold: 1}, acting.caller().options(true, false))
			args := p.args(acting.caller(), own)
			if from == 0 && i == 0 {
				if err := swapScript.Run(t.Context(), rdb, p.keys, args...).Err(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			asked = append(asked, pipe.EvalSha(t.Context(), swapScript.Hash(), p.keys, args...))
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(asked) != keys-1 {
		t.Fatalf("%d reports", len(asked))
	}
	b := start(t, s.Client(t), Options{Destination: d, RefreshInterval: 50 * time.Millisecond})
	if n := b.keys.n.Load(); n != keys {
		t.Fatalf("%d keys are known after New, want %d", n, keys)
	}
	perKey := (usedMemory(t, rdb) - empty) / keys
	count := redisKeys(t, rdb)
	t.Logf("%d bytes and %.2f Redis keys for each key that is OPEN", perKey, float64(count)/keys)
	if perKey > 4096 {
		t.Errorf("%d bytes for each key, want at most 4096", perKey)
	}
	if count > 2*keys+20 { // hash and history
		t.Errorf("%d Redis keys for %d keys", count, keys)
	}
	// Whoever waits reads once a time, however many keys there are.
	s.ResetStats(t)
	redistest.Eventually(t, "20 reads", func() bool { return readsOf(s.CommandStats(t)) >= 20 })
	stats := s.CommandStats(t)
	var total int64
	for _, n := range stats {
		total += n
	}
	if limit := readsOf(stats)*4 + 40; total > limit { // every tenth read looks at one key's hash
		t.Errorf("%d commands for %d reads: %v", total, readsOf(stats), stats)
	}

	// All is lost: nothing is kept.
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "forgetting", func() bool { return b.keys.n.Load() == 0 })
}

func usedMemory(t *testing.T, rdb redis.UniversalClient) int64 {
	t.Helper()
	info, err := rdb.Info(context.Background(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	var used int64
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "used_memory:"); ok {
			if _, err := fmt.Sscan(value, &used); err != nil {
				t.Fatal(err)
			}
		}
	}
	return used
}

func redisKeys(t *testing.T, rdb redis.UniversalClient) int64 {
	t.Helper()
	n, err := rdb.DBSize(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
