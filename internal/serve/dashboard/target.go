package dashboard

import (
	"context"
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/dashboard/chart"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/minutes"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// soon is the time within which expiring jobs are counted.
	soon = time.Hour
	// stripLength is the range of the strip of incidents.
	stripLength = 24 * time.Hour
	// mostKeys bounds the breakers of keys that are shown for a destination.
	mostKeys = 50
)

// target is a destination, as lists and its page show it.
type target struct {
	ops.Target // its incidents: the newest first
	limitedKeys
	// OpenKeysText says why breakers of keys are open, "" without any.
	OpenKeysText string
	Points       []minutes.Point
	// Strip is its last day, Spark its throughput.
	Strip, Spark template.HTML
	// NotReached says since when no worker reaches it, and why; "" if one does.
	NotReached string
	// Completed and Refused count the jobs of the points that completed, and the calls that were rate limited.
	Completed, Refused int
}

// Alive reports whether a worker serves it.
func (t *target) Alive() bool { return t.Workers > 0 }

// Open reports whether its breaker is not closed.
func (t *target) Open() bool { return t.Breaker.State != breaker.Closed }

// System reports whether it is one of Tidegate's own destinations.
func (t *target) System() bool { return store.System(t.Name) }

// Count is how many of its jobs are in a status.
func (t *target) Count(s string) int { return t.Survey.Counts[jobs.Status(s)] }

// Badge is the badge of its breaker's state, or of a destination that no worker reaches.
func (t *target) Badge() ops.Words {
	if t.Unreached != nil {
		return ops.Unreachable
	}
	return ops.StateWords(t.Breaker)
}

// limitedKeys are the breakers of keys that are not closed, or closed by hand.
type limitedKeys struct {
	// Limited are the first mostKeys of KeyCount.
	Limited  []breaker.Status
	KeyCount int
	// OpenKeys counts the keys whose breakers are not closed; OtherKeys the keys whose breakers are closed again, or
	// have counted refusals.
	OpenKeys, OtherKeys int
}

func limited(all []breaker.Status) limitedKeys {
	var k limitedKeys
	for _, b := range all {
		if b.State != breaker.Closed {
			k.OpenKeys++
		}
		if b.State != breaker.Closed || b.Forced != "" {
			k.Limited = append(k.Limited, b)
		}
	}
	k.KeyCount = len(k.Limited)
	k.OtherKeys = len(all) - k.KeyCount
	k.Limited = k.Limited[:min(k.KeyCount, mostKeys)]
	return k
}

// readTargets reads destinations, in a few round trips however many there are.
func (d *Dashboard) readTargets(ctx context.Context, of []jobs.Destination, workers jobs.Workers, s span) ([]*target, error) {
	now := d.now()
	found, err := d.ops.Targets(ctx, of, workers, soon, now)
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	names := make([]string, len(found))
	for i, t := range found {
		names[i] = t.Name
	}
	points, err := minutes.Read(ctx, d.rdb, store.Namespace(d.ns), names, s.begin(now), now, s.Step)
	if err != nil {
		return nil, fmt.Errorf("read counts: %w", err)
	}
	out := make([]*target, len(found))
	for i := range found {
		t := &target{Target: found[i], Points: points[i], limitedKeys: limited(found[i].Keys), OpenKeysText: explain.Conditions(found[i].Keys)}
		t.Keys = nil // they may be many
		slices.Reverse(t.Incidents)
		if t.Unreached != nil {
			t.NotReached = explain.NotReached(*t.Unreached, t.Waiting, now.UTC())
		}
		if err := t.draw(now); err != nil {
			return nil, err
		}
		out[i] = t
	}
	return out, nil
}

// draw counts the points, and draws them and the incidents.
func (t *target) draw(now time.Time) (err error) {
	spark := chart.Spark{Class: "ok"}
	for _, p := range t.Points {
		t.Completed += p.Completed
		t.Refused += p.Limited
		spark.Values = append(spark.Values, p.Completed)
	}
	spark.Title = plural(t.Completed, "job", "jobs") + " completed"
	if t.Spark, err = spark.SVG(); err != nil {
		return &broken{err}
	}
	t.Strip, err = drawStrip(t.Incidents, now)
	return err
}

// drawStrip draws the incidents of the last day.
func drawStrip(incidents []breaker.Incident, now time.Time) (template.HTML, error) {
	strip := chart.Strip{From: now.Add(-stripLength), To: now, Spans: incidentSpans(incidents, now)}
	n := 0
	for _, i := range incidents {
		if i.Ended.IsZero() || i.Ended.After(strip.From) {
			n++
		}
	}
	strip.Title = "Last 24 hours: " + plural(n, "incident", "incidents")
	svg, err := strip.SVG()
	if err != nil {
		return "", &broken{err}
	}
	return svg, nil
}

// incidentSpans converts incidents, the newest first, to spans of a chart.
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

// series is a row of values of points.
func series(points []minutes.Point, name, class string, value func(minutes.Point) int) chart.Series {
	s := chart.Series{Name: name, Class: class, Values: make([]int, len(points))}
	for i, p := range points {
		s.Values[i] = value(p)
	}
	return s
}

// drawCharts draws the three charts of a page, each step with a point; none without points.
func drawCharts(points []minutes.Point, step time.Duration, marks []chart.Span) (charts, error) {
	var out charts
	if len(points) == 0 {
		return out, nil
	}
	for _, c := range []struct {
		to *template.HTML
		t  chart.Time
	}{
		{&out.Throughput, chart.Time{Title: "Finished jobs", Series: []chart.Series{
			series(points, "completed", "ok", func(p minutes.Point) int { return p.Completed }),
			series(points, "failed", "bad", func(p minutes.Point) int { return p.Failed }),
			series(points, "expired or cancelled", "dim", func(p minutes.Point) int { return p.Expired + p.Cancelled }),
		}}},
		{&out.Backlog, chart.Time{Title: "Backlog", Form: chart.Area, Series: []chart.Series{
			series(points, "jobs in the backlog", "info", func(p minutes.Point) int { return p.Backlog }),
		}}},
		{&out.Refused, chart.Time{Title: "Refused calls", Series: []chart.Series{
			series(points, "refused", "bad", func(p minutes.Point) int { return p.Limited }),
			series(points, "other calls", "faint", func(p minutes.Point) int { return max(p.Calls-p.Limited, 0) }),
		}}},
	} {
		c.t.Start, c.t.Step, c.t.Mark = points[0].At, step, marks
		var err error
		if *c.to, err = c.t.SVG(); err != nil {
			return out, &broken{err}
		}
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
