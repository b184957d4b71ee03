package alerts

import (
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Breakers that open and close again and again are one case, not many:
const (
	// flapOpenings within flapWithin are a case of flapping, the last of them joins the
	// message of the one before.
	flapOpenings = 3
	flapWithin   = 10 * time.Minute
	// A case that has flapped is over when the breaker has been CLOSED for as long as
	// its last cooldown was, but within these bounds.
	quietAtLeast = time.Minute
	quietAtMost  = 10 * time.Minute
	// keysQuiet is the same for the keys of a destination.
	keysQuiet = time.Minute
)

// incidentCase is what one message is about: from the opening of a breaker until it
// has recovered. Times are on Redis's clock.
type incidentCase struct {
	// ID is that of its first incident.
	ID string `json:"id"`
	// Incident is the id of the last one.
	Incident string `json:"incident"`
	// Since is when the first one began, Started the last one, Ended when that closed;
	// zero while it lasts.
	Since   time.Time `json:"since"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	// Openings counts the incidents.
	Openings int `json:"openings"`
	// Last counts what happened in the last incident, Before in those before it.
	Last   counts `json:"last"`
	Before counts `json:"before"`
	// Cause, EndedBy, Reason and By are those of the last incident.
	Cause   string `json:"cause"`
	EndedBy string `json:"ended_by,omitempty"`
	Reason  string `json:"reason,omitempty"`
	By      string `json:"by,omitempty"`
	// Cooldown is the last one of the last incident.
	Cooldown time.Duration `json:"cooldown"`
	// Told and Paged say that Slack and PagerDuty know all that there is to know, so
	// that the case can be forgotten once there is a newer one.
	Told  bool `json:"told,omitempty"`
	Paged bool `json:"paged,omitempty"`
}

type counts struct {
	Probes      int `json:"probes,omitempty"`
	Wasted      int `json:"wasted,omitempty"`
	Rescheduled int `json:"rescheduled,omitempty"`
}

func (c counts) plus(o counts) counts {
	return counts{c.Probes + o.Probes, c.Wasted + o.Wasted, c.Rescheduled + o.Rescheduled}
}

func (c *incidentCase) open() bool { return c.Ended.IsZero() }

// overAt is when the case is over: at once, or after a quiet time if it flapped. Zero
// while it is open.
func (c *incidentCase) overAt() time.Time {
	switch {
	case c.open():
		return time.Time{}
	case c.Openings == 1:
		return c.Ended
	}
	return c.Ended.Add(min(max(c.Cooldown, quietAtLeast), quietAtMost))
}

// pageAt is when on-call is paged if the last incident is still open then. One that was
// closed for a moment counts anew: where a backlog uses an hour's quota up in a minute,
// hour after hour, nothing is wrong.
func (c *incidentCase) pageAt(tooLong time.Duration) time.Time { return c.Started.Add(tooLong) }

// pageDue says whether the last incident was open at its pageAt.
func (c *incidentCase) pageDue(now time.Time, tooLong time.Duration) bool {
	if tooLong <= 0 {
		return false
	}
	last := now
	if !c.open() {
		last = c.Ended
	}
	return !last.Before(c.pageAt(tooLong))
}

// subject is what is known of one breaker: its cases, the oldest first. The last one
// is kept for the sake of the next, whether or not it is over.
type subject struct {
	Cases []incidentCase `json:"cases"`
	// Openings are the last times at which it opened.
	Openings []time.Time `json:"openings"`
}

// mostCases bounds what is remembered while nobody can be told.
const mostCases = 100

// last is the case that a new incident may join, nil if there is none.
func (s *subject) last() *incidentCase {
	if len(s.Cases) == 0 {
		return nil
	}
	return &s.Cases[len(s.Cases)-1]
}

// news is how old the end of an incident may be that nobody has been told of: people
// who hear of it later would only wonder.
const news = time.Hour

// merge brings the subject up to date with the breaker's incidents, the oldest first.
// Those that ended before since are not told of any more if they are news. It says
// whether anything has changed.
func (s *subject) merge(incidents []breaker.Incident, cooldowns map[string]time.Duration, since, now time.Time) bool {
	if recent := now.Add(-news); since.Before(recent) {
		since = recent
	}
	changed := false
	seen := false
	// What follows the last one is news, whatever the clock says: it can be set back.
	known := -1
	if last := s.last(); last != nil {
		known = slices.IndexFunc(incidents, func(in breaker.Incident) bool { return in.ID == last.Incident })
	}
	for i, in := range incidents {
		last := s.last()
		if i == known {
			seen = true
			changed = last.take(in, cooldowns[in.ID]) || changed
			continue
		}
		if i < known || known < 0 && last != nil && !in.Started.After(last.Started) || !in.Ended.IsZero() && in.Ended.Before(since) {
			continue
		}
		if last != nil && last.open() {
			// How it ended was not kept; the next one tells that it has.
			last.Ended = in.Started
		}
		s.begin(in)
		s.last().take(in, cooldowns[in.ID])
		seen, changed = true, true
	}
	if last := s.last(); last != nil && last.open() && !seen {
		last.Ended, last.EndedBy = now, breaker.CauseLost
		changed = true
	}
	return changed
}

// begin makes a new case of an incident, or lets it join the last one.
func (s *subject) begin(in breaker.Incident) {
	last := s.last()
	joins := last != nil && (in.Started.Before(last.Ended.Add(min(last.Cooldown, quietAtMost))) ||
		in.Started.Before(last.overAt()) || s.flaps(in.Started))
	s.Openings = append(s.Openings, in.Started)
	if extra := len(s.Openings) - flapOpenings; extra > 0 {
		s.Openings = slices.Delete(s.Openings, 0, extra)
	}
	if joins {
		last.Before, last.Last = last.Before.plus(last.Last), counts{}
		last.Openings++
		last.Started, last.Ended, last.EndedBy, last.Incident = in.Started, time.Time{}, "", in.ID
		last.Told, last.Paged = false, false
		return
	}
	s.Cases = append(s.Cases, incidentCase{ID: in.ID, Incident: in.ID, Since: in.Started, Started: in.Started, Openings: 1})
	if len(s.Cases) > mostCases {
		s.Cases = slices.Delete(s.Cases, 0, len(s.Cases)-mostCases)
	}
}

// flaps says whether an opening at t would be one too many in a short time.
func (s *subject) flaps(t time.Time) bool {
	n := 1
	for _, at := range s.Openings {
		if t.Sub(at) < flapWithin {
			n++
		}
	}
	return n >= flapOpenings
}

// take notes what has become of an incident and says whether that is news.
func (c *incidentCase) take(in breaker.Incident, cooldown time.Duration) bool {
	was := *c
	c.Last = counts{in.Probes, in.Wasted, in.Rescheduled}
	c.Cause, c.Reason, c.By = in.Cause, in.Reason, in.By
	c.Ended, c.EndedBy = in.Ended, in.EndedBy
	if cooldown > 0 {
		c.Cooldown = cooldown
	}
	return was != *c
}

// forget drops the cases of which everybody has been told, but for the last.
func (s *subject) forget() bool {
	n := len(s.Cases)
	i := 0
	s.Cases = slices.DeleteFunc(s.Cases, func(c incidentCase) bool {
		i++
		return i < n && c.Told && c.Paged
	})
	return len(s.Cases) < n
}

// giveUp lets nothing more be said of cases that have ended before t. It says whether
// there are any.
func (s *subject) giveUp(t time.Time, done func(*incidentCase) *bool) bool {
	changed := false
	for i := range s.Cases {
		if c := &s.Cases[i]; !c.open() && c.Ended.Before(t) && !*done(c) {
			*done(c), changed = true, true
		}
	}
	return changed
}

// same returns the case if nothing has happened to it since it was c, else nil.
func (s *subject) same(c incidentCase) *incidentCase {
	for i := range s.Cases {
		if o := &s.Cases[i]; o.ID == c.ID && o.Incident == c.Incident && o.Ended.Equal(c.Ended) {
			return o
		}
	}
	return nil
}

// cooldownsOf are the last cooldowns of incidents, as the transitions tell them. Those
// until a reset have none.
func cooldownsOf(events []breaker.Event) map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, e := range events {
		if e.To == breaker.Open && e.OpenUntil.After(e.At) {
			out[e.Incident] = e.OpenUntil.Sub(e.At)
		}
	}
	return out
}
