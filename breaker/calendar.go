package breaker

import (
	"fmt"
	"time"
)

// calendar has the boundaries of fixed windows in a zone.
type calendar struct {
	per  time.Duration
	zone *time.Location
}

// validateZone checks the zone, and that the calendar has windows of this length.
func (r Rate) validateZone() error {
	if r.Burst > 1 {
		return fmt.Errorf("it has a burst and a zone: all %d calls of a fixed window may start at once", r.Calls)
	}
	if r.Zone == "Local" {
		return fmt.Errorf("the zone is Local: name one, such as UTC, that is the same on all machines")
	}
	if _, err := time.LoadLocation(r.Zone); err != nil {
		return fmt.Errorf("the zone %q is not known: use one such as UTC or Europe/Paris", r.Zone)
	}
	switch {
	case r.Per == week, r.Per == Month, r.Per >= time.Second && r.Per <= day && day%r.Per == 0:
		return nil
	}
	return fmt.Errorf("it is per %v: with a zone want a part of a day from 1s, 1d, 7d (a week) or 1mo", r.Per)
}

// boundary returns the i-th boundary after the one near an instant; they never decrease. Where
// the clocks of the zone are set, days and parts of a day are shorter or longer; windows of up to
// an hour are counted from the start of the day.
func (c calendar) boundary(near time.Time, i int) time.Time {
	y, m, d := near.Date()
	switch {
	case c.per == Month:
		return c.date(y, m+time.Month(i), 1, 0)
	case c.per == week:
		return c.date(y, m, d-(int(near.Weekday())+6)%7+7*i, 0)
	case c.per == day:
		return c.date(y, m, d+i, 0)
	}
	parts := int(near.Sub(c.date(y, m, d, 0)) / c.per)
	return c.date(y, m, d, (parts+i)*int(c.per/time.Second))
}

// date is when the clocks of the zone show a time, or skip it. time.Date returns an instant on
// either side of what they skip.
func (c calendar) date(y int, m time.Month, d, seconds int) time.Time {
	t := time.Date(y, m, d, 0, 0, seconds, 0, c.zone)
	_, offset := t.Zone()
	shown, want := t.Unix()+int64(offset), time.Date(y, m, d, 0, 0, seconds, 0, time.UTC).Unix()
	begin, end := t.ZoneBounds()
	switch {
	case shown < want:
		return end
	case shown > want:
		return begin
	}
	return t
}

// window returns the window that holds an instant.
func (c calendar) window(at time.Time) (from, to time.Time) {
	if c.per <= time.Hour {
		from, to = calendar{day, c.zone}.window(at)
		from = from.Add(at.Sub(from).Truncate(c.per))
		if end := from.Add(c.per); end.Before(to) {
			to = end
		}
		return from, to
	}
	near := at.In(c.zone)
	i := -2 // a zone may skip a day
	for !c.boundary(near, i+1).After(at) {
		i++
	}
	return c.boundary(near, i), c.boundary(near, i+1)
}

// End is when the fixed window ends that holds an instant; zero if the window slides, or its zone is not known here.
func (w LimitWindow) End(at time.Time) time.Time {
	zone, err := time.LoadLocation(w.Zone)
	if err != nil || w.Zone == "" {
		return time.Time{}
	}
	_, end := calendar{w.Window, zone}.window(at)
	return end
}
