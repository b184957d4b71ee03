//go:build soak

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/ops"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// The ETA of jobs against their real starts: five APIs, 600 jobs each in bursts, of all priorities, with keys and delays,
// a worker that is killed and an incident. It prints the table of docs/benchmarks.md.
func TestForecastCalibration(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		api  fakeapi.Options
		env  map[string]string
		keys int
	}{
		"window":      {fakeapi.Options{Limiter: fakeapi.FixedWindow{Quota: 50, Window: 10 * time.Second}, Hints: fakeapi.RetryAfter}, nil, 0},
		"sliding":     {fakeapi.Options{}, map[string]string{"RATE": "5/1s"}, 0},
		"bucket":      {fakeapi.Options{}, map[string]string{"RATE": "5/1s:25"}, 0},
		"two windows": {fakeapi.Options{}, map[string]string{"RATE": "10/1s,50/10s@UTC"}, 0},
		"turns":       {fakeapi.Options{}, map[string]string{"RATE": "5/1s", "RESERVE": "high=20%"}, 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calibrate(t, name, s.api, s.env, s.keys)
		})
	}
}

func calibrate(t *testing.T, name string, api fakeapi.Options, env map[string]string, keys int) {
	t.Helper()
	const n, bursts, warm = 600, 6, 15 * time.Second
	var down atomic.Bool
	api.Script = func(int, *http.Request) *fakeapi.Answer {
		if down.Load() {
			return &fakeapi.Answer{Status: http.StatusServiceUnavailable}
		}
		return nil
	}
	f := newFleet(t, redistest.Start(t), api)
	for k, v := range env {
		f.env["DESTINATION_0_"+k] = v
	}
	f.env["DESTINATION_0_RETRY"] = "max=5,initial=1s"
	first := f.start()
	f.start()
	system := ops.New(ops.Options{Redis: f.rdb, Client: f.client})
	random := rand.New(rand.NewPCG(1, 2))
	var ids []string
	burst := func() {
		specs := make([]*jobs.Spec, n/bursts)
		for i := range specs {
			id := fmt.Sprintf("j%d", len(ids))
			ids = append(ids, id)
			opts := []jobs.Option{jobs.ID(id), jobs.Path("/" + id)}
			if p := random.IntN(10); p == 0 {
				opts = append(opts, jobs.Prioritize(jobs.PriorityHigh))
			} else if p == 1 {
				opts = append(opts, jobs.Delay(time.Duration(random.IntN(60))*time.Second))
			}
			if keys > 0 {
				opts = append(opts, jobs.Key(fmt.Sprint("k", random.IntN(keys))))
			}
			specs[i] = jobs.New(f.dest, i, opts...)
		}
		f.enqueueSpecs(specs)
	}
	type asked struct {
		id  string
		at  time.Time
		eta jobs.ETA
	}
	var all []asked
	drained := map[time.Duration]time.Time{}
	began := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for second := 0; ; second++ {
		<-tick.C
		switch second {
		case 0, 4, 8, 12, 16, 20:
			burst()
		case 40:
			first.stop(syscall.SIGKILL)
		case 60:
			down.Store(true)
		case 63:
			down.Store(false)
		}
		report, err := f.client.Forecast(t.Context(), f.dest, "")
		if err != nil {
			t.Fatal(err)
		}
		if second > 30 && report.Backlog == 0 {
			break
		}
		if second > 400 {
			t.Fatalf("%s: %d jobs wait", name, report.Backlog)
		}
		if report.EmptyAt.At != nil {
			drained[time.Since(began)] = *report.EmptyAt.At
		}
		for range 8 {
			job, err := system.Job(t.Context(), ids[random.IntN(len(ids))])
			if err != nil {
				t.Fatal(err)
			}
			if job.ETA != nil && job.ETA.At != nil && time.Since(began) > warm {
				all = append(all, asked{job.ID, time.Now(), *job.ETA})
			}
		}
	}
	calls, last := map[string][]time.Time{}, time.Time{}
	for _, r := range f.api.Receipts() {
		calls[r.Path[1:]] = append(calls[r.Path[1:]], r.At)
		if r.At.After(last) {
			last = r.At
		}
	}
	inside, known, waits := 0, 0, []float64{}
	var widths []float64
	for _, a := range all {
		next := slices.IndexFunc(calls[a.id], a.at.Before) // a call before it was refused
		if next < 0 {
			continue // it started while it was asked
		}
		start := calls[a.id][next]
		known++
		const clock = 200 * time.Millisecond // a job is fetched a moment before its call
		if !start.Before(a.eta.From.Add(-clock)) && !start.After(a.eta.To.Add(clock)) {
			inside++
		}
		if wait := start.Sub(a.at); wait > 30*time.Second {
			waits = append(waits, float64(start.Sub(*a.eta.At).Abs())/float64(wait))
			widths = append(widths, float64(a.eta.To.Sub(*a.eta.From))/float64(wait))
		}
	}
	var drains []float64
	for at, empty := range drained {
		if left := last.Sub(began) - at; at > 25*time.Second && left > 30*time.Second {
			drains = append(drains, float64(empty.Sub(last).Abs())/float64(left))
		}
	}
	share := float64(inside) / float64(max(1, known))
	t.Logf("| %s | %d | %.0f %% | %.1f %% | %.0f %% | %.1f %% |", name, known, 100*share, 100*median(waits), 100*median(widths), 100*median(drains))
	if share < 0.8 {
		t.Errorf("%s: %.0f %% of the starts are in their range, want 80 %%", name, 100*share)
	}
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
