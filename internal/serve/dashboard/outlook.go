package dashboard

import (
	"context"
	"html/template"
	"time"

	"github.com/tidegate/tidegate/internal/serve/dashboard/chart"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/minutes"
	"github.com/tidegate/tidegate/jobs"
)

// outlook is the forecast of a destination. Picture has the backlog of the time before, too; "" if there is nothing
// to forecast.
type outlook struct {
	*jobs.Forecast

	Picture template.HTML
}

// leastPast is how many steps the picture has of the past, at least, if there are as many.
const leastPast = 15

func (d *Dashboard) readOutlook(ctx context.Context, t *target, step time.Duration) (*outlook, error) {
	f, err := d.ops.Forecast(ctx, t.Name, "")
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the operation
	}
	o := &outlook{Forecast: f}
	if f.Backlog == 0 || f.EmptyAt.At == nil || !f.EmptyAt.At.After(f.At) || len(f.Points) < 2 {
		return o, nil
	}
	length := f.EmptyAt.At.Sub(f.At)
	part := func(at time.Time) float64 { return max(0, float64(at.Sub(f.At))/float64(length)) }
	ahead := &chart.Ahead{
		Title: "empty at " + shortTime(*f.EmptyAt.At, f.At) + " (" + shortTime(*f.EmptyAt.From, f.At) + " to " + shortTime(*f.EmptyAt.To, f.At) + "), " + o.Expiring(),
		Name:  "to start", Early: part(*f.EmptyAt.From), Late: part(*f.EmptyAt.To),
	}
	for _, p := range f.Points {
		ahead.Points = append(ahead.Points, chart.Level{At: p.At, N: p.Backlog})
	}
	for _, l := range f.First {
		ahead.Marks = append(ahead.Marks, chart.Span{From: l.ExpiresAt, Title: shortTime(l.ExpiresAt, f.At) + ": " + l.ID + " expires before it can start"})
	}
	past := t.Points[max(0, len(t.Points)-max(leastPast, int(2*length/step))):]
	c := chart.Time{
		Title: "Backlog", Form: chart.Area, Start: f.At, Step: step, Mark: incidentSpans(t.Incidents, f.At), Ahead: ahead,
		Series: []chart.Series{series(past, "jobs in the backlog", "info", func(p minutes.Point) int { return p.Backlog })},
	}
	if len(past) > 0 {
		c.Start = past[0].At
	}
	o.Picture, err = c.SVG()
	return o, err
}

// Ends says when the backlog is empty, or why that is not known.
func (o *outlook) Ends() string {
	switch {
	case o.Backlog == 0:
		return "No job waits for a start."
	case o.EmptyAt.At == nil:
		return "It cannot be said when the backlog is empty: " + o.EmptyAt.Because + "."
	}
	return "The backlog is empty in about " + explain.Duration(o.EmptyAt.At.Sub(o.At)) + ", if no job is enqueued."
}

// Expiring counts the jobs that expire.
func (o *outlook) Expiring() string {
	return plural(o.Expire, "job expires before it can start", "jobs expire before they can start")
}
