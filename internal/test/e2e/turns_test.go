//go:build soak

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A flood of one key delays no other: 50 calls a second, three workers, one of which is killed, and 429s
// for some seconds. Keys with a backlog share calls equally, or by their weights.
func TestKeysTakeTurns(t *testing.T) {
	const flood, quiet, rate, lasts = 50_000, 500, 50, 100 * time.Second
	var limited atomic.Bool
	f := newFleet(t, redistest.Start(t), fakeapi.Options{Light: true, Script: func(int, *http.Request) *fakeapi.Answer {
		if limited.Load() {
			return &fakeapi.Answer{Status: http.StatusTooManyRequests}
		}
		return nil
	}})
	f.env["DESTINATION_0_RATE"] = fmt.Sprintf("%d/1s", rate)
	f.env["DESTINATION_0_WEIGHTS"] = "w3=3"
	backlog := func(key string, n int) {
		specs := make([]*jobs.Spec, n)
		for i := range specs {
			specs[i] = jobs.New(f.dest, i, jobs.Key(key), jobs.Path("/"+key))
		}
		f.enqueueSpecs(specs)
	}
	backlog("flood", flood)
	var equal []string
	for i := range 8 {
		equal = append(equal, fmt.Sprint("e", i))
		backlog(equal[i], 1000)
	}
	backlog("w3", 3000)
	workers := []*worker{f.start(), f.start(), f.start()}
	redistest.Await(t, time.Minute, "calls of the last key", func() bool { return len(callsTo(f, "w3")) > 0 })
	began := time.Now()

	sent := map[string]time.Time{} // by path
	var mu sync.Mutex
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := 0; time.Since(began) < lasts; n++ {
			<-tick.C
			key := fmt.Sprint("q", n%quiet)
			path := fmt.Sprintf("/%s/%d", key, n)
			mu.Lock()
			sent[path] = time.Now()
			mu.Unlock()
			if _, err := f.client.Enqueue(t.Context(), jobs.New(f.dest, n, jobs.Key(key), jobs.Path(path))); err != nil {
				t.Error(err)
			}
		}
	}()
	<-time.After(lasts / 3)
	workers[0].stop(syscall.SIGKILL)
	<-time.After(lasts / 6)
	incident := time.Now()
	limited.Store(true)
	<-time.After(3 * time.Second)
	limited.Store(false)
	healed := time.Now().Add(5 * time.Second) // with the cooldown and the slow start
	<-done
	ended := time.Now()
	<-time.After(10 * time.Second)

	counts := map[string]int{}
	var waits, during []time.Duration
	missing := 0
	reached := map[string]time.Time{}
	for _, r := range f.api.Receipts() {
		if r.Status != http.StatusTooManyRequests {
			reached[r.Path] = r.At
			if r.At.After(began) && r.At.Before(ended) {
				counts[strings.Split(r.Path, "/")[1]]++
			}
		}
	}
	for path, at := range sent {
		got, ok := reached[path]
		switch wait := got.Sub(at); {
		case !ok:
			missing++
		case at.After(incident.Add(-time.Second)) && at.Before(healed):
			during = append(during, wait)
		default:
			waits = append(waits, wait)
		}
	}
	slices.Sort(waits)
	slices.Sort(during)
	p99, sum, squares := waits[len(waits)*99/100], 0.0, 0.0
	for _, key := range equal {
		n := float64(counts[key])
		sum, squares = sum+n, squares+n*n
	}
	jain := sum * sum / (float64(len(equal)) * squares)
	weight := float64(counts["w3"]) / (sum / float64(len(equal)))
	t.Logf("quiet jobs: %d, p50 %s, p99 %s, most %s; around the incident %d, most %s; not called %d", len(waits), waits[len(waits)/2], p99, waits[len(waits)-1], len(during), during[len(during)-1], missing)
	t.Logf("calls in %s: flood %d, each equal key %.0f, Jain's index %.4f, weight 3 has %.3f times as many", ended.Sub(began).Round(time.Second), counts["flood"], sum/float64(len(equal)), jain, weight)
	if p99 > 2*time.Second+time.Second/rate || missing > len(sent)/100 {
		t.Errorf("quiet jobs wait %s, %d were not called", p99, missing)
	}
	if jain < .98 || weight < 2.85 || weight > 3.15 {
		t.Errorf("Jain's index %.4f, weight %.3f", jain, weight)
	}
}

// callsTo are the calls of a path.
func callsTo(f *fleet, path string) []fakeapi.Receipt {
	return slices.DeleteFunc(f.api.Receipts(), func(r fakeapi.Receipt) bool { return r.Path != "/"+path })
}
