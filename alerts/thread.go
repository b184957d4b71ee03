package alerts

import (
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

const (
	// keysQuiet is how long all keys of a destination are CLOSED before their thread is over.
	keysQuiet = time.Minute
	// news bounds the age of an ended incident that starts a thread.
	news = time.Hour
	// A breaker that opens flapOpenings times within flapWithin for the same kind of reason flaps: a small window with a
	// backlog does nothing else. Then an opening has no message until it has lasted for flapFor.
	flapOpenings = 3
	flapWithin   = 10 * time.Minute
	flapFor      = time.Minute
)

// thread has one message and its replies: one incident of a breaker, or the incidents of a
// destination's keys from the first opening until none is open. Times are on Redis's clock.
type thread struct {
	// ID is the incident's, "" for no thread.
	ID string `json:"id,omitempty"`
	// Since is when it began, Ended when it ended; zero while it lasts.
	Since time.Time `json:"since,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Previous is when the incident before it had ended: what the API said until then belongs to that.
	Previous time.Time `json:"previous,omitzero"`
	counts
	Cause   string `json:"cause,omitempty"`
	EndedBy string `json:"ended_by,omitempty"`
	Reason  string `json:"reason,omitempty"`
	By      string `json:"by,omitempty"`
	// Permanent is true for refused credentials that only a person can renew, NoToken if the
	// token server is unreachable.
	Permanent bool `json:"permanent,omitempty"`
	NoToken   bool `json:"no_token,omitempty"`
	// PostFrom is when it has a message if it is still open then; zero: at once.
	PostFrom time.Time `json:"post_from,omitzero"`
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

func (t *thread) open() bool { return t.Ended.IsZero() }

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

// overAt is when the thread is over. Zero while it is open.
func (t *thread) overAt() time.Time {
	if t.open() || t.Keys == 0 {
		return t.Ended
	}
	return t.Ended.Add(keysQuiet)
}

// over reports whether nothing more is to be expected of the thread.
func (t *thread) over(now time.Time) bool { return !t.open() && !now.Before(t.overAt()) }

// pageAt is when on-call is paged if the thread is still open then. Credentials that only a
// person can renew page at once. Zero: never.
func (t *thread) pageAt(tooLong time.Duration) time.Time {
	switch {
	case t.Permanent:
		return t.Since
	case t.PageFrom.IsZero() || tooLong <= 0:
		return time.Time{}
	}
	return t.PageFrom.Add(tooLong)
}

// pageDue reports whether on-call is to be paged now.
func (t *thread) pageDue(now time.Time, tooLong time.Duration) bool {
	at := t.pageAt(tooLong)
	return t.open() && !at.IsZero() && !now.Before(at)
}

// follow updates the record by the breaker's incidents, the oldest first. Once all of its
// incident was sent, the next one begins: they are sent one after the other. A message that the service
// refuses for good does not keep the next incident back. Incidents that ended long ago start no thread.
func (r *record) follow(incidents []breaker.Incident, now time.Time) {
	known := slices.IndexFunc(incidents, func(in breaker.Incident) bool { return in.ID == r.ID })
	switch {
	case known >= 0:
		r.take(incidents[known])
	case r.ID != "" && r.open():
		r.Ended, r.EndedBy = now, breaker.CauseLost
	}
	if r.ID != "" && !r.Done && (r.open() || !r.Blocked) {
		return
	}
	for i, in := range incidents {
		// After a known one comes what is behind it, whatever the clock says: it can be set back.
		old := i <= known || known < 0 && r.ID != "" && !in.Started.After(r.Since)
		if old || !in.Ended.IsZero() && now.Sub(in.Ended) > news {
			continue
		}
		*r = record{thread: thread{ID: in.ID, Since: in.Started, PageFrom: in.Started}}
		r.take(in)
		if i > 0 {
			r.Previous = incidents[i-1].Ended
		}
		if flaps(incidents[:i+1]) {
			r.PostFrom = in.Started.Add(flapFor)
		}
		return
	}
}

// flaps reports whether the last of some incidents is one of a breaker that flaps.
func flaps(incidents []breaker.Incident) bool {
	last, alike := incidents[len(incidents)-1], 0
	for _, in := range incidents {
		if incidentKind(in.Cause, in.NoCredentials) == incidentKind(last.Cause, last.NoCredentials) && last.Started.Sub(in.Started) < flapWithin {
			alike++
		}
	}
	return alike >= flapOpenings
}

// take copies the present state of an incident.
func (t *thread) take(in breaker.Incident) {
	t.counts = counts{in.Probes, in.Wasted, in.Rescheduled}
	t.Cause, t.Reason, t.By, t.Permanent, t.NoToken = in.Cause, in.Reason, in.By, in.Permanent, in.NoCredentials
	t.Ended, t.EndedBy = in.Ended, in.EndedBy
}

// followKeys updates the record by the keys of a destination that are not CLOSED. opened is when
// a key opened, which may have closed since; zero for another event. id begins the thread's.
func (r *record) followKeys(id string, open []breaker.Status, opened, now time.Time) {
	if r.ID == "" || r.Done {
		if len(open) == 0 && (opened.IsZero() || r.ID != "" && !opened.After(r.overAt())) {
			return // it was part of the last thread
		}
		*r = record{thread: thread{ID: id + timeID(now), Since: now, Keys: max(1, len(open))}}
		for _, s := range open {
			if s.OpenedAt.Before(r.Since) {
				r.Since = s.OpenedAt
			}
		}
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
