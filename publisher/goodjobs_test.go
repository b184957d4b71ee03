package publisher_test

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

var blameFor = flag.Duration("blame", 0, "TestGoodJobsBesideHopelessOnes: play each case for so long")

// Jobs that the API always refuses, or whose calls make it fail, do not hold the others: 20 good jobs a second beside
// them, two workers, default settings. It measures waits, so it runs by hand: go test ./publisher -run
// GoodJobsBeside -blame 40s.
func TestGoodJobsBesideHopelessOnes(t *testing.T) { //nolint:tparallel // one case at a time: it measures waits
	t.Parallel()
	if *blameFor == 0 {
		t.Skip("without -blame")
	}
	const median, p95, incidents = 300 * time.Millisecond, 1500 * time.Millisecond, 3
	for _, hopelessJobs := range []int{1, 5, 50} {
		for name, refusal := range map[string]struct {
			status int
			header http.Header
		}{
			"429":                    {http.StatusTooManyRequests, nil},
			"429 with Retry-After 5": {http.StatusTooManyRequests, http.Header{"Retry-After": {"5"}}},
			"429, Retry-After 60":    {http.StatusTooManyRequests, http.Header{"Retry-After": {"60"}}},
			"500":                    {http.StatusInternalServerError, nil},
		} {
			t.Run(fmt.Sprintf("%d of %s", hopelessJobs, name), func(t *testing.T) {
				b := newFixture(t)
				a := hopelessAPI(t, refusal.status, refusal.header)
				var mu sync.Mutex
				var waits []time.Duration
				var failed int
				var bad []string
				end := make(chan struct{})
				for range 2 {
					po := b.options()
					po.Observers = []publisher.Observer{{OnJob: func(e publisher.JobEvent) {
						mu.Lock()
						defer mu.Unlock()
						good := !slices.Contains(bad, e.Job.ID)
						switch {
						case good && e.Result == publisher.Completed:
							waits = append(waits, time.Since(e.Job.CreatedAt)-e.Took)
						case good && e.Result != publisher.Rescheduled && e.Result != publisher.Requeued, !good && e.Result == publisher.FailedFinal && !strings.Contains(e.LastError, "refused") && !strings.Contains(e.LastError, "500"):
							t.Errorf("job %s: %s, %q", e.Job.ID, e.Result, e.LastError)
						case e.Result == publisher.FailedFinal:
							failed++
						}
					}}}
					h := newHTTP(t, httpdest.Options{URL: a.URL})
					b.run(po, h.Publish)
				}
				b.enqueueMany(20)
				mu.Lock()
				bad = b.enqueueMany(hopelessJobs, jobs.Path(hopeless))
				mu.Unlock()
				tick, n := time.NewTicker(50*time.Millisecond), 20
				defer tick.Stop()
				time.AfterFunc(*blameFor, func() { close(end) })
				for running := true; running; {
					select {
					case <-tick.C:
						b.enqueueMany(1)
						n++
					case <-end:
						running = false
					}
				}
				<-time.After(2 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				opened := 0
				for _, e := range b.breakerHistory() {
					if e.From == breaker.Closed && e.To == breaker.Open {
						opened++
					}
				}
				slices.Sort(waits)
				if len(waits) == 0 {
					t.Fatal("no good job is done")
				}
				m, p := waits[len(waits)/2], waits[len(waits)*95/100]
				t.Logf("%2d of %-22s: %d of %d good jobs, median %.2f s, p95 %.2f s; %d failed, opened %d times", hopelessJobs, name, len(waits), n, m.Seconds(), p.Seconds(), failed, opened)
				if m > median || p > p95 || opened > incidents || len(waits) < n-20 {
					t.Errorf("%d of %d good jobs, median %v, p95 %v; opened %d times", len(waits), n, m, p, opened)
				}
			})
		}
	}
}

// Fifty hopeless jobs in line hold no other job for long: the good jobs that come after them are done before a hopeless
// one has waited for as long as the API asks or the breaker stays open.
func TestFiftyHopelessJobs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	for name, row := range map[string]struct {
		status    int
		header    http.Header
		incidents int
	}{
		"429":                  {http.StatusTooManyRequests, nil, 8},
		"429, Retry-After 300": {http.StatusTooManyRequests, http.Header{"Retry-After": {"300"}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			a := hopelessAPI(t, row.status, row.header)
			bad := b.enqueueMany(50, jobs.Path(hopeless))
			good := &goodJobs{b: b, bad: bad}
			good.stop.Store(true)
			for range 2 {
				po := b.options()
				po.Observers = []publisher.Observer{{OnJob: good.ended}}
				h := newHTTP(t, httpdest.Options{URL: a.URL})
				b.run(po, h.Publish)
			}
			for range 10 { // more come while the first ones wait
				n := good.accepted.Load()
				b.enqueueMany(10)
				redistest.Eventually(t, "good jobs are called", func() bool { return good.accepted.Load() > n })
			}
			redistest.Eventually(t, "all good jobs are done", func() bool { return good.accepted.Load() == 100 })
			b.wantIncidents(row.incidents)
		})
	}
}
