package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

type forecastCmd struct {
	Destination destinationName `arg:"" name:"destination" help:"Name of the destination."`
	Key         string          `placeholder:"KEY" help:"Say also when the waiting jobs of this key have started."`
	outputFlag
}

// Validate refuses names that a key cannot have.
func (c *forecastCmd) Validate() error {
	if c.Key != "" && !jobs.ValidName(c.Key) {
		return inputErrorf("--key is not a valid key")
	}
	return nil
}

// Run prints the forecast of a destination.
func (c *forecastCmd) Run(ctx context.Context, p *Process, s *session) error {
	f, err := s.Forecast(ctx, string(c.Destination), c.Key)
	if err != nil {
		return noDestination(err)
	}
	return c.show(p, f, func(r *rows) { r.addForecast(f, time.Now()) })
}

// shownPoints is how many points of a backlog are printed, at most.
const shownPoints = 6

func (r *rows) addForecast(f *jobs.Forecast, now time.Time) {
	r.add("destination", f.Destination)
	r.add("backlog", strconv.Itoa(f.Backlog))
	if f.Waiting > 0 {
		r.add("waiting", plural(f.Waiting, "job waits", "jobs wait")+" for parents or behind a job of the same key: not part of the forecast")
	}
	r.add("empty", etaText(f.EmptyAt, now))
	r.addIf("held by", f.Binding)
	r.add("1 more worker", f.OneMore)
	if f.Key != nil {
		r.add("key "+f.Key.Name, plural(f.Key.Backlog, "job", "jobs")+"; empty "+etaText(f.Key.EmptyAt, now))
	}
	r.add("expire", plural(f.Expire, "job expires before it", "jobs expire before they")+" can start")
	for _, l := range f.First {
		text := "expires " + explain.At(l.ExpiresAt.Local(), now)
		if l.StartsAt != nil {
			text += ", would start " + explain.At(l.StartsAt.Local(), now)
		}
		r.add("  "+l.ID, text)
	}
	for i := 0; f.Backlog > 0 && i < shownPoints && len(f.Points) > 1; i++ {
		p := f.Points[i*(len(f.Points)-1)/(shownPoints-1)]
		r.add("  "+explain.At(p.At.Local(), now), plural(p.Backlog, "job", "jobs")+" left")
	}
	r.add("accuracy", f.Accuracy)
}

// etaText words when something starts: "16:40:00 (16:31:00 to 17:10:00)".
func etaText(e jobs.ETA, now time.Time) string {
	if e.At == nil {
		return "not known: " + e.Because
	}
	if e.To.Sub(now) < time.Second {
		return "now"
	}
	return explain.At(e.At.Local(), now) + " (" + explain.At(e.From.Local(), now) + " to " + explain.At(e.To.Local(), now) + "): " + e.Because
}
