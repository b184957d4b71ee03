package simulate

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/markdown"
	"github.com/tidegate/tidegate/internal/test/testkit/quota"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// TestOracle compares the breaker, with its default settings, with an oracle that knows the limit. The production rules and
// scripts run in virtual time. CI plays the models that have bounds; `make oracle` plays all, and prints the table.
var (
	oracleAll   = flag.Bool("oracle.all", false, "TestOracle: play all models but those that are held out")
	oracleHeld  = flag.Bool("oracle.held", false, "TestOracle: play all models, and those on which no rule is chosen")
	oracleOnly  = flag.String("oracle.only", "", "TestOracle: play the models whose name contains this")
	oracleWrite = flag.Bool("oracle.write", false, "TestOracle: play all models, and write the table into docs/benchmarks.md")
)

// oracleModel is an API, and the jobs for it.
type oracleModel struct {
	name   string // also the API, unless api is set: parts of ParseAPI, or a model of package quota behind "quota:"
	api    string
	jobs   int           // that wait at the start, or, of arrivals, that come
	window time.Duration // by which later refusals are counted
	bursts time.Duration // between bursts of jobs
	rate   string        // arrivals at random
	stray  float64       // part of the calls that is refused whatever the limit says
	held   bool          // apart: no rule was chosen on it

	// Bounds of the drain and the median wait, as multiples of the oracle's, and of all refused calls. 0: none.
	drain, wait float64
	refused     int
}

// oracleModels are the models. Bounds are what the rules reach today.
func oracleModels() []oracleModel {
	const s, m, h, d = time.Second, time.Minute, time.Hour, 24 * time.Hour
	return []oracleModel{
		{name: "window:60/1h", jobs: 300, window: h, drain: 1.02, wait: 1.02, refused: 65},
		{name: "sliding:60/1h", jobs: 300, window: h, drain: 1.02, wait: 1.02, refused: 82},
		{name: "window:60/1h@UTC", jobs: 300, window: h, drain: 1.02, wait: 1.02, refused: 65},
		{name: "window:1000/1h", jobs: 3000, window: h},
		{name: "window:1000/1d", jobs: 2000, window: d},
		{name: "window:100/1m", jobs: 500, window: m, drain: 1.05, wait: 1.05, refused: 50},
		{name: "sliding:100/1m", jobs: 500, window: m, drain: 1.15, wait: 1.2, refused: 55},
		{name: "window:50/10s", jobs: 300, window: 10 * s, drain: 1.25, wait: 1.1, refused: 46},
		{name: "sliding:20/1s", jobs: 300, window: s, drain: 1.9, wait: 2.15, refused: 60},
		{name: "concurrency:5", jobs: 300, window: 10 * s, drain: 1.8, wait: 2.25, refused: 36},
		{name: "concurrency:2", jobs: 200, window: 10 * s, drain: 1.75, wait: 1.8, refused: 45},
		{name: "bucket:60/1h:10", jobs: 200, window: h, drain: 1.05, wait: 1.05, refused: 76},
		{name: "bucket:600/1m:60", jobs: 1000, window: m, drain: 1.05, wait: 1.05, refused: 70},
		{name: "bucket:30/1m:1", jobs: 150, window: m},
		{name: "penalty:60/1h+1m", jobs: 300, window: h, drain: 1.55, wait: 1.8, refused: 70},
		{name: "penalty:50/10s+500ms", jobs: 300, window: 10 * s, drain: 1.9, wait: 2.3, refused: 44},
		{name: "window:10/1m,window:60/1h", jobs: 300, window: h, drain: 1.16, wait: 1.12, refused: 120},
		{name: "sliding:10/1m,sliding:60/1h", jobs: 300, window: h},
		{name: "no limit, 5 % at random", api: "concurrency:10000", jobs: 5000, window: m, stray: .05, drain: 1.2, wait: 1.2, refused: 265},
		{name: "no limit, 1 % at random", api: "concurrency:10000", jobs: 1000, window: m, stray: .01, drain: 1.02, wait: 1.02, refused: 10},
		{name: "no limit, 2 % at random", api: "concurrency:10000", jobs: 5000, window: m, stray: .02, drain: 1.06, wait: 1.05, refused: 105},
		{name: "no limit, 20 % at random", api: "concurrency:10000", jobs: 5000, window: m, stray: .2},
		{name: "fixed 100/1m, ½, 2x", api: "quota:fixed 100/1m, ½, 2x", jobs: 2000, window: m},
		{name: "fixed 100/1m, others", api: "quota:fixed 100/1m, others", jobs: 700, window: m},
		{name: "window:100/1m@UTC, demand 80 %", api: "window:100/1m@UTC", rate: "80/1m", jobs: 20, window: m},
		{name: "window:100/1m@UTC, demand 95 %", api: "window:100/1m@UTC", rate: "95/1m", jobs: 20, window: m},
		{name: "window:20/10s, bursts", api: "window:20/10s", bursts: 100 * s, jobs: 480, window: 100 * s, drain: 1.05, wait: 1.15, refused: 105},
		{name: "window:60/1h,hints:retry-after", jobs: 300, window: h, drain: 1.02, wait: 1.02, refused: 40},
		{name: "sliding:100/1m,hints:retry-after", jobs: 500, window: m, drain: 1.08, wait: 1.12, refused: 73},
		{name: "bucket:60/1h:10,hints:retry-after", jobs: 200, window: h},

		{name: "window:250/15m", jobs: 1000, window: 15 * m, held: true},
		{name: "sliding:30/7m", jobs: 150, window: 7 * m, held: true},
		{name: "window:500/1d@UTC", jobs: 1500, window: d, held: true},
		{name: "window:137/437s", jobs: 600, window: 437 * s, held: true},
		{name: "sliding counter 100/1m", api: "quota:counter 100/1m", jobs: 500, window: m, held: true},
		{name: "bucket:100/10m:20", jobs: 300, window: 10 * m, held: true},
		{name: "concurrency:12", jobs: 600, window: 10 * s, held: true},
		{name: "penalty:200/10m+20s", jobs: 600, window: 10 * m, held: true},
		{name: "velocity 100, 1m", api: "quota:velocity 100, 1m", jobs: 500, window: m, held: true},
		{name: "sliding:6/30s,window:50/30m", jobs: 200, window: 30 * m, held: true},
		{name: "window:100/1m, 2 % at random", api: "window:100/1m", jobs: 500, window: m, stray: .02, held: true},
		{name: "from call 60/5m, others", api: "quota:from call 60/5m, others", jobs: 240, window: 5 * m, held: true},
		{name: "sliding:40/1m, bursts", api: "sliding:40/1m", bursts: 150 * s, jobs: 480, window: 150 * s, held: true},
		{name: "window:20/10s,hints:retry-after", jobs: 200, window: 10 * s, held: true},
	}
}

