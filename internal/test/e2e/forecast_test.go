//go:build soak

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// calibration is what the ETA of jobs came to, of one setting or of several.
type calibration struct {
	asked, inside          int
	errors, widths, drains []float64 // as parts of the wait
	refused, wrong         int
}

func (c *calibration) add(o *calibration) {
	c.asked, c.inside, c.refused, c.wrong = c.asked+o.asked, c.inside+o.inside, c.refused+o.refused, c.wrong+o.wrong
	c.errors, c.widths, c.drains = append(c.errors, o.errors...), append(c.widths, o.widths...), append(c.drains, o.drains...)
}

// share is that of the starts in their range.
func (c *calibration) share() float64 { return float64(c.inside) / float64(max(1, c.asked)) }

func (c *calibration) row(name string) string {
	return fmt.Sprintf("| %s | %d | %.0f %% | %.1f %% | %.0f %% | %.1f %% | %d | %.1f %% |", name, c.asked, 100*c.share(),
		100*median(c.errors), 100*median(c.widths), 100*median(c.drains), c.refused, 100*float64(c.wrong)/float64(max(1, c.refused)))
}

// The ETA of jobs against their real starts: five APIs, 3,000 jobs each in bursts, of all priorities, with keys and delays,
// a worker that is killed and an incident; and what if_late refuses against what would have become of it. What is asked
// counts once 19 starts were compared with their forecasts: from then on ranges follow them. It prints the table of
// docs/benchmarks.md.
func TestForecastCalibration(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var rows []string
	var all calibration
	var running sync.WaitGroup
	for _, s := range []struct {
		name string
		api  fakeapi.Options
		env  map[string]string
		keys int
	}{
		{"250 per 10 s, not declared", fakeapi.Options{Limiter: fakeapi.FixedWindow{Quota: 250, Window: 10 * time.Second}, Hints: fakeapi.RetryAfter}, nil, 0},
		{"25/1s", fakeapi.Options{}, map[string]string{"RATE": "25/1s"}, 0},
		{"25/1s:125", fakeapi.Options{}, map[string]string{"RATE": "25/1s:125"}, 0},
		{"50/1s,250/10s@UTC", fakeapi.Options{}, map[string]string{"RATE": "50/1s,250/10s@UTC"}, 0},
		{"25/1s, 12 keys in turns", fakeapi.Options{}, map[string]string{"RATE": "25/1s", "RESERVE": "high=20%"}, 12},
	} {
		running.Go(func() { // all at once: parallel subtests are fewer
			t.Run(s.name, func(t *testing.T) {
				c := calibrate(t, s.name, s.api, s.env, s.keys)
				mu.Lock()
				defer mu.Unlock()
				rows = append(rows, c.row(s.name))
				all.add(c)
			})
		})
	}
	running.Wait()
	slices.Sort(rows)
	t.Logf("\n%s\n%s", strings.Join(rows, "\n"), all.row("all"))
	if share := all.share(); share < 0.85 || share > 0.95 {
		t.Errorf("%.0f %% of the starts are in their range, want 85 to 95 %%", 100*share)
	}
	if all.wrong*20 > all.refused {
		t.Errorf("%d of %d refusals were wrong, want 5 %%", all.wrong, all.refused)
	}
}

