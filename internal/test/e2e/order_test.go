package e2e

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// With ORDER=key the jobs of a key are called one after the other, as they were enqueued, by three workers, though a
// fifth of them fails at first and waits for its retry, and though a worker is killed. Keys do not wait for each other:
// all others are done while the first job of one key waits for an hour to be tried again.
func TestOrderOfKeysSurvivesAKill(t *testing.T) {
	t.Parallel()
	const keys, each, stuck = 50, 20, "/k0/0"
	var mu sync.Mutex
	tried := map[string]bool{}
	f := newFleet(t, redistest.Start(t), fakeapi.Options{Latency: 10 * time.Millisecond, Script: func(_ int, r *http.Request) *fakeapi.Answer {
		mu.Lock()
		defer mu.Unlock()
		first := !tried[r.URL.Path]
		tried[r.URL.Path] = true
		sum := fnv.New32()
		_, _ = sum.Write([]byte(r.URL.Path))
		if first && (r.URL.Path == stuck || sum.Sum32()%5 == 0) {
			return &fakeapi.Answer{Status: http.StatusInternalServerError}
		}
		return nil
	}})
	f.env["DESTINATION_0_ORDER"] = "key"
	// Keys differ in their luck. That one key fails is no outage, and not what this test is about.
	f.env["DESTINATION_0_CIRCUIT_BREAKER_FAILURE_THRESHOLD"] = "1000"
	var specs []*jobs.Spec
	for i := range each {
		for k := range keys {
			path, again := fmt.Sprintf("/k%d/%d", k, i), jobs.RetryPolicy{MaxRetries: 10, InitialDelay: time.Second, BackoffMultiplier: 1}
			if path == stuck {
				again.InitialDelay = time.Hour
			}
			specs = append(specs, jobs.New(f.dest, i, jobs.Key(fmt.Sprint("k", k)), jobs.Path(path), jobs.Retry(again)))
		}
	}
	f.enqueueSpecs(specs)
	victim, _, _ := f.start(), f.start(), f.start()
	f.waitAccepted(keys*each/4, time.Minute)
	victim.stop(syscall.SIGKILL)
	// Its leases would be found lost within two minutes; age them, and let a new worker look, which it does when it starts.
	lost := f.ageLeasesOf(victim.pid(), f.dest)
	f.start()
	redistest.Await(t, 2*time.Minute, "all jobs of the other keys are completed", func() bool {
		f.makeDue(f.dest, lost) // they are spread over half a minute
		return f.stats(f.dest)[0].Counts[jobs.Completed] == (keys-1)*each
	})
	for _, r := range f.api.Receipts() {
		if strings.HasPrefix(r.Path, "/k0/") && r.Path != stuck {
			t.Errorf("%s was called before the first job of its key had ended", r.Path)
		}
	}
	redistest.Await(t, 2*time.Minute, "all jobs are completed", func() bool {
		f.hurry(f.dest)
		return f.stats(f.dest)[0].Counts[jobs.Completed] == keys*each
	})
	at := map[string]int{} // by key, the job that was called last
	for _, r := range f.api.Receipts() {
		var n int
		key, number, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
		if _, err := fmt.Sscan(number, &n); err != nil {
			t.Fatal(err)
		}
		if n != at[key] && n != at[key]+1 {
			t.Errorf("key %s: job %d is called after job %d", key, n, at[key])
		}
		at[key] = n
	}
}
