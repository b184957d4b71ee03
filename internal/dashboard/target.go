package dashboard

import (
	"context"
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/dashboard/chart"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/minutes"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// silence is the time without a heartbeat after which a worker counts as stopped.
	silence = 30 * time.Second
	// soon is the time within which expiring jobs are counted.
	soon = time.Hour
	// stripLength is the range of the strip of incidents.
	stripLength = 24 * time.Hour
	// atOnce is how many jobs' relatives are read at the same time.
	atOnce = 8
	// mostKeys bounds the breakers of keys that are shown for a destination.
	mostKeys = 50
)

// target is a destination with its counts.
type target struct {
	Name    string
	Breaker breaker.Status
	// Keys are the breakers of keys that are not closed, or closed by hand, and their number;
	// OtherKeys counts the keys whose breakers are closed again, or have counted refusals.
	Keys      []breaker.Status
	KeyCount  int
	OtherKeys int
	// OpenKeys counts the open breakers of keys.
	OpenKeys int
	// OpenKeysText says why they are open, "" without any.
	OpenKeysText string
	Survey       jobs.Survey
	Backlog      int
	Waiting      int // not running
	Workers      int
	SeenAt       time.Time
	Incidents    []breaker.Incident
	Points       []minutes.Point
	// Strip is its last day, Spark its throughput.
	Strip, Spark template.HTML
	// Unreached is set while no worker reaches it; Partly, while some of its workers do not.
	Unreached *jobs.UnreachableInfo
	Partly    int
	// NotReached says since when no worker reaches it, and why; "" if one does.
	NotReached string
	// System is true of Tidegate's own destinations.
	System bool
}

// Alive reports whether a worker serves it.
func (t *target) Alive() bool { return t.Workers > 0 }

// Count is how many of its jobs are in a status.
func (t *target) Count(s string) int { return t.Survey.Counts[jobs.Status(s)] }

// Badge is the badge of its breaker's state, or of a destination that no worker reaches.
func (t *target) Badge() badge {
	if t.Unreached != nil {
		return badge{"gone", "Unreachable", "Calls do not leave any of its workers. They try again by themselves."}
	}
	return stateBadge(t.Breaker)
}

// Refused counts the calls of the points that were rate limited.
func (t *target) Refused() int {
	n := 0
	for _, p := range t.Points {
		n += p.Limited
	}
	return n
}

// workers are the workers with a recent heartbeat, by name.
func (d *Dashboard) workers(ctx context.Context) ([]jobs.WorkerInfo, error) {
	all, err := d.client.Workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	return all, nil
}

// setClock measures how far Redis's clock is ahead.
func (d *Dashboard) setClock(ctx context.Context) error {
	before := d.clock()
	t, err := d.client.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	d.ahead.Store(int64(t.Sub(before.Add(d.clock().Sub(before) / 2))))
	return nil
}

// readTargets reads destinations with their counts, in a few round trips however many there are.
func (d *Dashboard) readTargets(ctx context.Context, all []jobs.Destination, workers []jobs.WorkerInfo, s span) ([]*target, error) {
	out := make([]*target, len(all))
	if len(all) == 0 {
		return out, nil
	}
	now := d.now()
	names := make([]string, len(all))
	for i, dest := range all {
		names[i] = dest.Name
	}
	lists, err := d.ns.ListAll(ctx, d.rdb, names)
	if err != nil {
		return nil, fmt.Errorf("read breakers: %w", err)
	}
	own := make([]breaker.Status, len(all))
	for i, list := range lists {
		own[i] = list[0]
	}
	incidents, err := d.ns.IncidentsAll(ctx, d.rdb, own)
	if err != nil {
		return nil, fmt.Errorf("read incidents: %w", err)
	}
	surveys, err := d.client.Surveys(ctx, names, soon)
	if err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	points, err := minutes.Read(ctx, d.rdb, store.Namespace(d.ns), names, s.begin(now), now, s.Step)
	if err != nil {
		return nil, fmt.Errorf("read counts: %w", err)
	}
	serving, partly := map[string]int{}, map[string]int{}
	for _, w := range workers {
		for _, name := range w.Destinations {
			serving[name]++
			if _, ok := w.Unreachable[name]; ok {
				partly[name]++
			}
		}
	}
	for i, dest := range all {
		t := &target{
			Name: dest.Name, SeenAt: dest.SeenAt, Breaker: own[i], Keys: lists[i][1:],
			Survey: surveys[i], Incidents: incidents[i], Points: points[i], Workers: serving[dest.Name], Partly: partly[dest.Name],
		}
		if u, all := jobs.Workers(workers).Unreached(dest.Name); all {
			t.Unreached = &u
		}
		t.count(now)
		if err := t.draw(now); err != nil {
			return nil, err
		}
		out[i] = t
	}
	return out, nil
}

// count derives numbers from what was read.
func (t *target) count(now time.Time) {
	t.OpenKeysText = explain.Conditions(t.Keys)
	t.Keys, t.OpenKeys, t.OtherKeys = limitedKeys(t.Keys)
	t.KeyCount = len(t.Keys)
	t.Keys = t.Keys[:min(len(t.Keys), mostKeys)]
	if t.Survey.Ready+t.Survey.Held+t.Survey.Counts[jobs.Running] == 0 {
		t.Breaker.SlowStart = 0 // it goes on with the next calls
	}
	for status, n := range t.Survey.Counts {
		if !status.Final() {
			t.Backlog += n
		}
	}
	t.Waiting = t.Backlog - t.Survey.Counts[jobs.Running]
	if t.Unreached != nil {
		t.NotReached = explain.NotReached(*t.Unreached, t.Waiting, now.UTC())
	}
	slices.Reverse(t.Incidents)
	// Workers do not list Tidegate's own destinations.
	if t.Workers == 0 && store.System(t.Name) && now.Sub(t.SeenAt) < silence {
		t.Workers = 1
	}
}

