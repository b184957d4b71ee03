//go:build !race

package breaker

import (
	gocmp "cmp"
	flags "flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/markdown"
	"github.com/tidegate/tidegate/internal/testkit/quota"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

var limitsOnly = flags.String("limits.only", "", "TestLimits: play the models whose name has this in it, and print them")

// limitsColumn is a breaker that is compared.
type limitsColumn struct {
	name    string
	options func(quota.Model) Options
}

// limitsColumns are pairs: a plain breaker, and one that learns, with the same cooldown.
func limitsColumns() []limitsColumn {
	var columns []limitsColumn
	add := func(name string, cooldown func(quota.Model) time.Duration) {
		for _, learn := range []bool{false, true} {
			columns = append(columns, limitsColumn{map[bool]string{false: "plain, ", true: "learned, "}[learn] + name, func(m quota.Model) Options {
				return Options{Cooldown: cooldown(m), MaxCooldown: 48 * time.Hour, NoLearning: !learn}
			}})
		}
	}
	add("30 s", func(quota.Model) time.Duration { return 30 * time.Second })
	add("window/20", func(m quota.Model) time.Duration { return m.Window / 20 })
	return columns
}

// limitsCell is what came of a model with one breaker.
type limitsCell struct {
	efficiency, tail float64 // of the oracle's accepted calls, after two windows and in the last third
	waste            float64 // refused calls per window, after two windows
	longest          time.Duration
}

func (c limitsCell) String() string {
	return fmt.Sprintf("%.2f · %.2f · %.3g · %v", c.efficiency, c.tail, c.waste, roundWait(c.longest))
}

// limitsReport is a table of all that was played.
func limitsReport(models []quota.Model, columns []limitsColumn, cells [][]limitsCell) string {
	head, mean := []string{"limit"}, []string{"mean"}
	for i, c := range columns {
		head = append(head, c.name)
		var of limitsCell
		for _, row := range cells {
			of.efficiency += min(1, row[i].efficiency) / float64(len(cells))
			of.tail += min(1, row[i].tail) / float64(len(cells))
			of.waste += row[i].waste / float64(len(cells))
			of.longest += row[i].longest / time.Duration(len(cells))
		}
		mean = append(mean, of.String())
	}
	rows := [][]string{head}
	for i, m := range models {
		row := []string{m.Name}
		for _, c := range cells[i] {
			row = append(row, c.String())
		}
		rows = append(rows, row)
	}
	return markdown.Table(1, append(rows, mean))
}

// The scripts do as well at limits that the API does not announce as the double with which docs/benchmarks.md is made.
func TestLimits(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	var models []quota.Model
	for _, m := range quota.Models() {
		if _, short := limitsBounds[m.Name]; !strings.Contains(m.Name, *limitsOnly) || *limitsOnly == "" && !short {
			continue
		}
		if !m.Changes {
			m.Windows = min(m.Windows, max(9, int(4*time.Minute/m.Window))) // a few calls more or less are much of a short run
		}
		models = append(models, m)
	}
	columns := limitsColumns()
	cells := playLimits(t, models, columns)
	if t.Failed() {
		return
	}
	t.Log("\n" + limitsReport(models, columns, cells))
	for i, m := range models {
		for j := 0; j < len(columns); j += 2 {
			if harm := limitsHarm(cells[i][j], cells[i][j+1]); harm != "" {
				t.Errorf("%s, %s: %s", m.Name, columns[j+1].name, harm)
			}
		}
		if *limitsOnly != "" {
			continue
		}
		for j, want := range limitsBounds[m.Name] {
			j = 2*j + 1
			if got := cells[i][j]; got.efficiency < want.efficiency || got.waste > want.waste {
				t.Errorf("%s, %s: efficiency %.3f and %.3g wasted calls per window, want at least %v and at most %v",
					m.Name, columns[j].name, got.efficiency, got.waste, want.efficiency, want.waste)
			}
		}
	}
}

// limitsBound is what a breaker reaches at least.
type limitsBound struct{ efficiency, waste float64 }

// limitsBounds are those of the columns that learn, for the models of the short form.
var limitsBounds = map[string][]limitsBound{
	"fixed 100/1m, light":       {{1, 0}, {1, 0}},
	"fixed 100/1m, 1 caller":    {{.92, 4.5}, {.92, 2.5}},
	"fixed 100/1m, 8 callers":   {{.92, 6}, {.92, 5}},
	"from call 250/15m":         {{.92, 4}, {.92, 2}},
	"sliding 30/7m":             {{.89, 2}, {.89, 2}},
	"sliding 40/3m, 12 callers": {{.9, 2}, {.89, 2}},
	"bucket 5, 2/s":             {{.72, 4}, {.92, 6}},
	"bucket 20, 0.2/s":          {{.92, 5}, {.92, 10}},
	"penalty 200/10m +20s":      {{.77, 9}, {.77, 9}},
	"fixed 10/10s + 60/2m":      {{.85, 7}, {.9, 6}},
	"bucket 40, 0.5/s, 2x, 1x":  {{.92, 8}, {.94, 10}},
	"sliding 60/5m, then 30":    {{.9, 4}, {.89, 5}},
	"5 at once":                 {{.87, 2}, {.87, 2}},
	"no limit":                  {{.999, 0}, {.999, 0}},
}

// limitsHarm says how the learner of a cooldown does more harm than good, "" if it does not:
// it may be 7 % slower than the plain breaker, or waste five times fewer calls.
func limitsHarm(plain, learned limitsCell) string {
	if learned.efficiency >= .93*plain.efficiency || learned.waste*5 <= plain.waste {
		return ""
	}
	return fmt.Sprintf("efficiency %.2f instead of %.2f, with %.3g instead of %.3g wasted calls per window",
		learned.efficiency, plain.efficiency, learned.waste, plain.waste)
}

// A run depends on its seed alone.
func TestSimulationIsRepeatable(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	for _, m := range quota.Models() {
		if m.Name != "fixed 100/1m, 8 callers" {
			continue
		}
		m.Windows = 2
		o := limitsColumns()[0].options(m)
		first, again, other := simulate(t, rdb, m, &o, 1), simulate(t, rdb, m, &o, 1), simulate(t, rdb, m, &o, 2)
		if diff := cmp.Diff(first, again, cmp.AllowUnexported(simResult{})); diff != "" {
			t.Errorf("the same seed gave another run (-first +again):\n%s", diff)
		}
		if cmp.Equal(first, other, cmp.AllowUnexported(simResult{})) {
			t.Error("another seed gave the same run")
		}
	}
}

// playLimits plays all models with all columns: as many at once as there are processors, each
// with a Redis of its own.
func playLimits(t *testing.T, models []quota.Model, columns []limitsColumn) [][]limitsCell {
	t.Helper()
	cells := make([][]limitsCell, len(models))
	work := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		rdb := redistest.Start(t).Client(t)
		wg.Go(func() {
			for i := range work {
				cells[i] = playLimit(t, rdb, models[i], columns)
			}
		})
	}
	// The longest first, so that the last ones are short.
	order := make([]int, len(models))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return gocmp.Compare(models[b].Windows, models[a].Windows) })
	for _, i := range order {
		if t.Failed() {
			break
		}
		work <- i
	}
	close(work)
	wg.Wait()
	return cells
}

