package breaker

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/breaker/internal/policy"
)

// record is a breaker as scripts return, publish and list it.
type record struct {
	policy.State

	// Only of status.lua.
	InFlight int    `json:"in_flight"`
	Cap      int    `json:"cap"`
	Reserve  string `json:"reserve"`

	// Lost is what instances mirror, if that is another state; see read in record.lua.
	Lost *string `json:"lost"`
}

// lost is what instances mirror, nil if that is the record. A damaged one is an empty one.
func (r *record) lost() *policy.State {
	if r.Lost == nil {
		return nil
	}
	s := new(policy.State)
	_ = json.Unmarshal([]byte(*r.Lost), s)
	return s
}

// state is the state by the record; a lost one is CLOSED.
func (r *record) state() State {
	switch r.State.State {
	case policy.Open:
		return Open
	case policy.HalfOpen:
		return HalfOpen
	}
	return Closed
}

// version is the number of the last change, and generation the number of the last transition.
func (r *record) version() uint64    { return uint64(r.Revision) }   //nolint:gosec // µs
func (r *record) generation() uint64 { return uint64(r.Generation) } //nolint:gosec // µs

// spacedEnough is how many calls in a row must have shown that the API spaces calls: of two slow
// starts that were refused at the second one, and of the paced calls after them.
const spacedEnough = 5

// pace is how far apart the calls are, in ms, that an API accepted which spaces them, once a pace
// was refused that is not much shorter; 0 before.
func (r *record) pace() int64 {
	if r.Spaced < spacedEnough || r.PaceAccepted*3 > r.PaceRefused*4 {
		return 0
	}
	return r.PaceAccepted
}

// suggestedRate is the rate to declare for an API that spaces calls, by the pace; "" if none is known.
func (r *record) suggestedRate() string {
	apart := r.pace()
	unit, name := time.Minute, "/1m"
	if apart > 10_000 {
		unit, name = time.Hour, "/1h"
	}
	if n := unit.Milliseconds() / max(1, apart); apart > 0 && n > 0 {
		return strconv.FormatInt(n, 10) + name
	}
	return ""
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
	return r.state() != Closed && now < r.UpdatedAt*1000
}

// metered reports whether Redis counts all calls: because few are left, or because a limit is learned.
func (r *record) metered() bool { return r.Metered != 0 || r.LearnedSince != 0 }

// message is one publication: the transition that was made, if any. The record follows it in a line of its own.
type message struct {
	Origin     string      `json:"origin"`
	Now        int64       `json:"now"` // µs
	Version    uint64      `json:"version"`
	Before     uint64      `json:"before"`     // the destination's last transition before it
	Transition uint64      `json:"transition"` // and after it
	Event      *transition `json:"event"`

	// Of the publication that a slot is free: for the calls that these instances were refused
	// under that name. Such a publication has no record.
	Name string   `json:"name"`
	Wake []string `json:"wake"`
}

// transition is one entry of the history: an Event whose times are unix ms.
type transition struct {
	Event
	At        int64  `json:"at"`
	OpenedAt  int64  `json:"opened_at"`
	OpenUntil int64  `json:"open_until"`
	Permanent int    `json:"permanent"`
	Previous  uint64 `json:"previous"` // generation of the destination's transition before it

	IncidentCause string `json:"incident_cause"`
}

func (t *transition) event() Event {
	e := t.Event
	e.Permanent, e.IncidentCause = t.Permanent != 0, t.IncidentCause
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
