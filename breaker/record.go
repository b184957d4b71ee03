package breaker

import (
	"math"
	"time"
)

// record is a breaker as the scripts write it: in replies, in messages and in
// the notclosed hash. Instants are unix ms on Redis's clock; 0 is none.
type record struct {
	Name          string `json:"name"`
	State         State  `json:"state"`
	Cause         string `json:"cause"`
	Incident      string `json:"incident"`
	IncidentCause string `json:"incident_cause"`
	Reason        string `json:"reason"`
	TrippedBy     string `json:"tripped_by"`
	Forced        string `json:"forced"`
	Instances     string `json:"instances"` // separated by commas
	ProbeBy       string `json:"probe_by"`
	Failures      int    `json:"failures"`
	LastFailure   int64  `json:"last_failure"`
	Generation    uint64 `json:"generation"`
	Revision      uint64 `json:"revision"`
	OpenUntil     int64  `json:"open_until"`
	OpenedAt      int64  `json:"opened_at"`
	Probes        int    `json:"probes"`
	Wasted        int    `json:"wasted"`
	Rescheduled   int    `json:"rescheduled"`
	Level         int    `json:"level"`
	Ramp          int    `json:"ramp"`
	ForcedUntil   int64  `json:"forced_until"`
	Metered       int64  `json:"metered"`
	BudgetLeft    int    `json:"budget_left"`
	BudgetReset   int64  `json:"budget_reset"`
	BudgetLimit   int    `json:"budget_limit"`
	ProbeStarted  int64  `json:"probe_started"`
	ProbeUntil    int64  `json:"probe_until"`
	ProbeAfter    int64  `json:"probe_after"`
	Permanent     int    `json:"permanent"`
	Streak        int    `json:"streak"`
	StreakID      uint64 `json:"streak_id"`
	OutageID      uint64 `json:"outage_id"`
	UpdatedAt     int64  `json:"updated_at"`
}

// plain reports whether the breaker is CLOSED without limits: any call may start.
func (r *record) plain() bool {
	return r.State == Closed && r.Failures == 0 && r.Streak == 0 && r.Ramp == 0 && r.Metered == 0 && r.Forced == ""
}

func (r *record) untilReset() bool {
	return r.State == Open && r.OpenUntil == 0 && r.Cause == CauseManual
}

// nextProbe is when the next probe may start, as far as is known: at the end of the running
// one's lease, or of the pause after a failed one.
func (r *record) nextProbe() int64 {
	if r.ProbeUntil != 0 {
		return r.ProbeUntil
	}
	return r.ProbeAfter
}

// left is the time from now (µs) to the instant at (ms), never negative. A
// clock behind the record's last change went backwards: then what was left at
// that change is left, as the scripts see it.
func (r *record) left(at, now int64) time.Duration {
	micros := at*1000 - max(now, r.UpdatedAt*1000)
	return time.Duration(min(max(0, micros), math.MaxInt64/1000)) * time.Microsecond
}

// behind reports whether Redis's clock went backwards since the record was written.
func (r *record) behind(now int64) bool {
	return r.State != Closed && now < r.UpdatedAt*1000
}

// message is one publication: a record, and the transition that made it, if
// any.
type message struct {
	Origin     string      `json:"origin"`
	Now        int64       `json:"now"` // µs
	Version    uint64      `json:"version"`
	Before     uint64      `json:"before"`     // the destination's last transition before it
	Transition uint64      `json:"transition"` // and after it
	Record     record      `json:"record"`
	Event      *transition `json:"event"`
}

// transition is one entry of the history: an Event whose times are unix ms.
type transition struct {
	Event
	At        int64  `json:"at"`
	OpenedAt  int64  `json:"opened_at"`
	OpenUntil int64  `json:"open_until"`
	Permanent int    `json:"permanent"`
	Previous  uint64 `json:"previous"` // generation of the destination's transition before it
}

func (t *transition) event() Event {
	e := t.Event
	e.Permanent = t.Permanent != 0
	e.At, e.OpenedAt, e.OpenUntil = instant(t.At), instant(t.OpenedAt), instant(t.OpenUntil)
	return e
}

// instant is unix ms as a time, 0 as the zero time.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
