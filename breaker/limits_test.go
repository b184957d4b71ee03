//go:build !race

package breaker

import (
	"container/heap"
	flags "flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/markdown"
	"github.com/tidegate/tidegate/internal/test/testkit/quota"
)

// TestLimits plays all models of limits without Redis, in virtual time, in seconds:
//
//	go test ./breaker -run TestLimits -v -args -limits.only bucket
var (
	limitsOnly  = flags.String("limits.only", "", "TestLimits: play the models whose name has this in it, and print them")
	limitsWrite = flags.Bool("limits.write", false, "TestLimits: write the table into docs/benchmarks.md")
)

// limitRun is one run of a model.
type limitRun struct {
	quota.Model
	limiter  quota.Limiter
	double   *double // nil: an oracle that knows the limit makes the calls
	rng      *rand.Rand
	now, end time.Duration // since 1970
	moments  moments
	number   int             // of the last moment
	jobs     []time.Duration // with a Demand: those that wait
	flying   int
	wakeAt   time.Duration

	began             time.Duration
	accepted, refused int // after two windows
}

func playLimit(m quota.Model, d *double, seed uint64) *limitRun {
	rng := rand.New(rand.NewPCG(seed, 1))
	start := 1_700_000_000*time.Second + time.Duration(rng.Int64N(int64(7*24*time.Hour))).Truncate(time.Microsecond)
	r := &limitRun{Model: m, double: d, rng: rng, now: start, began: start, end: start + time.Duration(m.Windows)*m.Window}
	r.limiter = m.New(quota.Run{Start: start, End: r.end, Rand: rand.New(rand.NewPCG(seed, 2))})
	if m.Demand != nil {
		r.demand(rand.New(rand.NewPCG(seed, 3)))
	}
	r.dispatch()
	for len(r.moments) > 0 && r.moments[0].at < r.end {
		e := heap.Pop(&r.moments).(moment)
		r.now = e.at
		e.do()
		r.dispatch()
	}
	return r
}

func (r *limitRun) demand(rng *rand.Rand) {
	at, n := r.Demand(r.now, rng)
	r.at(at, func() {
		r.jobs = append(r.jobs, slices.Repeat([]time.Duration{r.now}, n)...)
		r.demand(rng)
	})
}

func (r *limitRun) dispatch() {
	for r.flying < r.Callers && (r.Demand == nil || len(r.jobs) > 0) {
		next, decides := r.limiter.Next(r.now), false
		start := next <= r.now
		if r.double != nil {
			var wait float64
			start, decides, wait = r.double.ask(inSeconds(r.now), r.flying)
			next = r.now + max(time.Microsecond, time.Duration(math.Ceil(wait*1e6))*time.Microsecond)
		}
		if !start {
			if r.wakeAt <= r.now || next < r.wakeAt {
				r.wakeAt = next
				r.at(next, func() {})
			}
			return
		}
		r.start(decides)
	}
}

// start makes a call, and reports its outcome when it is over.
func (r *limitRun) start(probe bool) {
	if r.Demand != nil {
		r.jobs = r.jobs[1:]
	}
	r.flying++
	sent, fails := r.now, r.rng.Float64() < r.Failing
	took := (r.Fastest + time.Duration(r.rng.Float64()*float64(r.Slowest-r.Fastest))).Truncate(time.Microsecond)
	decides := sent + time.Duration(float64(took)*r.Decides).Truncate(time.Microsecond)
	if r.double == nil {
		decides = sent
	}
	over := func(at time.Duration, again bool, report func(d *double)) {
		r.at(at, func() {
			r.flying--
			if again && r.Demand != nil {
				r.jobs = append([]time.Duration{r.now}, r.jobs...)
			}
			if r.double != nil {
				report(r.double)
			}
		})
	}
	r.at(decides, func() {
		end := sent + took
		counts := r.now-r.began >= 2*r.Window
		switch {
		case fails:
			over(end, true, func(d *double) { d.failed(inSeconds(r.now), inSeconds(sent), probe) })
		case !r.limiter.Take(r.now, end):
			if counts {
				r.refused++
			}
			over(min(end, 2*r.now-sent), true, func(d *double) { d.refused(inSeconds(r.now), inSeconds(sent), probe, r.flying) })
		default:
			if counts {
				r.accepted++
			}
			if d, ok := r.limiter.(quota.Delayer); ok {
				end += d.Delay()
			}
			over(end, false, func(d *double) { d.accepted(inSeconds(r.now), inSeconds(sent), probe, r.flying) })
		}
	})
}

