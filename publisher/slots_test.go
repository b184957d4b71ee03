package publisher_test

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A call that ends passes its key's slot on to the next job of the key. A job took 10 scripts, of two
// workers 12: the second one halved the calls. Never has a key more calls at once than it may, and one worker
// makes them in the order of their jobs.
func TestAKeysSlotIsPassedOn(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const n, keys = 400, 8
	for _, workers := range []int{1, 2} {
		t.Run(strconv.Itoa(workers), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			f := fixtureOn(t, server)
			specs := make([]*jobs.Spec, n)
			for i := range specs {
				specs[i] = jobs.New(f.dest, i, jobs.Key("k"+strconv.Itoa(i%keys)))
			}
			results, err := f.client.EnqueueMany(t.Context(), specs)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string][]string{}
			for i, r := range results {
				key := "k" + strconv.Itoa(i%keys)
				want[key] = append(want[key], r.Job.ID)
			}
			var mu sync.Mutex
			atOnce, called := map[string]int{}, map[string][]string{}
			call := func(_ context.Context, j *jobs.Job) error {
				mu.Lock()
				defer mu.Unlock()
				if atOnce[j.Key]++; atOnce[j.Key] > 1 {
					t.Errorf("%d calls of key %s at once", atOnce[j.Key], j.Key)
				}
				called[j.Key] = append(called[j.Key], j.ID)
				mu.Unlock()
				<-time.After(10 * time.Millisecond) // the API's time
				mu.Lock()
				atOnce[j.Key]--
				return nil
			}
			o := f.options()
			o.Observers, o.Logger = nil, slog.New(slog.DiscardHandler)
			server.ResetStats(t)
			began := time.Now()
			for range workers {
				f.run(o, call, publisher.Concurrency(2*keys), publisher.Breaker(breaker.Options{KeyConcurrency: 1}))
			}
			redistest.Eventually(t, "all jobs are completed", func() bool {
				return f.rdb.ZCard(t.Context(), store.CompletedKey(f.queue())).Val() == n
			})
			for key, ids := range want {
				if workers == 1 && !slices.Equal(called[key], ids) {
					t.Errorf("the calls of key %s were not in the order of its jobs", key)
				}
			}
			scripts := int(server.CommandStats(t)["evalsha"])
			// Workers also look by time, such as for due jobs: on a busy machine all takes longer, and they look more often.
			byTime := int(100 * time.Since(began).Seconds())
			t.Logf("%.1f scripts a job, %d by time", float64(scripts)/n, byTime)
			if scripts > 9*n+byTime {
				t.Errorf("%d scripts for %d jobs, want at most 9 a job and %d by time", scripts, n, byTime)
			}
		})
	}
}