// oracleAPI is the API of a model. It notes when it accepts and refuses calls.
type oracleAPI struct {
	oracleModel
	api     *API // nil: limiter
	limiter quota.Limiter
	rng     *rand.Rand

	accepted, refused []time.Duration // since Start
}

func newOracleAPI(t *testing.T, m oracleModel, seed uint64) *oracleAPI {
	t.Helper()
	a := &oracleAPI{oracleModel: m, rng: rand.New(rand.NewPCG(seed, 3))}
	text := cmp.Or(m.api, m.name)
	if name, ok := strings.CutPrefix(text, "quota:"); ok {
		i := slices.IndexFunc(quota.Models(), func(q quota.Model) bool { return q.Name == name })
		from := sinceEpoch(Start)
		a.limiter = quota.Models()[i].New(quota.Run{Start: from, End: from + 30*m.window, Rand: rand.New(rand.NewPCG(seed, 4))})
		return a
	}
	var err error
	if a.api, err = ParseAPI(text); err != nil {
		t.Fatal(err)
	}
	return a
}

func sinceEpoch(at time.Time) time.Duration { return time.Duration(at.UnixNano()) }

func (a *oracleAPI) call(now, end time.Time, since time.Duration) (r response) {
	switch {
	case a.rng.Float64() < a.stray:
		r.status = http.StatusTooManyRequests
	case a.api != nil:
		r = a.api.call(now, end, since)
	case a.limiter.Take(sinceEpoch(now), sinceEpoch(end)):
		r.status = http.StatusOK
	default:
		r.status = http.StatusTooManyRequests
	}
	if r.status == http.StatusOK {
		a.accepted = append(a.accepted, since)
	} else {
		a.refused = append(a.refused, since)
	}
	return r
}

// next is when a call would be accepted.
func (a *oracleAPI) next(now time.Time) time.Time {
	if a.api == nil {
		return now.Add(a.limiter.Next(sinceEpoch(now)) - sinceEpoch(now))
	}
	var wait time.Duration
	for _, l := range a.api.limits {
		wait = max(wait, l.wait(now))
	}
	return now.Add(wait)
}

// arrivals are those of the jobs.
func (m *oracleModel) arrivals(t *testing.T) []time.Duration {
	at := make([]time.Duration, m.jobs)
	switch {
	case m.rate != "":
		rate, err := breaker.ParseRate(m.rate)
		if err != nil {
			t.Fatal(err)
		}
		return Poisson(rate, time.Duration(m.jobs)*rate.Per, 1)
	case m.bursts > 0:
		for i := range at {
			at[i] = time.Duration(i/60) * m.bursts
		}
	}
	return at
}

const (
	oracleSlots   = 30
	oracleLatency = 200 * time.Millisecond
)

// ask makes the calls of an oracle.
func (a *oracleAPI) ask(arrivals []time.Duration) {
	free := make([]time.Duration, oracleSlots) // when a slot is
	now := time.Duration(0)
	for i, at := range arrivals {
		now = max(now, at, free[i%oracleSlots])
		for next := a.next(Start.Add(now)); next.After(Start.Add(now)); next = a.next(Start.Add(now)) {
			now = next.Sub(Start)
		}
		free[i%oracleSlots] = now + oracleLatency
		a.stray = 0
		a.call(Start.Add(now), Start.Add(now+oracleLatency), now)
	}
}

