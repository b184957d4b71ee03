package breaker

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Status is a breaker at one moment, as far as its source knew.
//
// As JSON, times are RFC 3339 in UTC on Redis's clock (null if there is none),
// and Remaining is cooldown_remaining_ms.
type Status struct {
	// Name is the breaker's: the destination, or "destination/key".
	Name string
	// State is the effective state: HALF_OPEN also when an OPEN breaker's time
	// has come and no call has been asked for since.
	State State
	// Failures counts consecutive rate-limited answers in CLOSED; in the other
	// states it stays at what it was when the breaker opened.
	Failures int
	// LastFailure is when the last of them (or a probe's) was reported.
	LastFailure time.Time
	// Generation is that of the last transition; for a breaker that is CLOSED
	// without failures, a local status gives the snapshot's version instead.
	Generation uint64
	// OpenUntil is when an OPEN breaker's time comes, on this process's
	// monotonic clock. Zero if it was tripped until it is reset.
	OpenUntil time.Time
	// OpenUntilRedis is OpenUntil on Redis's clock, for times that are kept in
	// Redis.
	OpenUntilRedis time.Time
	// Remaining is the time left until OpenUntil, never negative. It begins up to
	// 1 ms above the cooldown, since breakers end at whole milliseconds.
	Remaining time.Duration
	// Incident is the id of the incident, from opening to closing; "" in CLOSED.
	Incident string
	// Cause is why it opened last: CauseThreshold, CauseHint, CauseProbe,
	// CauseRamp, CauseBudget or CauseManual.
	Cause string
	// IncidentCause is why the incident began, or an operator's part in it: unlike Cause,
	// it is not changed by a failed probe.
	IncidentCause string
	// Reason and TrippedBy are the operator's reason and name.
	Reason, TrippedBy string
	// OpenedAt is when the incident began, on Redis's clock.
	OpenedAt time.Time
	// Probes counts the incident's probes that were answered "rate limited".
	Probes int
	// Wasted counts the incident's rate-limited answers, those that led to the
	// opening and late ones included.
	Wasted int
	// ProbeBy is the instance that probes now, ProbeUntil the end of its lease
	// on Redis's clock.
	ProbeBy    string
	ProbeUntil time.Time
	// Level is how many steps the cooldown has grown by, less those that it has
	// fallen back by: see Options.CooldownMultiplier.
	Level int
	// SlowStart is how many calls may be in flight after an incident; 0 outside of
	// a slow start.
	SlowStart int
	// Budget is what the API said is left, while that is so low that calls are
	// metered; nil otherwise. Its Reset is what is left of the window.
	Budget *Budget
	// Rate is the configured rate of a destination, as read from Redis, while calls were
	// made by it within its last interval; else nil, as for keys and in a local status.
	Rate *RateStatus
	// Forced is "closed" while an operator keeps it CLOSED, else ""; ForcedUntil says
	// until when, zero until it is reset.
	Forced      string
	ForcedUntil time.Time
	// Rescheduled counts the incident's jobs that were deferred, Instances names
	// those that took part in it.
	Rescheduled int
	Instances   []string
}

// UntilReset says that the breaker was tripped until it is reset.
func (s Status) UntilReset() bool {
	return s.State == Open && s.OpenUntilRedis.IsZero() && s.Cause == CauseManual
}

type statusJSON struct {
	Name          string      `json:"name"`
	State         State       `json:"state"`
	Failures      int         `json:"failures"`
	LastFailure   *time.Time  `json:"last_failure"`
	Generation    uint64      `json:"generation"`
	OpenUntil     *time.Time  `json:"open_until"`
	UntilReset    bool        `json:"until_reset"`
	Remaining     int64       `json:"cooldown_remaining_ms"`
	Incident      string      `json:"incident"`
	Cause         string      `json:"cause"`
	IncidentCause string      `json:"incident_cause"`
	Reason        string      `json:"reason"`
	TrippedBy     string      `json:"tripped_by"`
	OpenedAt      *time.Time  `json:"opened_at"`
	Probes        int         `json:"probes"`
	Wasted        int         `json:"wasted"`
	ProbeBy       string      `json:"probe_by"`
	ProbeUntil    *time.Time  `json:"probe_until"`
	Level         int         `json:"level"`
	SlowStart     int         `json:"slow_start"`
	Budget        *leftJSON   `json:"budget"`
	Rate          *RateStatus `json:"rate"`
	Forced        string      `json:"forced"`
	ForcedUntil   *time.Time  `json:"forced_until"`
	Rescheduled   int         `json:"rescheduled"`
	Instances     []string    `json:"instances"`
}

