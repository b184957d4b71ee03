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
	// its last cooldown was, but within these bounds. A thread of keys is over after the first.
	quietAtLeast = time.Minute
	quietAtMost  = 10 * time.Minute
	// news bounds the age of an ended incident that starts a thread.
	news = time.Hour
)

// thread has one message and its replies: from the opening of a breaker, or of a
// destination's keys, until the recovery. Times are on Redis's clock.
type thread struct {
	// ID is that of its first incident, "" for no thread.
	ID string `json:"id,omitempty"`
	// Since is when the first incident began, Started when the last one did, Ended when that
	// ended; zero while it lasts.
	Since   time.Time `json:"since,omitzero"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Openings counts the incidents, Opened has the last times at which it opened.
	Openings int         `json:"openings,omitempty"`
	Opened   []time.Time `json:"opened,omitempty"`
	// Previous is when the thread before it had ended: what the API said until then belongs to that.
	Previous time.Time `json:"previous,omitzero"`
	// Before counts what happened in the incidents before the last one, Last in that.
	Before   counts `json:"before"`
	Last     counts `json:"last"`
	Incident string `json:"incident,omitempty"` // the last one
	Cause    string `json:"cause,omitempty"`
	EndedBy  string `json:"ended_by,omitempty"`
	Reason   string `json:"reason,omitempty"`
	By       string `json:"by,omitempty"`
	// Cooldown is the last one.
	Cooldown time.Duration `json:"cooldown,omitempty"`
	// Permanent is true for refused credentials that only a person can renew, NoToken if the
	// token server is unreachable.
	Permanent bool `json:"permanent,omitempty"`
	NoToken   bool `json:"no_token,omitempty"`
	// PageFrom is since when on-call waits to be paged; zero for never.
	PageFrom time.Time `json:"page_from,omitzero"`
	// Keys counts the incidents of keys in a thread of keys, LookedAt is when they were counted.
	Keys     int       `json:"keys,omitempty"`
	LookedAt time.Time `json:"looked_at,omitzero"`
}

type counts struct {
	Probes      int `json:"probes,omitempty"`
	Wasted      int `json:"wasted,omitempty"`
	Rescheduled int `json:"rescheduled,omitempty"`
}

func (c counts) plus(o counts) counts {
	return counts{c.Probes + o.Probes, c.Wasted + o.Wasted, c.Rescheduled + o.Rescheduled}
}

func (t *thread) open() bool { return t.Ended.IsZero() }

// incidentKinds are the kinds of a destination's incidents. Each has a thread of its own: a limit and an outage that
// take turns are two messages.
var incidentKinds = []string{limited, down, tokenRefused, noToken, byHand}

// incidentKind is the kind of an incident with a cause.
func incidentKind(cause string, noCredentials bool) string {
	switch {
	case cause == breaker.CauseManual:
		return byHand
	case noCredentials:
		return noToken
	case cause == breaker.CauseCredentials:
		return tokenRefused
	case cause == breaker.CauseOutage:
		return down
	}
	return limited
}

// share returns the incidents of each thread, all of them the oldest first. An incident stays in the thread that knows
// it, although its kind may have changed: an operator opens a breaker that is open. An incident before a known one is
// not new, whatever the clock says: it can be set back.
func share(threads []*sender, incidents []breaker.Incident) [][]breaker.Incident {
	out := make([][]breaker.Incident, len(threads))
	known := -1
	for i, in := range incidents {
		if slices.ContainsFunc(threads, func(s *sender) bool { return s.Incident == in.ID }) {
			known = i
		}
	}
	for i, in := range incidents {
		of := slices.IndexFunc(threads, func(s *sender) bool { return s.Incident == in.ID })
		if of < 0 && i > known {
			of = slices.Index(incidentKinds, incidentKind(in.Cause, in.NoCredentials))
		}
		if of >= 0 {
			out[of] = append(out[of], in)
		}
	}
	return out
}

// overAt is when the thread is over: at once, or after a quiet time. Zero while it is open.
func (t *thread) overAt() time.Time {
	if t.open() || t.Openings == 1 && t.Keys == 0 {
		return t.Ended
	}
	return t.Ended.Add(t.quiet())
}

// quiet is how long after its end an incident's thread takes in another one.
func (t *thread) quiet() time.Duration { return min(max(t.Cooldown, quietAtLeast), quietAtMost) }

// over reports whether nothing more is to be expected of the thread.
func (t *thread) over(now time.Time) bool { return !t.open() && !now.Before(t.overAt()) }

// pageAt is when on-call is paged if the last incident is still open then. One that was
// closed for a moment counts anew: where a backlog uses an hour's quota up in a minute,
// hour after hour, nothing is wrong. Credentials that only a person can renew page at once.
// Zero: never.
func (t *thread) pageAt(tooLong time.Duration) time.Time {
	switch {
	case t.Permanent:
		return t.Started
	case t.PageFrom.IsZero() || tooLong <= 0:
		return time.Time{}
	}
	return t.PageFrom.Add(tooLong)
}

// pageDue reports whether the last incident was open at its pageAt.
func (t *thread) pageDue(now time.Time, tooLong time.Duration) bool {
	if !t.open() {
		now = t.Ended
	}
	at := t.pageAt(tooLong)
	return !at.IsZero() && !now.Before(at)
}

// merge updates the record by the breaker's incidents, the oldest first. Incidents that ended
// long ago start no thread.
func (r *record) merge(incidents []breaker.Incident, events []breaker.Event, now time.Time) {
	cooldowns := map[string]time.Duration{} // those until a reset have none
	for _, e := range events {
		if e.To == breaker.Open && e.OpenUntil.After(e.At) {
			cooldowns[e.Incident] = e.OpenUntil.Sub(e.At)
		}
	}
	known := slices.IndexFunc(incidents, func(in breaker.Incident) bool { return in.ID == r.Incident })
	seen := known >= 0
	for i, in := range incidents {
		if i < known || known < 0 && r.ID != "" && !in.Started.After(r.Started) {
			continue
		}
		if i != known {
			if !in.Ended.IsZero() && now.Sub(in.Ended) > news {
				continue
			}
			r.begin(in)
			seen = true
		}
		r.Last = counts{in.Probes, in.Wasted, in.Rescheduled}
		r.Cause, r.Reason, r.By, r.Permanent, r.NoToken = in.Cause, in.Reason, in.By, in.Permanent, in.NoCredentials
		r.Ended, r.EndedBy = in.Ended, in.EndedBy
		if cooldown := cooldowns[in.ID]; cooldown > 0 {
			r.Cooldown = cooldown
		}
	}
	if r.ID != "" && r.open() && !seen {
		r.Ended, r.EndedBy = now, breaker.CauseLost
	}
}

// begin makes a new thread of an incident, or lets it join the last one of its kind: if that is not
// done, was closed for less than a minute or its cooldown, or flaps. It does not wait for a recovery that the service refuses.
func (r *record) begin(in breaker.Incident) {
	opened := append(slices.Clone(r.Opened), in.Started)
	opened = opened[max(0, len(opened)-flapOpenings):]
	if r.ID != "" && r.open() {
		r.Ended = in.Started // its end was not kept; the next incident implies it
	}
	flaps := len(opened) == flapOpenings && in.Started.Sub(opened[0]) < flapWithin
	same := incidentKind(r.Cause, r.NoToken) == incidentKind(in.Cause, in.NoCredentials)
	if r.ID != "" && (!r.Done && !(r.Blocked && r.over(in.Started)) || same && (flaps || r.Cooldown > 0 && in.Started.Before(r.Ended.Add(r.quiet())) || in.Started.Before(r.overAt()))) {
		r.Before, r.Openings, r.Done = r.Before.plus(r.Last), r.Openings+1, false
	} else {
		*r = record{thread: thread{ID: in.ID, Since: in.Started, Openings: 1, Previous: r.Ended}}
	}
	r.Opened, r.Incident, r.Started, r.PageFrom = opened, in.ID, in.Started, in.Started
}

// mergeKeys updates the record by the keys of a destination that are not CLOSED. opened is when
// a key opened, which may have closed since; zero for another event. id begins the thread's.
func (r *record) mergeKeys(id string, open []breaker.Status, opened, now time.Time) {
	if r.ID == "" || r.Done {
		if len(open) == 0 && (opened.IsZero() || r.ID != "" && !opened.After(r.overAt())) {
			return // it was part of the last thread
		}
		*r = record{thread: thread{ID: id + timeID(now), Since: now, Started: now, Openings: 1, Keys: 1, Cooldown: quietAtLeast}}
		for i, s := range open {
			if i == 0 || s.OpenedAt.Before(r.Since) {
				r.Since = s.OpenedAt
			}
		}
		r.Keys = max(1, len(open))
	}
	was := r.PageFrom
	r.PageFrom = time.Time{}
	news := 0
	for _, s := range open {
		r.Permanent = r.Permanent || s.Permanent
		if s.NoCredentials {
			r.PageFrom = was
			if was.IsZero() {
				r.PageFrom = now
			}
		}
		if !r.LookedAt.IsZero() && s.OpenedAt.After(r.LookedAt) {
			news++
		}
	}
	r.Keys, r.LookedAt = r.Keys+news, now
	switch {
	case len(open) > 0:
		r.Ended = time.Time{}
	case r.Ended.IsZero():
		r.Ended = now
	}
}

// timeID makes a part of an id of a time.
func timeID(t time.Time) string { return t.UTC().Format("20060102T150405.000") }
