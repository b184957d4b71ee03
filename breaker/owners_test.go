package breaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// The calls that are left of a limit show whose it is: what is left of everyone's falls with the calls of other keys.
func TestRemainingShowsWhoseLimitItIs(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"shared": true, "of each key": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				h := newDefaultHarness(t, rdb, Options{MaxInFlight: 4})
				const keys, window = 20, time.Minute
				limit := map[bool]int{true: 100, false: 20}[shared]
				used := map[int]int{}
				accepted, refused := 0, 0
				for i := range 1000 {
					key := i % keys
					if i%3 == 0 {
						key = 0 // a busy one
					}
					permit, err := h.b.Key(fmt.Sprint("key-", key)).Allow(patient(t))
					if err != nil {
						continue
					}
					of := key
					if shared {
						of = 0
					}
					left := Budget{Limit: limit, Remaining: limit - used[of] - 1, Reset: window}
					o := Success()
					if left.Remaining < 0 {
						refused++
						left.Remaining, o = 0, RateLimited(window)
					} else {
						accepted++
						used[of]++
					}
					if _, err := permit.Report(patient(t), o.WithBudget(left)); err != nil {
						t.Fatal(err)
					}
				}
				want := limit
				if !shared {
					want = keys * limit
				}
				if refused > 1 || accepted < want-1 {
					t.Errorf("%d accepted, %d refused; want %d, at most 1", accepted, refused, want)
				}
				if s := h.b.Status(); (s.State == Open) != shared {
					t.Errorf("the destination is %s", describe(s))
				}
			})
		})
	}
}