// limitedKeys returns the breakers that are not closed, or closed by hand, how many are not closed, and how
// many are left out.
func limitedKeys(all []breaker.Status) (limited []breaker.Status, open, others int) {
	for _, k := range all {
		if k.State != breaker.Closed {
			open++
		}
		if k.State != breaker.Closed || k.Forced != "" {
			limited = append(limited, k)
		}
	}
	return limited, open, len(all) - len(limited)
}

// points reads the statistics, a point for each step.
func (d *Dashboard) points(ctx context.Context, name string, since, until time.Time, step time.Duration) ([]minutes.Point, error) {
	points, err := minutes.Read(ctx, d.rdb, store.Namespace(d.ns), []string{name}, since, until, step)
	if err != nil {
		return nil, fmt.Errorf("read counts of %s: %w", name, err)
	}
	return points[0], nil
}

// Completed counts the jobs of the points that completed.
func (t *target) Completed() int {
	n := 0
	for _, p := range t.Points {
		n += p.Completed
	}
	return n
}

func (t *target) draw(now time.Time) error {
	var err error
	strip := chart.Strip{From: now.Add(-stripLength), To: now, Spans: incidentSpans(t.Incidents, now)}
	n := 0
	for _, i := range t.Incidents {
		if i.Ended.IsZero() || i.Ended.After(strip.From) {
			n++
		}
	}
	strip.Title = "Last 24 hours: " + plural(n, "incident", "incidents")
	if t.Strip, err = strip.SVG(); err != nil {
		return &broken{err}
	}
	spark := chart.Spark{Title: plural(t.Completed(), "job", "jobs") + " completed", Class: "ok"}
	for _, p := range t.Points {
		spark.Values = append(spark.Values, p.Completed)
	}
	if t.Spark, err = spark.SVG(); err != nil {
		return &broken{err}
	}
	return nil
}

// incidentSpans converts incidents to spans of a chart.
func incidentSpans(incidents []breaker.Incident, now time.Time) []chart.Span {
	var out []chart.Span
	for _, i := range slices.Backward(incidents) {
		end, text := i.Ended, " UTC: lasted "+lasted(i.Started, i.Ended)
		class := "bad"
		if end.IsZero() {
			end, text = now, " UTC: ongoing for "+lasted(i.Started, now)
		}
		if i.Cause == breaker.CauseManual {
			class = "hand"
		}
		out = append(out, chart.Span{
			From: i.Started, To: end, Class: class, Link: incidentPath(i.ID),
			Title: i.Started.UTC().Format("Jan 2 15:04:05") + text + "; " + explain.Cause(i.Cause) + "; " + plural(i.Wasted, "wasted call", "wasted calls"),
		})
	}
	return out
}

// charts of points, for a page.
type charts struct {
	Throughput, Backlog, Refused template.HTML
}

// drawCharts draws the three charts of a page; none without points.
func drawCharts(points []minutes.Point, start time.Time, step time.Duration, marks []chart.Span) (charts, error) {
	var out charts
	if len(points) == 0 {
		return out, nil
	}
	values := func(f func(minutes.Point) int) []int {
		v := make([]int, len(points))
		for i, p := range points {
			v[i] = f(p)
		}
		return v
	}
	for _, c := range []struct {
		to *template.HTML
		t  chart.Time
	}{
		{&out.Throughput, chart.Time{Title: "Finished jobs", Series: []chart.Series{
			{Name: "completed", Class: "ok", Values: values(func(p minutes.Point) int { return p.Completed })},
			{Name: "failed", Class: "bad", Values: values(func(p minutes.Point) int { return p.Failed })},
			{Name: "expired or cancelled", Class: "dim", Values: values(func(p minutes.Point) int { return p.Expired + p.Cancelled })},
		}}},
		{&out.Backlog, chart.Time{Title: "Backlog", Form: chart.Area, Series: []chart.Series{
			{Name: "jobs in the backlog", Class: "info", Values: values(func(p minutes.Point) int { return p.Backlog })},
		}}},
		{&out.Refused, chart.Time{Title: "Refused calls", Series: []chart.Series{
			{Name: "refused", Class: "bad", Values: values(func(p minutes.Point) int { return p.Limited })},
			{Name: "other calls", Class: "faint", Values: values(func(p minutes.Point) int { return max(p.Calls-p.Limited, 0) })},
		}}},
	} {
		c.t.Start, c.t.Step, c.t.Mark = start, step, marks
		svg, err := c.t.SVG()
		if err != nil {
			return out, &broken{err}
		}
		*c.to = svg
	}
	return out, nil
}

// sumPoints adds up the points of several destinations.
func sumPoints(targets []*target) []minutes.Point {
	var out []minutes.Point
	for _, t := range targets {
		for i, p := range t.Points {
			if i == len(out) {
				out = append(out, minutes.Point{At: p.At, Backlog: -1})
			}
			o := &out[i]
			o.Completed += p.Completed
			o.Failed += p.Failed
			o.Cancelled += p.Cancelled
			o.Expired += p.Expired
			o.Rescheduled += p.Rescheduled
			o.Calls += p.Calls
			o.Limited += p.Limited
			if p.Backlog >= 0 {
				o.Backlog = max(o.Backlog, 0) + p.Backlog
			}
		}
	}
	return out
}
