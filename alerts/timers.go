package alerts

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// The events of timers.
const (
	eventPage  = "page"
	eventQuiet = "quiet"
)

// untilDue puts a timer off that has rung too early, which clocks and changed settings
// can bring about.
func (a *Alerts) untilDue(what alertJob, s *subject, now time.Time) error {
	c := s.last()
	if c == nil {
		return nil
	}
	var due time.Time
	switch {
	case strings.HasPrefix(what.Event, eventPage) && c.open() && a.o.OpenTooLong > 0:
		due = c.pageAt(a.o.OpenTooLong)
	case strings.HasPrefix(what.Event, eventQuiet) && !c.open():
		due = c.overAt()
	}
	if due.After(now) {
		return jobs.Reschedule(due.Sub(now))
	}
	return nil
}

// setTimers makes sure of the jobs by which later things are told at their time.
func (a *Alerts) setTimers(ctx context.Context, s *subject, name string, now time.Time) error {
	c := s.last()
	if c == nil || !c.open() && c.Told && c.Paged {
		return nil
	}
	var list []trigger
	if at := c.pageAt(a.o.OpenTooLong); c.open() && a.o.OpenTooLong > 0 {
		list = a.incidentTriggers(name, c.ID, fmt.Sprintf("%s-%d", eventPage, at.Unix()), at)
		if c.Openings > 1 && at.Before(now) {
			list = nil // it is due with this one
		}
	}
	if over := c.overAt(); over.After(now) {
		list = append(list, a.incidentTriggers(name, c.ID, fmt.Sprintf("%s-%d", eventQuiet, over.Unix()), over)...)
	}
	return a.send(ctx, list)
}
