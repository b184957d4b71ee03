package policy

// State is one breaker, of a destination or of a key of it. Redis keeps it as one JSON text, which a swap replaces, and
// beside it the Meter. Instants are unix ms on Redis's clock unless a field says otherwise, and 0 is none.
type State struct {
	Name string `json:"name,omitempty"`
	Circuit
	Episode
	Order
	Budget
	Row
	Spacing
	Learned
	Scope
	Watch string `json:"watch,omitempty"` // outcomes that the rules must see next, see watch.go

	Meter `json:"meter,omitzero"`
}

// Meter is what scripts change by themselves: fields of their own in the breaker's hash, see lua/record.lua.
type Meter struct {
	Counts
	Lease
	SlowStart
	Round

	Incident   string `json:"incident,omitempty"` // its id: "" while it is CLOSED
	BudgetLeft int64  `json:"budget_left,omitempty"`
	Windows    string `json:"windows,omitempty"` // of several: each as "id left reset limit", the one first that binds
	PaceGap    int64  `json:"pace_gap,omitempty"`

	Generation int64 `json:"generation,omitempty"` // of the last transition
	Revision   int64 `json:"revision,omitempty"`   // of the last change
	Step       int64 `json:"step,omitempty"`       // counts what rules and leases have changed: a decision by an older one is dropped
	UpdatedAt  int64 `json:"updated_at,omitempty"`
}

// Counts are of the present row of refusals, and of the incident.
type Counts struct {
	Failures    int64  `json:"failures,omitempty"`
	LastFailure int64  `json:"last_failure,omitempty"`
	Wasted      int64  `json:"wasted,omitempty"`
	Rescheduled int64  `json:"rescheduled,omitempty"`
	Instances   string `json:"instances,omitempty"` // that took part, with commas between
}

// Round is the present round of calls of a limit that is learned, see learn.lua. Instants and lengths are µs.
type Round struct {
	RoundStarted int64 `json:"round_started,omitempty"`
	RoundAnchor  int64 `json:"round_anchor,omitempty"`
	RoundUsed    int64 `json:"round_used,omitempty"`
	RoundHold    int64 `json:"round_hold,omitempty"`
	RoundTotal   int64 `json:"round_total,omitempty"`
	RoundPaced   int64 `json:"round_paced,omitempty"`
	RoundCalm    int64 `json:"round_calm,omitempty"`
}

// The states of a Circuit.
const (
	Closed   = "CLOSED"
	Open     = "OPEN"
	HalfOpen = "HALF_OPEN"
)

// Circuit is which calls may start, and why.
type Circuit struct {
	State     string `json:"state,omitempty"`      // "" is CLOSED: also a lost hash
	Cause     string `json:"cause,omitempty"`      // of the last opening
	OpenUntil int64  `json:"open_until,omitempty"` // 0 with cause manual: until a reset
	// AskedUntil is when the wait ends that the API asked for last, if that was longer than the longest cooldown.
	AskedUntil int64 `json:"asked_until,omitempty"`
	// The cooldown grows by levels, and falls back by one for each last cooldown that it has been CLOSED.
	Level        int64 `json:"level,omitempty"`
	LastCooldown int64 `json:"last_cooldown,omitempty"` // ms
	QuietSince   int64 `json:"quiet_since,omitempty"`
}

// Episode is an incident: what happens from an opening to the closing.
type Episode struct {
	IncidentCause string `json:"incident_cause,omitempty"`
	Reason        string `json:"reason,omitempty"` // of an operator, or why credentials were refused
	TrippedBy     string `json:"tripped_by,omitempty"`
	OpenedAt      int64  `json:"opened_at,omitempty"`
	Probes        int64  `json:"probes,omitempty"`      // refused ones
	Permanent     int64  `json:"permanent,omitempty"`   // 1: only a person can renew the credentials
	Credentials   string `json:"credentials,omitempty"` // identifies the credentials that were refused last
	Missing       int64  `json:"missing,omitempty"`     // 1: none could be obtained
}

// Order is an operator's order to stay CLOSED.
type Order struct {
	Forced      string `json:"forced,omitempty"`       // "closed"
	ForcedUntil int64  `json:"forced_until,omitempty"` // 0: until a reset
}

// Lease of the probe: of the one call in HALF_OPEN, which the meter grants, or of the call that is to confirm a
// learned limit.
type Lease struct {
	ProbeToken   string `json:"probe_token,omitempty"`
	ProbeBy      string `json:"probe_by,omitempty"`
	ProbeStarted int64  `json:"probe_started,omitempty"`
	ProbeUntil   int64  `json:"probe_until,omitempty"`
	ProbeAfter   int64  `json:"probe_after,omitempty"` // not before that
	ProbeRetries int64  `json:"probe_retries,omitempty"`
}

// SlowStart lets 1, 2, 4 … calls be in flight: Ramp, 0 for any number. RampOK of them succeeded.
type SlowStart struct {
	Ramp   int64 `json:"ramp,omitempty"`
	RampOK int64 `json:"ramp_ok,omitempty"`
}