type leftJSON struct {
	Remaining int   `json:"remaining"`
	Reset     int64 `json:"reset_ms"`
	Limit     int   `json:"limit"`
}

// MarshalJSON gives the form that the commands and the HTTP API print.
func (s Status) MarshalJSON() ([]byte, error) {
	var left *leftJSON
	if b := s.Budget; b != nil {
		left = &leftJSON{Remaining: b.Remaining, Reset: wholeMillis(b.Reset), Limit: b.Limit}
	}
	return json.Marshal(statusJSON{
		Name: s.Name, State: s.State, Failures: s.Failures, LastFailure: utc(s.LastFailure),
		Generation: s.Generation, OpenUntil: utc(s.OpenUntilRedis), UntilReset: s.UntilReset(),
		Remaining: wholeMillis(s.Remaining), Incident: s.Incident, Cause: s.Cause, IncidentCause: s.IncidentCause, Reason: s.Reason,
		TrippedBy: s.TrippedBy, OpenedAt: utc(s.OpenedAt), Probes: s.Probes, Wasted: s.Wasted,
		ProbeBy: s.ProbeBy, ProbeUntil: utc(s.ProbeUntil), Level: s.Level, SlowStart: s.SlowStart,
		Budget: left, Rate: s.Rate, Forced: s.Forced, ForcedUntil: utc(s.ForcedUntil), Rescheduled: s.Rescheduled,
		Instances: append([]string{}, s.Instances...),
	})
}

// UnmarshalJSON reads what MarshalJSON gives. OpenUntil, which belongs to the
// process that printed it, stays zero.
func (s *Status) UnmarshalJSON(data []byte) error {
	var j statusJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("breaker: status: %w", err)
	}
	*s = Status{
		Name: j.Name, State: j.State, Failures: j.Failures, LastFailure: value(j.LastFailure),
		Generation: j.Generation, OpenUntilRedis: value(j.OpenUntil),
		Remaining: time.Duration(j.Remaining) * time.Millisecond, Incident: j.Incident, Cause: j.Cause, IncidentCause: j.IncidentCause,
		Reason: j.Reason, TrippedBy: j.TrippedBy, OpenedAt: value(j.OpenedAt), Probes: j.Probes,
		Wasted: j.Wasted, ProbeBy: j.ProbeBy, ProbeUntil: value(j.ProbeUntil), Level: j.Level,
		SlowStart: j.SlowStart, Rate: j.Rate, Forced: j.Forced, ForcedUntil: value(j.ForcedUntil),
		Rescheduled: j.Rescheduled, Instances: slices.Clip(append([]string(nil), j.Instances...)),
	}
	if b := j.Budget; b != nil {
		s.Budget = &Budget{Remaining: b.Remaining, Reset: time.Duration(b.Reset) * time.Millisecond, Limit: b.Limit}
	}
	return nil
}

// wholeMillis is d for people: it shows no more than a cooldown has, and 0 only
// when it is over.
func wholeMillis(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	return d.Milliseconds()
}

func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func value(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// status is what is the same at every instant; the rest depends on the time.
func (r *record) status() Status {
	s := Status{
		Name: r.Name, State: r.State, Failures: r.Failures, LastFailure: instant(r.LastFailure),
		Generation: r.Generation, OpenUntilRedis: instant(r.OpenUntil), Incident: r.Incident,
		Cause: r.Cause, IncidentCause: r.IncidentCause, Reason: r.Reason, TrippedBy: r.TrippedBy, OpenedAt: instant(r.OpenedAt),
		Probes: r.Probes, Wasted: r.Wasted, ProbeBy: r.ProbeBy, ProbeUntil: instant(r.ProbeUntil),
		Level: r.Level, SlowStart: r.Ramp, Forced: r.Forced, ForcedUntil: instant(r.ForcedUntil),
		Rescheduled: r.Rescheduled, Instances: names(r.Instances),
	}
	if r.Metered != 0 {
		s.Budget = &Budget{Remaining: r.BudgetLeft, Limit: r.BudgetLimit}
	}
	return s
}

// statusAt is the record's breaker for a caller that keeps no view, at now (µs) on
// Redis's clock, which was read just before received.
func (r *record) statusAt(now int64, received time.Time) Status {
	s := r.status()
	if s.Budget != nil {
		s.Budget.Reset = r.left(r.BudgetReset, now)
	}
	if s.State == Open && !r.untilReset() {
		s.Remaining = r.left(r.OpenUntil, now)
		s.OpenUntil = received.Add(s.Remaining)
		if s.Remaining == 0 {
			s.State = HalfOpen
		}
	}
	return s
}
