package breaker

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Status is a breaker at one moment, as far as the instance or the Redis knew that it was read from. The commands, the HTTP API
// and [Namespace.Read] give the same form: as JSON, times are RFC 3339 in UTC on Redis's clock, null if
// there is none. The tags doc and example are for the API's description.
type Status struct {
	Name string `json:"name" doc:"The destination, or destination/key." example:"deviantart"`
	// State is the effective state: HALF_OPEN also when an OPEN breaker's time
	// has come and no call has been asked for since.
	State State `json:"state" enum:"CLOSED,OPEN,HALF_OPEN" doc:"CLOSED lets calls through, OPEN none, HALF_OPEN one: the probe." example:"OPEN"`
	// Failures counts rate-limited answers in CLOSED; in the other states it keeps its value from when the breaker
	// opened.
	Failures    int       `json:"failures" doc:"Rate-limited answers in a row." example:"3"`
	LastFailure time.Time `json:"last_failure" nullable:"true" doc:"When the last of them came." example:"2030-01-31T14:30:00Z"`
	// Generation of a breaker that is CLOSED without failures is, in a local status, the
	// snapshot's version instead.
	Generation uint64 `json:"generation" doc:"Grows from each transition to the next." example:"17"`
	// OpenUntil is when an OPEN breaker's time comes, on this process's
	// monotonic clock. Zero if it was tripped until it is reset, and if it was read from JSON.
	OpenUntil time.Time `json:"-"`
	// OpenUntilRedis is OpenUntil on Redis's clock, for times that are kept in
	// Redis.
	OpenUntilRedis time.Time `json:"open_until" nullable:"true" doc:"When an OPEN breaker's time comes." example:"2030-01-31T14:35:00Z"`
	// AskedUntil is when the wait ends that the API asked for, if that is later than OpenUntilRedis: it is longer than
	// [Options.MaxCooldown], so the API is tested before. Zero otherwise.
	AskedUntil time.Time `json:"asked_until" nullable:"true" doc:"When the wait ends that the API asked for, if the API is tested before that." example:"2030-02-01T12:30:00Z"`
	UntilReset bool      `json:"until_reset" doc:"True if it was opened by hand until it is reset." example:"false"`
	// Remaining is never negative. It begins up to 1 ms above the cooldown, since breakers end
	// at whole milliseconds.
	Remaining time.Duration `json:"cooldown_remaining_ms" doc:"Milliseconds until open_until." example:"299000"`
	Incident  string        `json:"incident" doc:"The id of the incident, the same from opening to closing; empty in CLOSED." example:"4f2a"`
	Cause     string        `json:"cause" doc:"Why it opened last: threshold, hint, probe, ramp, budget, credentials, outage or manual." example:"hint"`
	// IncidentCause is also an operator's part in the incident.
	IncidentCause string `json:"incident_cause" doc:"Why the incident began: a failed probe does not change it." example:"hint"`
	Reason        string `json:"reason" doc:"What the person said who opened it, or why the API refused the credentials." example:""`
	// Permanent is true if the API refused credentials that only a person can renew; see
	// [Outcome.WithReason].
	Permanent bool `json:"-"`
	// Credentials identifies the refused credentials; see [Outcome.WithCredentials].
	Credentials string `json:"-"`
	// NoCredentials is true if they were not refused, but could not be obtained; see
	// [Outcome.WithRetry].
	NoCredentials bool   `json:"-"`
	TrippedBy     string `json:"tripped_by" doc:"Who that was." example:""`
	// Streak counts in CLOSED, for an outage or for a limit that all keys meet.
	Streak int `json:"streak" doc:"Calls of different jobs in a row that failed alike, or different keys in a row that were rate limited." example:"0"`
	// StreakLimit is the Streak at which calls open the breaker, or at which the limit of the keys is taken for the
	// destination's; 0 without a streak.
	StreakLimit int `json:"streak_limit" doc:"How many of them open the breaker, or are taken for a limit of the destination; 0 without any." example:"0"`
	// StreakOf is "down", "401" or "403"; "429" of calls of different keys; "" without a streak.
	StreakOf string `json:"streak_of" doc:"What they ended in: down is 5xx, a timeout or a broken connection; 401 or 403; 429 of different keys; empty without any." example:""`
	// SuggestedRate is in the form of ParseRate: the API spaces calls, and accepted about as many.
	SuggestedRate string `json:"suggested_rate" doc:"Set if the API spaces calls, and slow starts have shown how far apart: the rate to declare." example:"120/1m"`
	// RecoversFromOutage is true in the slow start after an outage.
	RecoversFromOutage bool `json:"-"`
	// StreakJobs are the jobs of the streak's calls, see [Status.InStreak].
	StreakJobs string `json:"-"`
	// OutageID names the last opening by a streak: it grows as Generation does.
	OutageID uint64    `json:"-"`
	OpenedAt time.Time `json:"opened_at" nullable:"true" doc:"When the incident began." example:"2030-01-31T14:30:00Z"`
	Probes   int       `json:"probes" doc:"The incident's probes that failed." example:"0"`
	// Wasted includes the answers that led to the opening, and late ones.
	Wasted     int       `json:"wasted" doc:"All calls that failed because of the incident: rate limited, refused credentials, or of an outage." example:"3"`
	ProbeBy    string    `json:"probe_by" doc:"The instance that probes now." example:""`
	ProbeUntil time.Time `json:"probe_until" nullable:"true" doc:"When the probe is given up at the latest." example:"2030-01-31T14:35:35Z"`
	// Level is less the steps that the cooldown has fallen back by: see
	// Options.CooldownMultiplier.
	Level     int `json:"level" doc:"How many failed probes the cooldown has grown by." example:"0"`
	SlowStart int `json:"slow_start" doc:"How many calls may be in flight after an incident; 0 outside of a slow start." example:"0"`
	// Budget is nil while calls are not metered. Its Reset is what is left of the window.
	Budget *Budget `json:"budget" doc:"What the API said is left, while that is so little that calls are counted."`
	// InFlight and Concurrency are 0 in a local status.
	InFlight    int `json:"in_flight" doc:"Calls in flight that are counted for the whole fleet: with a concurrency, in slow start and while the budget is low." example:"5"`
	Concurrency int `json:"concurrency" doc:"How many calls may be in flight in the whole fleet; 0 is no limit." example:"5"`
	// Reserve is [Options.Reserve] of the instances.
	Reserve string `json:"reserve" doc:"Part of each limit that is kept for more urgent jobs, by priority; empty: none." example:"high=20%"`
	// Learned is nil while nothing is learned.
	Learned *LearnedLimit `json:"-"`
	// Rate is nil in a local status. Of several windows it is the one that holds the next call
	// longest.
	Rate        *RateStatus `json:"rate" doc:"The configured rate, while calls were made by it within its last interval; else null."`
	Forced      string      `json:"forced" doc:"closed while a person keeps it CLOSED, else empty." example:""`
	ForcedUntil time.Time   `json:"forced_until" nullable:"true" doc:"Until when; null: until it is reset." example:"2030-01-31T15:00:00Z"`
	// Rescheduled is as far as the instances have reported it.
	Rescheduled int      `json:"rescheduled" doc:"Rescheduled jobs of the incident." example:"12"`
	Instances   []string `json:"instances" doc:"Instances that had a part in the incident." example:"[\"host:4711\"]"`
}