func playLimit(t *testing.T, rdb redis.UniversalClient, m quota.Model, columns []limitsColumn) []limitsCell {
	t.Helper()
	cells := make([]limitsCell, len(columns))
	oracle := simulate(t, rdb, m, nil, 0)
	for i, column := range columns {
		o := column.options(m)
		r := simulate(t, rdb, m, &o, 0)
		part := func(from int) float64 {
			return float64(sum(r.accepted[from:])) / float64(max(1, sum(oracle.accepted[from:])))
		}
		cells[i] = limitsCell{part(2), part(m.Windows * 2 / 3), float64(sum(r.refused[2:])) / float64(m.Windows-2), r.longest}
	}
	return cells
}

// Hints teach: once two of them have come, fewer calls are refused than by a breaker that obeys hints alone, and about as many as
// without hints.
func TestHintsWasteFewCalls(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	rdb := redistest.Database(t).Client(t)
	for _, name := range []string{"fixed 100/1m", "from call 100/1m", "sliding 100/1m", "bucket 50, 1/s", "bucket 5, 2/s", "5 at once"} {
		m := quota.Models()[slices.IndexFunc(quota.Models(), func(m quota.Model) bool { return m.Name == name })]
		m.Windows = 10
		if m.Window < 30*time.Second {
			m.Windows = 20
		}
		learn, obey := Options{Cooldown: 30 * time.Second, MaxCooldown: 48 * time.Hour}, Options{Cooldown: 30 * time.Second, NoLearning: true}
		oracle := simulate(t, rdb, m, nil, 1)
		without, with, obeyed := simulate(t, rdb, m, &learn, 1), simulate(t, rdb, m, &learn, 1, time.Second), simulate(t, rdb, m, &obey, 1, time.Second)
		refused := func(r simResult) int { return sum(r.refused[m.Windows*3/10:]) }
		t.Logf("%-20s %v, of %d calls: without a hint %d accepted, %d refused, of these %d after 3/10 of the time; with one %d, %d, %d; obeyed alone %d, %d, %d", name,
			m.Window*time.Duration(m.Windows), sum(oracle.accepted), sum(without.accepted), sum(without.refused), refused(without),
			sum(with.accepted), sum(with.refused), refused(with), sum(obeyed.accepted), sum(obeyed.refused), refused(obeyed))
		if refused(with) > refused(without)+len(with.refused)*7/10 || sum(with.refused) > sum(obeyed.refused) || sum(with.accepted)*10 < sum(obeyed.accepted)*9 {
			t.Errorf("%s: too many calls were refused, or too few accepted", name)
		}
	}
}
