package e2e

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// crowded is an API that allows so many calls at once, in all and of each key, and refuses the
// others.
type crowded struct {
	most, ofKey int
	latency     time.Duration
	hang        chan struct{} // calls hang until it is closed; nil: none does

	mu                sync.Mutex
	now, peak         int
	of                map[string]int
	accepted, refused int
	lastOf            map[string]time.Time
}

func (c *crowded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("key")
	c.mu.Lock()
	refuse := c.now >= c.most || c.ofKey > 0 && c.of[key] >= c.ofKey
	c.now++
	c.of[key]++
	c.peak = max(c.peak, c.now)
	latency, hang := c.latency, c.hang
	if refuse {
		c.refused++
	}
	c.mu.Unlock()
	if !refuse {
		select {
		case <-hang:
		case <-time.After(latency):
			if hang != nil {
				<-hang
			}
		case <-r.Context().Done():
		}
	}
	c.mu.Lock()
	c.now--
	c.of[key]--
	if !refuse {
		c.accepted++
		c.lastOf[key] = time.Now()
	}
	c.mu.Unlock()
	if refuse {
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

func (c *crowded) read(f func() int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

func newCrowded(t *testing.T, c *crowded) (*crowded, *fleet) {
	t.Helper()
	c.of, c.lastOf = map[string]int{}, map[string]time.Time{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{})
	f.env["DESTINATION_0_URL"] = server.URL
	return c, f
}

// Three workers of ten calls each keep to the five that the API allows at once, and use them.
func TestFleetConcurrency(t *testing.T) {
	api, f := newCrowded(t, &crowded{most: 5, latency: 50 * time.Millisecond})
	f.env["DESTINATION_0_FLEET_CONCURRENCY"] = "5"
	ids := f.enqueue(300)
	began := time.Now()
	for range 3 {
		f.start()
	}
	f.waitCompleted(ids, time.Minute)
	took := time.Since(began)
	if api.refused != 0 || api.peak != 5 {
		t.Errorf("%d calls were refused, %d at once; want none, and 5", api.refused, api.peak)
	}
	if ideal := 300 / 5 * 50 * time.Millisecond; took > 4*ideal+20*time.Second {
		t.Errorf("300 jobs took %v, ideal is %v", took, ideal)
	}
	t.Logf("300 jobs in %v; ideal is 3s", took.Round(10*time.Millisecond))
}

// The slots of a worker that is killed are free when its leases end; until then no call takes
// them, because the API may still be busy with its calls.
func TestFleetConcurrencyAfterACrash(t *testing.T) {
	hang := make(chan struct{})
	api, f := newCrowded(t, &crowded{most: 5, latency: 20 * time.Millisecond, hang: hang})
	f.env["DESTINATION_0_FLEET_CONCURRENCY"] = "5"
	f.env["DESTINATION_0_CIRCUIT_BREAKER_PROBE_TIMEOUT_MS"] = "4000"
	f.env["DESTINATION_0_TIMEOUT"] = "3s"
	f.enqueue(50)
	first := f.start()
	redistest.Eventually(t, "five calls are in flight", func() bool { return api.read(func() int { return api.now }) == 5 })
	first.stop(syscall.SIGKILL)
	killed := time.Now()
	api.mu.Lock()
	api.hang = nil
	api.mu.Unlock()
	close(hang)
	f.start()
	redistest.Eventually(t, "the other jobs are published", func() bool { return api.read(func() int { return api.accepted }) >= 50 })
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.refused != 0 || api.peak != 5 {
		t.Errorf("%d calls were refused, %d at once; want none, and 5", api.refused, api.peak)
	}
	t.Logf("45 more jobs %v after the crash", time.Since(killed).Round(10*time.Millisecond))
}

// A key with many jobs and one slot does not hold up those of other keys.
func TestKeyConcurrency(t *testing.T) {
	api, f := newCrowded(t, &crowded{most: 100, ofKey: 1, latency: 50 * time.Millisecond})
	f.env["DESTINATION_0_KEY_CONCURRENCY"] = "1"
	ids := f.enqueue(60, jobs.Key("busy"), jobs.Query("key=busy"))
	for _, key := range []string{"a", "b", "c"} {
		ids = append(ids, f.enqueue(5, jobs.Key(key), jobs.Query("key="+key))...)
	}
	began := time.Now()
	for range 2 {
		f.start()
	}
	f.waitCompleted(ids, time.Minute)
	took := time.Since(began)
	if api.refused != 0 {
		t.Errorf("%d calls were refused", api.refused)
	}
	for _, key := range []string{"a", "b", "c"} {
		if !api.lastOf[key].Before(api.lastOf["busy"].Add(-time.Second)) {
			t.Errorf("the last job of %s completed %v before the last one of the busy key", key, api.lastOf["busy"].Sub(api.lastOf[key]))
		}
	}
	if took > 40*time.Second { // by polls alone 60 s
		t.Errorf("60 jobs of a key one after the other took %v, ideal is 3s", took)
	}
	t.Logf("in %v; ideal is 3s", took.Round(10*time.Millisecond))
}
