package breaker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// destination is the state of the destination's breaker.
func destination(h *harness) string {
	look(h)
	return describe(h.b.Status())
}

// An API that takes 6 calls a minute, of all keys together: three keys in a row are refused. A key that was not refused
// last makes the tests.
func TestLimitOfAllKeysIsTheDestinations(t *testing.T) {
	t.Parallel()
	refuse, accept := RateLimited(0), Success()
	runKeys(t,
		row{0, both(of("a", calls(4, accept)), of("b", calls(2, accept))), "CLOSED"},
		row{0, both(ask("early"), of("early", ask("late"))), "permit"},
		row{0, of("a", call(refuse)), "CLOSED failures=1"},
		row{0, of("b", call(refuse)), "CLOSED failures=1"},
		row{0, both(of("early", tell("late", accept)), destination), "CLOSED"}, // it began before them
		row{0, both(of("c", call(refuse)), destination), "OPEN 1.052s failures=3 threshold wasted=3"},
		row{0, of("c", get), "CLOSED failures=1"},
		row{1052 * time.Millisecond, of("c", ask("c")), "CLOSED for 250ms"},
		row{1052 * time.Millisecond, both(of("e", call(refuse)), destination), "OPEN 1.002s failures=3 probe probes=1 wasted=4"},
		row{60 * time.Second, both(of("f", call(accept)), destination), "CLOSED"},
		row{60 * time.Second, of("a", call(accept)), "CLOSED"},
	)
}

// Where all keys were refused last, one of them makes the test soon.
func TestRefusedKeyTestsIfThereIsNoOther(t *testing.T) {
	t.Parallel()
	refuse := RateLimited(0)
	runKeys(t,
		row{0, both(of("a", call(refuse)), both(of("b", call(refuse)), both(of("c", call(refuse)), destination))), "OPEN 1.052s failures=3 threshold wasted=3"},
		row{2 * time.Second, of("a", ask("a")), "CLOSED for 250ms"},
		row{2250 * time.Millisecond, of("a", ask("a")), "probe"},
	)
}

// Keys with limits of their own: a call that is accepted shows that the destination has none. Each time that it was
// taken for everyone's it takes one key more.
func TestLimitsOfKeysAreNotTheDestinations(t *testing.T) {
	t.Parallel()
	refuse, accept := RateLimited(0).WithJob("job"), Success()
	refused := func(keys ...string) action {
		do := destination
		for _, key := range keys {
			do = both(of(key, call(refuse)), do)
		}
		return do
	}
	runKeys(t,
		row{0, refused("a", "b"), "CLOSED"},
		row{0, of("d", call(accept)), "CLOSED"}, // between them: they are not in a row
		row{0, refused("c"), "CLOSED"},
		row{0, of("d", call(accept)), "CLOSED"},
		row{0, refused("e", "f", "g"), "OPEN 1.052s failures=3 threshold wasted=3"},
		row{2 * time.Second, both(of("d", call(accept)), destination), "CLOSED"},
		row{4 * time.Second, refused("h", "i", "j"), "CLOSED"},
		row{4 * time.Second, of("d", call(accept)), "CLOSED"},
		// Refused again while others are accepted: it was their own.
		row{5 * time.Second, both(refused("e", "f", "g"), of("e", get)), "CLOSED failures=2"},
	)
}

// An API that says whose limit it is, is believed; until when, does not say whose.
func TestLimitOfAllKeysWhereTheAPISays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		refuse Outcome
		want   string
	}{
		"scope": {RateLimited(0).WithScope(ScopeUser), "CLOSED"},
		"hint":  {RateLimited(30 * time.Second), "OPEN 30s failures=3 hint wasted=3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runKeys(t,
				row{0, both(of("a", call(tt.refuse)), both(of("b", call(tt.refuse)), both(of("c", call(tt.refuse)), destination))), tt.want},
			)
		})
	}
}

// runKeys runs the rows on both kinds of Redis, with default settings.
func runKeys(t *testing.T, rows ...row) {
	t.Helper()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) { newDefaultHarness(t, rdb, Options{}).run(rows) })
}

// Some keys that are used up or banned hold the others for a second, once.
func TestLimitsOfKeysHoldOthersSeldom(t *testing.T) {
	t.Parallel()
	for _, p := range []struct{ heavy, quota, light int }{{2, 6, 10}, {10, 6, 10}, {4, 0, 10}, {6, 0, 40}} {
		t.Run(fmt.Sprintf("%d of %d a minute, %d others", p.heavy, p.quota, p.light), func(t *testing.T) {
			t.Parallel()
			h := newDefaultHarness(t, redistest.Shared(t).Client(t), Options{MaxInFlight: 1})
			rng := rand.New(rand.NewPCG(1, 2))
			var used []int // of the heavy keys, in this minute
			refused, light, held := 0, 0, 0
			for s := range 10 * 60 {
				if s%60 == 0 {
					used = make([]int, p.heavy)
				}
				for _, k := range rng.Perm(p.heavy + p.light) {
					if k >= p.heavy && rng.Float64() > .02 {
						continue
					}
					light += map[bool]int{true: 1}[k >= p.heavy]
					permit, err := h.b.Key(fmt.Sprint("key-", k)).Allow(patient(t))
					if err != nil {
						if k >= p.heavy {
							held++
						}
						continue
					}
					o := Success()
					if k < p.heavy {
						if used[k]++; used[k] > p.quota {
							o = RateLimited(0)
							refused++
						}
					}
					if _, err := permit.Report(patient(t), o); err != nil {
						t.Fatal(err)
					}
				}
				h.clock.advance(time.Second, time.Second)
			}
			if refused < 3*p.heavy {
				t.Errorf("%d calls were refused", refused)
			}
			if held > light/20 {
				t.Errorf("%d of %d calls of others were held", held, light)
			}
		})
	}
}