// Budget is what the API says is left. While the breaker is not CLOSED, a reset is when a limit ends that is reached.
type Budget struct {
	Metered     int64 `json:"metered,omitempty"` // since when calls are counted because few are left
	BudgetReset int64 `json:"budget_reset,omitempty"`
	BudgetLimit int64 `json:"budget_limit,omitempty"`
}

// Row is calls in a row that count for an outage, or keys in a row that were refused.
type Row struct {
	Streak      int64  `json:"streak,omitempty"`
	StreakSince int64  `json:"streak_since,omitempty"` // when the first of them ended, µs
	StreakOver  int64  `json:"streak_over,omitempty"`  // calls that ended before that count no more: the API accepted one then; µs
	StreakLimit int64  `json:"streak_limit,omitempty"` // this many open
	StreakOf    string `json:"streak_of,omitempty"`    // "down", "401", "403"; "429" of keys
	StreakJobs  string `json:"streak_jobs,omitempty"`  // of each call "job@ended", or "key@ended", µs; with commas between
	Outage      string `json:"outage,omitempty"`       // what the last one consisted of
	OutageID    int64  `json:"outage_id,omitempty"`
	OutageJobs  string `json:"outage_jobs,omitempty"` // whose calls reopened in slow start
}

// Spacing is a limiter that spaces calls, see pace.go.
type Spacing struct {
	Pace         int64 `json:"pace,omitempty"` // ms from one call to the next: the meter's; 0: none
	Spaced       int64 `json:"spaced,omitempty"`
	PaceFrom     int64 `json:"pace_from,omitempty"`
	PaceAccepted int64 `json:"pace_accepted,omitempty"`
	PaceRefused  int64 `json:"pace_refused,omitempty"`
	PaceTested   int64 `json:"pace_tested,omitempty"`
}

// Learned is a limit that the API shows only by 429, see learn.go. Instants and lengths are µs, except LearnedSince
// and ProbeDue.
type Learned struct {
	LearnedSince   int64  `json:"learned_since,omitempty"`
	Learner        string `json:"learner,omitempty"` // learner.State as JSON
	LearnedGap     int64  `json:"learned_gap,omitempty"`
	LearnedLength  int64  `json:"learned_length,omitempty"`
	LearnedQuota   int64  `json:"learned_quota,omitempty"`
	LearnedAsks    int64  `json:"learned_asks,omitempty"`
	LearnedCap     int64  `json:"learned_cap,omitempty"`
	LearnedCareful int64  `json:"learned_careful,omitempty"`
	LearnedEnough  int64  `json:"learned_enough,omitempty"`
	LearnedCalm    int64  `json:"learned_calm,omitempty"`
	RoundDoubted   int64  `json:"round_doubted,omitempty"` // 1: a hint opened that a call got which may be refused for its own sake
	RefusedAt      int64  `json:"refused_at,omitempty"`
	Confirming     int64  `json:"confirming,omitempty"`
	ProbeDue       int64  `json:"probe_due,omitempty"`
}

// Scope is what is known about who causes refusals, see scope.go.
type Scope struct {
	AloneAt    int64 `json:"alone_at,omitempty"`    // when one was last shown to be its job's own
	EarlyUntil int64 `json:"early_until,omitempty"` // when OPEN would have ended without its early tests
	Doubted    int64 `json:"doubted,omitempty"`     // tests in a row that were refused while one call at a time may start
	Beside     int64 `json:"beside,omitempty"`      // calls beside the test that were refused, of jobs that were not before; RampOK were accepted
	Again      int64 `json:"again,omitempty"`       // refusals in a row of jobs that were refused before, while a limit is learned,
	AgainAt    int64 `json:"again_at,omitempty"`    // how many calls were accepted as the last one came
	Real       int64 `json:"real,omitempty"`        // early tests in a row that were refused, or calls beside tests: the limit was everyone's
	StreakSent int64 `json:"streak_sent,omitempty"` // when the last call of a streak of keys began, µs
	KeysNeeded int64 `json:"keys_needed,omitempty"` // the number of keys refused in a row that are taken for it; 0: as at first
	AllSince   int64 `json:"all_since,omitempty"`   // the streak of keys that was taken for a limit of all began then, µs,
	AllAt      int64 `json:"all_at,omitempty"`      // and was long enough then, µs,
	AllOver    int64 `json:"all_over,omitempty"`    // until a call was accepted, µs
	AllKeys    int64 `json:"all_keys,omitempty"`    // keys that were refused meanwhile
}

// Plain says that any call may start: instances need not know of the breaker.
func (s *State) Plain() bool {
	return (s.State == Closed || s.State == "") && s.Failures == 0 && s.Streak == 0 && s.Ramp == 0 && s.Metered == 0 && s.LearnedCap == 0 && s.LearnedSince == 0 && s.Forced == ""
}

// UntilReset says that an operator opened it without an end.
func (s *State) UntilReset() bool { return s.State == Open && s.OpenUntil == 0 && s.Cause == "manual" }
