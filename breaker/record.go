package breaker

import (
	"math"
	"strconv"
	"strings"
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
	AskedUntil    int64  `json:"asked_until"`
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
	Windows       string `json:"windows"`
	LearnedCap    int    `json:"learned_cap"`
	ProbeStarted  int64  `json:"probe_started"`
	ProbeUntil    int64  `json:"probe_until"`
	ProbeAfter    int64  `json:"probe_after"`
	Permanent     int    `json:"permanent"`
	Credentials   string `json:"credentials"`
	Missing       int    `json:"missing"`
	Streak        int    `json:"streak"`
	StreakSince   int64  `json:"streak_since"` // µs
	StreakJobs    string `json:"streak_jobs"`
	Outage        string `json:"outage"`
	OutageID      uint64 `json:"outage_id"`
	StreakOf      string `json:"streak_of"`
	StreakLimit   int    `json:"streak_limit"`
	QuietSince    int64  `json:"quiet_since"`
	Spaced        int    `json:"spaced"`
	PaceAccepted  int64  `json:"pace_accepted"`
	PaceRefused   int64  `json:"pace_refused"`
	UpdatedAt     int64  `json:"updated_at"`

	// Of a learned limit, see policy.Learned. Instants are µs, but LearnedSince ms.
	LearnedSince int64   `json:"learned_since"`
	Learner      string  `json:"learner"`
	RoundStarted int64   `json:"round_started"`
	RoundAnchor  int64   `json:"round_anchor"`
	RoundUsed    float64 `json:"round_used"`
	RoundTotal   float64 `json:"round_total"`
	RoundPaced   int     `json:"round_paced"`
	RoundCalm    int     `json:"round_calm"`
	RefusedAt    int64   `json:"refused_at"`
	Confirming   int     `json:"confirming"`

	// Only of status.lua.
	InFlight int    `json:"in_flight"`
	Cap      int    `json:"cap"`
	Reserve  string `json:"reserve"`
}

// plain reports whether the breaker is CLOSED without limits: any call may start.
func (r *record) plain() bool {
	return r.State == Closed && r.Failures == 0 && r.Streak == 0 && r.Ramp == 0 && r.Metered == 0 &&
		r.LearnedCap == 0 && r.LearnedSince == 0 && r.Forced == ""
}

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

// announced is one of several windows of an API, as metering.lua keeps it.
type announced struct {
	name        string
	left, limit int
	reset       int64
}

// windows are the windows of an API that announces several, the one first that binds.
func (r *record) windows() (all []announced) {
	for words := strings.Fields(r.Windows); len(words) >= 4; words = words[4:] {
		var w announced
		if name, has := strings.CutPrefix(words[0], ofName); has {
			w.name = name
		}
		w.left, _ = strconv.Atoi(words[1])
		w.reset, _ = strconv.ParseInt(words[2], 10, 64)
		w.limit, _ = strconv.Atoi(words[3])
		all = append(all, w)
	}
	return all
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

// metered reports whether Redis counts all calls: because few are left, or because a limit is learned.
func (r *record) metered() bool { return r.Metered != 0 || r.LearnedSince != 0 }

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
