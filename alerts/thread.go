package alerts

import (
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Breakers that open and close again and again have one thread, not many:
const (
	// flapOpenings within flapWithin are flapping: the last of them joins the thread before.
	flapOpenings = 3
	flapWithin   = 10 * time.Minute
	// A thread that has flapped is over when the breaker has been CLOSED for as long as
	// its last cooldown was, but within these bounds.
	quietAtLeast = time.Minute
	quietAtMost  = 10 * time.Minute
	// keysQuiet is the same for the keys of a destination.
	keysQuiet = time.Minute
)

// thread has one message and its replies: from the opening of a breaker until its recovery.
// Times are on Redis's clock.
type thread struct {
	// ID is that of its first incident.
	ID string `json:"id"`
	// Since is when the first one began.
	Since time.Time `json:"since"`
	// Openings counts the incidents.
	Openings int `json:"openings"`
	// Before counts what happened in the incidents before the last one.
	Before counts `json:"before"`
	lastIncident
	// Done has the notifiers that have sent all that there is to send.
	Done doneSet `json:"done,omitempty"`
}

// lastIncident is the last incident of a thread.
type lastIncident struct {
	Incident string `json:"incident"` // its id
	// Started is when it began, Ended when it closed; zero while it lasts.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Last    counts    `json:"last"`
	Cause   string    `json:"cause"`
	EndedBy string    `json:"ended_by,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	By      string    `json:"by,omitempty"`
	// Permanent is true for refused credentials that only a person can renew.
	Permanent bool `json:"permanent,omitempty"`
	// NoToken is true if the token server is unreachable.
	NoToken bool `json:"no_token,omitempty"`
	// Cooldown is the last one.
	Cooldown time.Duration `json:"cooldown"`
}

// doneSet holds names of notifiers.
type doneSet map[string]bool

func (d *doneSet) add(name string) {
	if *d == nil {
		*d = doneSet{}
	}
	(*d)[name] = true
}

func (d doneSet) all(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !d[name] })
}

type counts struct {
	Probes      int `json:"probes,omitempty"`
	Wasted      int `json:"wasted,omitempty"`
	Rescheduled int `json:"rescheduled,omitempty"`
}

func (c counts) plus(o counts) counts {
	return counts{c.Probes + o.Probes, c.Wasted + o.Wasted, c.Rescheduled + o.Rescheduled}
}

func (c *thread) open() bool { return c.Ended.IsZero() }

// overAt is when the thread is over: at once, or after a quiet time if it flapped. Zero
// while it is open.
func (c *thread) overAt() time.Time {
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
// Credentials that only a person can renew page at once.
func (c *thread) pageAt(tooLong time.Duration) time.Time {
	if c.Permanent {
		return c.Started
	}
	return c.Started.Add(tooLong)
}

// pageDue reports whether the last incident was open at its pageAt.
func (c *thread) pageDue(now time.Time, tooLong time.Duration) bool {
	if tooLong <= 0 && !c.Permanent {
		return false
	}
	last := now
	if !c.open() {
		last = c.Ended
	}
	return !last.Before(c.pageAt(tooLong))
}

// subject holds the threads of one breaker, the oldest first. The last one is kept, as the
// next incident may join it.
type subject struct {
	Threads []thread `json:"threads"`
	// Openings are the last times at which it opened.
	Openings []time.Time `json:"openings"`
}

// maxThreads bounds what is kept while no notice can be delivered.
const maxThreads = 100

// last is the thread that a new incident may join, nil if there is none.
func (s *subject) last() *thread {
	if len(s.Threads) == 0 {
		return nil
	}
	return &s.Threads[len(s.Threads)-1]
}

// news bounds the age of an ended incident that is still reported.
const news = time.Hour

// merge updates the subject by the breaker's incidents, the oldest first.
// New ones that ended before since are left out. It returns whether anything has changed.
func (s *subject) merge(incidents []breaker.Incident, cooldowns map[string]time.Duration, since, now time.Time) bool {
	if recent := now.Add(-news); since.Before(recent) {
		since = recent
	}
	changed := false
	seen := false
	// Incidents after the last one are new, whatever the clock says: it can be set back.
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
			// Its end was not kept; the next incident implies it.
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

// begin makes a new thread of an incident, or lets it join the last one.
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
		last.Done = nil
		return
	}
	s.Threads = append(s.Threads, thread{ID: in.ID, Since: in.Started, Openings: 1, lastIncident: lastIncident{Incident: in.ID, Started: in.Started}})
	if len(s.Threads) > maxThreads {
		s.Threads = slices.Delete(s.Threads, 0, len(s.Threads)-maxThreads)
	}
}

// flaps reports whether an opening at t would be one too many in a short time.
func (s *subject) flaps(t time.Time) bool {
	n := 1
	for _, at := range s.Openings {
		if t.Sub(at) < flapWithin {
			n++
		}
	}
	return n >= flapOpenings
}

// take updates the last incident and returns whether anything has changed.
func (c *thread) take(in breaker.Incident, cooldown time.Duration) bool {
	was := c.lastIncident
	c.Last = counts{in.Probes, in.Wasted, in.Rescheduled}
	c.Cause, c.Reason, c.By, c.Permanent, c.NoToken = in.Cause, in.Reason, in.By, in.Permanent, in.NoCredentials
	c.Ended, c.EndedBy = in.Ended, in.EndedBy
	if cooldown > 0 {
		c.Cooldown = cooldown
	}
	return was != c.lastIncident
}

// forget drops the threads but the last that all notifiers of this worker are done with and
// that ended before t. It returns whether there are any.
func (s *subject) forget(names []string, t time.Time) bool {
	n := len(s.Threads)
	i := 0
	s.Threads = slices.DeleteFunc(s.Threads, func(c thread) bool {
		i++
		return i < n && c.Done.all(names) && c.Ended.Before(t)
	})
	return len(s.Threads) < n
}

// giveUp makes threads that ended before t done with a notifier. It returns whether there
// are any.
func (s *subject) giveUp(t time.Time, name string) bool {
	changed := false
	for i := range s.Threads {
		if c := &s.Threads[i]; !c.open() && c.Ended.Before(t) && !c.Done[name] {
			c.Done.add(name)
			changed = true
		}
	}
	return changed
}

// same returns the thread if nothing has happened to it since it was c, else nil.
func (s *subject) same(c thread) *thread {
	for i := range s.Threads {
		if o := &s.Threads[i]; o.ID == c.ID && o.Incident == c.Incident && o.Ended.Equal(c.Ended) {
			return o
		}
	}
	return nil
}

// cooldownsOf are the last cooldowns of incidents, by the transitions. Those
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

// keysThread is the thread about the keys of a destination that are limited, or whose
// credentials are refused.
type keysThread struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	// Ended is since when no key is open; zero while one is.
	Ended time.Time `json:"ended,omitzero"`
	// Open counts the keys that are open now, Most those that were at once.
	Open int `json:"open"`
	Most int `json:"most"`
	// Openings counts how often a key opened after a notifier had sent the recovery, and the
	// first time.
	Openings int `json:"openings"`
	// Permanent is true if only a person can renew the credentials of a key: then it pages.
	Permanent bool `json:"permanent,omitempty"`
	// NoToken is since when a key waits for the token server; zero while none does.
	NoToken time.Time `json:"no_token,omitzero"`
	Done    doneSet   `json:"done,omitempty"`
}

// pageDue reports whether on-call is paged: the jobs of these keys do not run by themselves, or the
// token server is unreachable for too long.
func (c *keysThread) pageDue(now time.Time, tooLong time.Duration) bool {
	return c.Permanent || tooLong > 0 && !c.NoToken.IsZero() && now.Sub(c.NoToken) >= tooLong
}

func (c *keysThread) over(now time.Time) bool {
	return !c.Ended.IsZero() && !now.Before(c.Ended.Add(keysQuiet))
}

// keysSubject holds the last thread of a destination's keys.
type keysSubject struct {
	Thread *keysThread `json:"thread,omitempty"`
}

// merge brings it up to date with its keys that are not CLOSED. opened is when a key
// opened, which may have closed since; zero for another event. names are its notifiers.
func (s *keysSubject) merge(kind string, open []breaker.Status, opened, now time.Time, names []string) bool {
	c := s.Thread
	fresh := c == nil || c.Done.all(names) && c.over(now)
	if fresh {
		if len(open) == 0 && (opened.IsZero() || c != nil && !opened.After(c.Ended.Add(keysQuiet))) {
			return false // it was part of the last thread
		}
		c = &keysThread{ID: kind + "-" + timeID(now), Since: now, Openings: 1}
		if first := firstOf(open); !first.IsZero() {
			c.Since = first
		}
		s.Thread = c
	}
	was := *c
	c.Open, c.Most = len(open), max(c.Most, len(open))
	switch waits := slices.ContainsFunc(open, func(s breaker.Status) bool { return s.NoCredentials }); {
	case !waits:
		c.NoToken = time.Time{}
	case c.NoToken.IsZero():
		c.NoToken = now
	}
	switch {
	case len(open) > 0:
		if len(c.Done) > 0 {
			c.Openings, c.Permanent = c.Openings+1, false
		}
		c.Ended, c.Done = time.Time{}, nil
		c.Permanent = c.Permanent || slices.ContainsFunc(open, func(s breaker.Status) bool { return s.Permanent })
	case c.Ended.IsZero():
		c.Ended = now
	}
	return fresh || was.Ended != c.Ended || was.Open != c.Open || was.Most != c.Most || was.Permanent != c.Permanent || was.NoToken != c.NoToken
}

// firstOf is when the first of the keys opened.
func firstOf(open []breaker.Status) time.Time {
	if len(open) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(open, func(a, b breaker.Status) int { return a.OpenedAt.Compare(b.OpenedAt) }).OpenedAt
}

// timeID makes a part of an id of a time.
func timeID(t time.Time) string { return t.UTC().Format("20060102T150405.000") }