func calibrate(t *testing.T, name string, api fakeapi.Options, env map[string]string, keys int) *calibration {
	t.Helper()
	const n, bursts = 3000, 6
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
	draw := func() (opts []jobs.Option, delayed bool) {
		switch random.IntN(10) {
		case 0:
			opts = append(opts, jobs.Prioritize(jobs.PriorityHigh))
		case 1:
			delayed = true
		}
		if keys > 0 {
			opts = append(opts, jobs.Key(fmt.Sprint("k", random.IntN(keys))))
		}
		return opts, delayed
	}
	entered := map[string]time.Time{}
	var ids []string
	add := func(opts ...jobs.Option) *jobs.Spec {
		id := fmt.Sprintf("j%d", len(ids))
		ids, entered[id] = append(ids, id), time.Now()
		return jobs.New(f.dest, len(ids), append(opts, jobs.ID(id), jobs.Path("/"+id))...)
	}
	burst := func() {
		specs := make([]*jobs.Spec, n/bursts)
		for i := range specs {
			opts, delayed := draw()
			if delayed {
				opts = append(opts, jobs.Delay(time.Duration(random.IntN(60))*time.Second))
			}
			specs[i] = add(opts...)
		}
		f.enqueueSpecs(specs)
	}
	refused := map[string]time.Time{} // the twins of refused jobs, and when those expire
	// late asks whether a job would be late that expires near its forecast, which is that of an equal one without expiry.
	late := func() {
		opts, _ := draw()
		twin := f.enqueueSpecs([]*jobs.Spec{add(opts...)})[0]
		e := f.etaOf(system, twin)
		if e == nil || e.At == nil {
			return
		}
		now := time.Now()
		low, high := -0.2*float64(e.At.Sub(now)), float64(e.To.Sub(*e.From))+0.2*float64(e.At.Sub(now))
		expires := e.From.Add(time.Duration(low + random.Float64()*(high-low)))
		if expires.Before(now.Add(time.Second)) {
			return
		}
		_, err := f.client.Enqueue(t.Context(), jobs.New(f.dest, twin, append(opts, jobs.Path("/"+twin+"-expires"), jobs.ExpiresAt(expires), jobs.IfLate(jobs.LateReject))...))
		if _, is := errors.AsType[*jobs.LateError](err); is {
			refused[twin] = expires
		} else if err != nil {
			t.Fatal(err)
		}
	}
	type asked struct {
		id  string
		at  time.Time
		eta jobs.ETA
	}
	var all []asked
	drained := map[time.Time]time.Time{} // forecast of the end, by when it was made
	warm, accuracy := false, ""
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
		accuracy = report.Accuracy
		warm = warm || strings.HasPrefix(report.Accuracy, "by ")
		if !warm {
			continue
		}
		if report.EmptyAt.At != nil {
			drained[time.Now()] = *report.EmptyAt.At
		}
		for range 8 {
			id := ids[random.IntN(len(ids))]
			if e := f.etaOf(system, id); e != nil && e.At != nil {
				all = append(all, asked{id, time.Now(), *e})
			}
		}
		for range 3 {
			if second < 90 {
				late()
			}
		}
	}
	calls := map[string][]time.Time{}
	for _, r := range f.api.Receipts() {
		calls[r.Path[1:]] = append(calls[r.Path[1:]], r.At)
	}
	// called is when a job was called first after an instant: a call before it was refused.
	called := func(id string, after time.Time) time.Time {
		if i := slices.IndexFunc(calls[id], after.Before); i >= 0 {
			return calls[id][i]
		}
		return time.Time{}
	}
	t.Logf("%s: %s", name, accuracy)
	c := &calibration{refused: len(refused)}
	for _, a := range all {
		start := called(a.id, a.at)
		if start.IsZero() {
			continue // it started while it was asked
		}
		c.asked++
		const clock = 200 * time.Millisecond // a job is fetched a moment before its call
		if !start.Before(a.eta.From.Add(-clock)) && !start.After(a.eta.To.Add(clock)) {
			c.inside++
		}
		if wait := start.Sub(a.at); wait > 30*time.Second {
			c.errors = append(c.errors, float64(start.Sub(*a.eta.At).Abs())/float64(wait))
			c.widths = append(c.widths, float64(a.eta.To.Sub(*a.eta.From))/float64(wait))
		}
	}
	for at, empty := range drained { // of the jobs that were there
		var last time.Time
		for id, since := range entered {
			if all := calls[id]; since.Before(at) && len(all) > 0 && all[len(all)-1].After(last) {
				last = all[len(all)-1]
			}
		}
		if left := last.Sub(at); left > 30*time.Second {
			c.drains = append(c.drains, float64(empty.Sub(last).Abs())/float64(left))
		}
	}
	for twin, expires := range refused {
		if called(twin, time.Time{}).Before(expires) {
			c.wrong++
		}
	}
	if c.share() < 0.8 {
		t.Errorf("%s: %.0f %% of the starts are in their range, want 80 %%", name, 100*c.share())
	}
	return c
}

// etaOf is when a job starts, as system says; nil if it runs or has ended.
func (f *fleet) etaOf(system *ops.System, id string) *jobs.ETA {
	f.t.Helper()
	job, err := system.Job(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return job.ETA
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