func (r *limitRun) at(at time.Duration, do func()) {
	r.number++
	heap.Push(&r.moments, moment{at, r.number, do})
}

type moment struct {
	at time.Duration
	n  int
	do func()
}

type moments []moment

func (q moments) Len() int { return len(q) }
func (q moments) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q moments) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *moments) Push(x any)   { *q = append(*q, x.(moment)) }

func (q *moments) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last], *q = moment{}, (*q)[:last]
	return e
}

func inSeconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }

type limitGroup struct {
	name, parts       string
	efficiency, waste float64
}

// limitGroups are kinds of limits, by a part of their models' names, with the least mean efficiency and the most wasted calls
// a window (geometric mean). The first that fits counts.
var limitGroups = []limitGroup{
	{"bursts, light work", "bursts,light", .97, 1.5},
	{"no limit, stray 429", "stray,no limit", .97, 1.5},
	{"penalties, bans", "penalty,ban,velocity", .66, 2.8},
	{"another consumer", "others", .8, 7},
	{"changing", "½,2x,+5,then", .9, 10.5},
	{"stacked", " + ", .92, 6},
	{"calls at once", "at once", .97, 1.2},
	{"buckets, spacing", "bucket,GCRA,spaced,refill", .9, 2.4},
	{"windows", "", .9, 3},
}

func TestLimits(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"kind of limit", "models"}}
	for _, g := range limitGroups {
		rows = append(rows, []string{g.name})
	}
	oracle := map[string]int{} // what it has accepted, by model: the cooldown makes no difference to it
	for _, cooldown := range []string{"30 s", "window/20"} {
		found := make([]struct{ n, efficiency, waste float64 }, len(limitGroups))
		for _, m := range quota.Models() {
			if !strings.Contains(m.Name, *limitsOnly) {
				continue
			}
			d := &double{cooldown: 30, early: true, capacity: float64(m.Callers)}
			if cooldown != "30 s" {
				d.cooldown = m.Window.Seconds() / 20
			}
			if _, played := oracle[m.Name]; !played {
				oracle[m.Name] = playLimit(m, nil, 0).accepted
			}
			got := playLimit(m, d, 0)
			efficiency, waste := min(1, float64(got.accepted)/float64(max(1, oracle[m.Name]))), float64(got.refused)/float64(m.Windows-2)
			if *limitsOnly != "" {
				t.Logf("%-10s %-28s %.2f %.3g", cooldown, m.Name, efficiency, waste)
			}
			i := slices.IndexFunc(limitGroups, func(g limitGroup) bool {
				return slices.ContainsFunc(strings.Split(g.parts, ","), func(part string) bool { return strings.Contains(m.Name, part) })
			})
			found[i].n++
			found[i].efficiency += efficiency
			found[i].waste += math.Log(max(.01, waste))
		}
		rows[0] = append(rows[0], cooldown+": efficiency", "wasted")
		for i, f := range found {
			efficiency, waste := f.efficiency/f.n, math.Exp(f.waste/f.n)
			rows[i+1] = append(append(rows[i+1][:1], fmt.Sprint(f.n)), append(rows[i+1][min(2, len(rows[i+1])):], fmt.Sprintf("%.3f", efficiency), fmt.Sprintf("%.2f", waste))...)
			if *limitsOnly == "" && (efficiency < limitGroups[i].efficiency || waste > limitGroups[i].waste) {
				t.Errorf("%s, %s: %.3f, %.2f wasted, want at least %v, and at most %v", cooldown, limitGroups[i].name, efficiency, waste, limitGroups[i].efficiency, limitGroups[i].waste)
			}
		}
	}
	text := markdown.Table(2, rows)
	t.Log("\n" + text)
	if *limitsWrite && *limitsOnly == "" {
		file := filepath.Join("..", "docs", "benchmarks.md")
		old, err := os.ReadFile(file)
		if err == nil {
			text, err = markdown.ReplaceSection(string(old), "limits", text)
		}
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
