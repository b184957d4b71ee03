package store_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// The times of calls are right within a tenth, over the turn of an hour, and of the last hour only.
func TestCallTimes(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ns, d := store.DefaultNamespace, redistest.Name(t, "d")
		now := time.Date(2026, 11, 27, 14, 5, 0, 0, time.UTC)
		count := func(calls int, ago, took time.Duration) {
			key, field := ns.CallCounter(d, now.Add(-ago), took)
			if err := rdb.HIncrBy(t.Context(), key, field, int64(calls)).Err(); err != nil {
				t.Fatal(err)
			}
		}
		count(500, 70*time.Minute, time.Hour)
		count(60, 40*time.Minute, 210*time.Millisecond)
		count(35, 2*time.Minute, 1500*time.Millisecond)
		count(5, 0, 30*time.Second)
		all, err := ns.CallTimes(t.Context(), rdb, []string{"none", d}, now)
		if err != nil || all[0] != nil {
			t.Fatalf("%+v, %v", all, err)
		}
		got := all[1]
		for _, c := range []struct {
			name      string
			got, want float64
		}{{"half", got.P50, 0.21}, {"nine of ten", got.P90, 1.5}, {"the longest", got.Max, 30}} {
			if c.got < c.want*0.9 || c.got > c.want*1.1 {
				t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
			}
		}
		if got.Calls != 100 {
			t.Errorf("%d calls, want 100", got.Calls)
		}
	})
}