// waits returns the mean and the median wait of jobs, in seconds: jobs start in order of their arrival.
func (a *oracleAPI) waits(arrivals []time.Duration) (mean, median float64) {
	all := make([]float64, len(a.accepted))
	for i, at := range a.accepted {
		all[i] = (at - arrivals[i]).Seconds()
		mean += all[i] / float64(len(all))
	}
	slices.Sort(all)
	return mean, all[len(all)/2]
}

// last is when the last call has ended.
func (a *oracleAPI) last() time.Duration { return a.accepted[len(a.accepted)-1] + oracleLatency }

// run plays a model, and returns the drain, the mean and the median wait as multiples of the oracle's. api is nil if jobs are
// left.
func (m *oracleModel) run(t *testing.T, seed uint64) (api *oracleAPI, drain, mean, median float64) {
	t.Helper()
	arrivals := m.arrivals(t)
	oracle := newOracleAPI(t, *m, seed)
	api = newOracleAPI(t, *m, seed)
	oracle.ask(arrivals)
	r, err := play(t.Context(), Options{
		Slots: oracleSlots, Latency: oracleLatency, Seed: seed, Arrivals: arrivals, For: 60 * 24 * time.Hour, Steps: 1,
	}, api, redistest.Database(t).Client(t))
	if err != nil {
		t.Fatal(m.name, err)
	}
	if r.Left > 0 || r.Completed != len(arrivals) {
		t.Errorf("%s: %d of %d jobs completed, %d are left", m.name, r.Completed, len(arrivals), r.Left)
		return nil, 0, 0, 0
	}
	idealMean, idealMedian := oracle.waits(arrivals)
	mean, median = api.waits(arrivals)
	// Waits below a second are no difference that a job notices.
	return api, api.last().Seconds() / oracle.last().Seconds(), max(1, mean) / max(1, idealMean), max(1, median) / max(1, idealMedian)
}

// Refusals by chance are taken for a limit, if at all, for a short time.
func TestRefusalsAtRandom(t *testing.T) {
	t.Parallel()
	for _, part := range []struct{ stray, drain float64 }{{.05, 1.2}, {.2, 3.2}} {
		m := oracleModel{name: fmt.Sprint(part.stray), api: "concurrency:10000", jobs: 5000, stray: part.stray}
		seeds := uint64(3)
		if *oracleAll {
			seeds = 8
		}
		for seed := range seeds {
			if m.name = fmt.Sprintf("%v of all calls, seed %d", part.stray, seed+1); !strings.Contains(m.name, *oracleOnly) {
				continue
			}
			if api, drain, _, _ := m.run(t, seed+1); api != nil {
				t.Logf("%s: drain %.2f, %d refused", m.name, drain, len(api.refused))
				if drain > part.drain {
					t.Errorf("%s: drain %.2f of the oracle's, want at most %v", m.name, drain, part.drain)
				}
			}
		}
	}
}

func TestOracle(t *testing.T) {
	t.Parallel()
	write := *oracleWrite
	held := write || *oracleHeld
	all := held || *oracleAll
	rows := [][]string{{"API", "drain", "mean wait", "median wait", "refused", "first window", "each later"}}
	for _, part := range []bool{false, true} {
		for _, m := range oracleModels() {
			bound := m.drain+m.wait > 0 || m.refused > 0
			if m.held != part || part && !held || !strings.Contains(m.name, *oracleOnly) || !all && *oracleOnly == "" && !bound {
				continue
			}
			api, drain, meanRatio, wait := m.run(t, 1)
			if api == nil {
				continue
			}
			first := 0
			for _, at := range api.refused {
				if at < m.window {
					first++
				}
			}
			later := float64(len(api.refused)-first) / max(1, (api.last()-m.window).Seconds()/m.window.Seconds())
			name := m.name
			if m.held {
				name += " (held out)"
			}
			row := []string{
				strings.NewReplacer(", ", ", ", ",", ", ").Replace(name), fmt.Sprintf("%.2f", drain), fmt.Sprintf("%.2f", meanRatio), fmt.Sprintf("%.2f", wait),
				fmt.Sprint(len(api.refused)), fmt.Sprint(first), fmt.Sprintf("%.1f", later),
			}
			rows = append(rows, row)
			t.Log(strings.Join(row, "  "))
			if m.drain > 0 && drain > m.drain || m.wait > 0 && wait > m.wait || m.refused > 0 && len(api.refused) > m.refused {
				t.Errorf("%s: drain %.2f, median wait %.2f of the oracle's, %d refused; want at most %v, %v, %d", m.name, drain, wait, len(api.refused), m.drain, m.wait, m.refused)
			}
		}
	}
	text := markdown.Table(1, rows)
	t.Log("\n" + text)
	if write {
		file := filepath.Join("..", "..", "..", "docs", "benchmarks.md")
		old, err := os.ReadFile(file)
		if err == nil {
			text, err = markdown.ReplaceSection(string(old), "oracle", text)
		}
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
