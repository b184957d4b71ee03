package breaker

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// An opening that arrives while a permit is granted is later than the permit, whose report is stale.
func TestPermitsAreOlderThanAnOpeningDuringThem(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{})
		call(Success())(h) // there is data, and so an origin
		call(RateLimited(0))(h)
		look(h)
		origin, err := rdb.HGet(t.Context(), h.place.keys[1], ":origin").Result()
		if err != nil {
			t.Fatal(err)
		}
		first := h.b.latest.Load() + 2
		first -= first % 2
		var calls sync.WaitGroup
		var asked atomic.Int64
		done := make(chan struct{})
		for range 2 {
			calls.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					p, err := h.b.Allow(t.Context())
					if v := h.b.view.Load(); err == nil && v.state == Open && p.Generation() >= uint64(v.record.Generation) {
						t.Errorf("a permit of CLOSED bears the generation of opening %d", (uint64(v.record.Generation)-first)/2)
					}
					asked.Add(1)
					if err == nil {
						_ = p.Release(t.Context())
					}
				}
			})
		}
		now := time.Now()
		for v := first; v < first+10_000 && time.Since(now) < 3*time.Second; v += 2 {
			for i, record := range []string{`"state":"OPEN","open_until":9999999999999`, `"state":"CLOSED"`} {
				version := v + uint64(i)
				h.b.receive(fmt.Sprintf(`{"origin":%q,"now":%d,"version":%d,"record":{"name":%q,"meter":{"generation":%d,"revision":%d},%s}}`,
					origin, epoch, version, h.place.name, version, version, record))
				for seen := asked.Load(); i == 0 && asked.Load() < seen+4; { // all have asked since
					runtime.Gosched()
				}
			}
		}
		close(done)
		calls.Wait()
	})
}
