//go:build soak

package e2e

import (
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/fakelimit"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Three real workers and the simulation of them, with the same settings: the time to drain and the refused calls agree.
// The last window is half empty, so that a lost call does not cost another one. docs/benchmarks.md has the figures.
func TestSimulationAgainstReality(t *testing.T) {
	const jobs, latency = 190, 40 * time.Millisecond
	reactive := map[string]string{"CIRCUIT_BREAKER_LEARN": "false"}
	for _, row := range []struct {
		api     string
		limiter fakeapi.Limiter
		hints   fakeapi.Hint
		env     map[string]string
	}{
		{"window:20/2s", fakeapi.FixedWindow{Quota: 20, Window: 2 * time.Second}, fakeapi.NoHints, reactive},
		{"window:20/2s", fakeapi.FixedWindow{Quota: 20, Window: 2 * time.Second}, fakeapi.NoHints, nil},
		{"window:20/2s,hints:retry-after", fakeapi.FixedWindow{Quota: 20, Window: 2 * time.Second}, fakeapi.RetryAfter, reactive},
		{"window:20/2s,hints:ratelimit", fakeapi.FixedWindow{Quota: 20, Window: 2 * time.Second}, fakeapi.RateLimit, nil},
		{"sliding:20/2s", fakelimit.SlidingWindow{Quota: 20, Window: 2 * time.Second}, fakeapi.NoHints, reactive},
		{"bucket:10/1s:20", fakelimit.TokenBucket{Rate: 10, Burst: 20}, fakeapi.NoHints, reactive},
		{"window:20/2s", fakeapi.FixedWindow{Quota: 20, Window: 2 * time.Second}, fakeapi.NoHints, map[string]string{"DESTINATION_0_RATE": "18/2s"}},
	} {
		f := newFleet(t, redistest.Shared(t), fakeapi.Options{Limiter: row.limiter, Latency: latency, Hints: row.hints})
		f.env["CIRCUIT_BREAKER_COOLDOWN_MS"], f.env["CIRCUIT_BREAKER_FAILURE_THRESHOLD"] = "1000", "2"
		maps.Copy(f.env, row.env)
		workers := []*worker{f.start(), f.start(), f.start()}
		f.enqueue(jobs)
		f.waitAccepted(jobs, time.Minute)
		receipts := f.api.Receipts()
		took, refused := receipts[len(receipts)-1].At.Add(latency).Sub(receipts[0].At).Seconds(), f.api.Stats().Limited

		// HTTP and Redis add to the API's latency; where the learner is near a choice, a millisecond decides it.
		var drained, wasted []float64
		for _, ms := range []string{"40ms", "43ms", "46ms"} {
			cmd := exec.Command(binary, "simulate", "--api", row.api, "--jobs", strconv.Itoa(jobs), "--workers", "3", "--latency", ms, "--for", "5m", "-o", "json")
			cmd.Env = f.environ()
			out, err := cmd.Output()
			var doc struct {
				Runs []struct {
					Drained float64 `json:"drained_secs"`
					Wasted  float64
				}
			}
			if err == nil {
				err = json.Unmarshal(out, &doc)
			}
			if err != nil {
				t.Fatal(err)
			}
			drained, wasted = append(drained, doc.Runs[0].Drained), append(wasted, doc.Runs[0].Wasted)
		}
		slices.Sort(drained)
		slices.Sort(wasted)
		t.Logf("%-31s %v: drained in %.1f s, simulated %.1f to %.1f s; refused %d, simulated %v to %v", row.api, row.env, took, drained[0], drained[2], refused, wasted[0], wasted[2])
		differs := func(from float64, simulated []float64, part, more float64) bool {
			return from < simulated[0]-part*from-more || from > simulated[2]+part*from+more
		}
		if differs(took, drained, .05, .2) {
			t.Errorf("%s %v: the time to drain differs by more than 5 %%", row.api, row.env)
		}
		if differs(float64(refused), wasted, .2, 2) {
			t.Errorf("%s %v: the refused calls differ by more than 20 %%", row.api, row.env)
		}
		for _, w := range workers {
			w.stop(syscall.SIGTERM)
		}
	}
}