// MarshalJSON writes null for times that are not set, and Remaining in milliseconds.
func (s Status) MarshalJSON() ([]byte, error) {
	type fields Status // without this method
	f := fields(s)
	f.Remaining, f.Instances = time.Duration(wholeMillis(s.Remaining)), append([]string{}, s.Instances...)
	return json.Marshal(struct {
		fields
		LastFailure *time.Time `json:"last_failure"`
		OpenUntil   *time.Time `json:"open_until"`
		AskedUntil  *time.Time `json:"asked_until"`
		OpenedAt    *time.Time `json:"opened_at"`
		ProbeUntil  *time.Time `json:"probe_until"`
		ForcedUntil *time.Time `json:"forced_until"`
	}{f, utc(s.LastFailure), utc(s.OpenUntilRedis), utc(s.AskedUntil), utc(s.OpenedAt), utc(s.ProbeUntil), utc(s.ForcedUntil)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Status) UnmarshalJSON(data []byte) error {
	type fields Status
	f := fields{}
	if err := json.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("breaker: status: %w", err)
	}
	f.Remaining *= 1e6 // it was in ms
	*s = Status(f)
	return nil
}

// wholeMillis rounds d for users: to the precision of a cooldown, and to 0 only when it is
// over.
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

// InStreak reports whether a call of the job, see [Outcome.WithJob], is one of the Streak. It leaves the streak when the
// API accepts a call that ended later.
func (s *Status) InStreak(job string) bool {
	return s.Streak > 0 && strings.Contains(","+s.StreakJobs, ","+token(jobHash(job))+"@")
}

// status returns the fields that do not depend on the time.
func (r *record) status() Status {
	s := Status{
		Name: r.Name, State: r.state(), Failures: int(r.Failures), LastFailure: instant(r.LastFailure),
		Generation: r.generation(), OpenUntilRedis: instant(r.OpenUntil), UntilReset: r.UntilReset(), Incident: r.Incident,
		Cause: r.Cause, IncidentCause: r.IncidentCause, Reason: r.Reason, Permanent: r.Permanent != 0, Credentials: r.Credentials, NoCredentials: r.Missing != 0,
		Streak: int(r.Streak), StreakOf: r.StreakOf, StreakLimit: int(r.StreakLimit), StreakJobs: r.StreakJobs, OutageID: uint64(r.OutageID), //nolint:gosec // µs
		SuggestedRate: r.suggestedRate(), RecoversFromOutage: r.state() == Closed && r.Ramp > 0 && r.Outage != "",
		TrippedBy: r.TrippedBy, OpenedAt: instant(r.OpenedAt),
		Probes: int(r.Probes), Wasted: int(r.Wasted), ProbeBy: r.ProbeBy, ProbeUntil: instant(r.ProbeUntil),
		Level: int(r.Level), SlowStart: int(r.Ramp), Forced: r.Forced, ForcedUntil: instant(r.ForcedUntil),
		InFlight: r.InFlight, Concurrency: r.Cap, Reserve: r.Reserve, Learned: r.learned(),
		Rescheduled: int(r.Rescheduled), Instances: names(r.Instances),
	}
	if r.state() != Closed && r.AskedUntil > r.OpenUntil && !r.UntilReset() {
		s.AskedUntil = instant(r.AskedUntil)
	}
	if r.Metered != 0 {
		s.Budget = &Budget{Remaining: int(r.BudgetLeft), Limit: int(r.BudgetLimit)}
	}
	return s
}

// statusAt returns the status at now (µs) on Redis's clock, which was read just before
// received, for a caller without a view.
func (r *record) statusAt(now int64, received time.Time) Status {
	s := r.status()
	if s.Budget != nil {
		s.Budget.Reset = r.left(r.BudgetReset, now)
	}
	if r.left(r.AskedUntil, now) == 0 {
		s.AskedUntil = time.Time{}
	}
	if s.State == Open && !r.UntilReset() {
		s.Remaining = r.left(r.OpenUntil, now)
		s.OpenUntil = received.Add(s.Remaining)
		if s.Remaining == 0 {
			s.State = HalfOpen
		}
	}
	return s
}
