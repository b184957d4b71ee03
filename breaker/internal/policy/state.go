package policy

// State is one breaker, of a destination or of a key of it, as Redis keeps it. Instants are unix ms on Redis's clock
// unless a field says otherwise, and 0 is none.
type State struct {
	Name string `json:"name"`
	Circuit
	Episode
	Order
	Lease
	SlowStart
	Budget
	Row
	Spacing
	Learned
	Scope

	Generation int64 `json:"generation"` // of the last transition
	Revision   int64 `json:"revision"`   // of the last change
	Step       int64 `json:"step"`       // counts what rules and leases have changed: a decision by an older one is dropped
	UpdatedAt  int64 `json:"updated_at"`
}

// The states of a Circuit.
const (
	Closed   = "CLOSED"
	Open     = "OPEN"
	HalfOpen = "HALF_OPEN"
)

// Circuit is which calls may start, and why.
type Circuit struct {
	State       string `json:"state"` // "" is CLOSED: also a lost hash
	Cause       string `json:"cause"` // of the last opening
	Failures    int64  `json:"failures"`
	LastFailure int64  `json:"last_failure"`
	OpenUntil   int64  `json:"open_until"` // 0 with cause manual: until a reset
	// AskedUntil is when the wait ends that the API asked for last, if that was longer than the longest cooldown.
	AskedUntil int64 `json:"asked_until"`
	// The cooldown grows by levels, and falls back by one for each last cooldown that it has been CLOSED.
	Level        int64 `json:"level"`
	LastCooldown int64 `json:"last_cooldown"` // ms
	QuietSince   int64 `json:"quiet_since"`
}

// Episode is an incident: what happens from an opening to the closing.
type Episode struct {
	Incident      string `json:"incident"` // its id, which the swap gives it
	IncidentCause string `json:"incident_cause"`
	Reason        string `json:"reason"` // of an operator, or why credentials were refused
	TrippedBy     string `json:"tripped_by"`
	Instances     string `json:"instances"` // that took part, with commas between
	OpenedAt      int64  `json:"opened_at"`
	Probes        int64  `json:"probes"` // refused ones
	Wasted        int64  `json:"wasted"`
	Rescheduled   int64  `json:"rescheduled"`
	Permanent     int64  `json:"permanent"`   // 1: only a person can renew the credentials
	Credentials   string `json:"credentials"` // identifies the credentials that were refused last
	Missing       int64  `json:"missing"`     // 1: none could be obtained
}

// Order is an operator's order to stay CLOSED.
type Order struct {
	Forced      string `json:"forced"`       // "closed"
	ForcedUntil int64  `json:"forced_until"` // 0: until a reset
}

// Lease of the probe: of the one call in HALF_OPEN, which the meter grants, or of the call that is to confirm a
// learned limit.
type Lease struct {
	ProbeToken   string `json:"probe_token"`
	ProbeBy      string `json:"probe_by"`
	ProbeStarted int64  `json:"probe_started"`
	ProbeUntil   int64  `json:"probe_until"`
	ProbeAfter   int64  `json:"probe_after"` // not before that
	ProbeRetries int64  `json:"probe_retries"`
}

// SlowStart lets 1, 2, 4 … calls be in flight: Ramp, 0 for any number. RampOK of them succeeded.
type SlowStart struct {
	Ramp   int64 `json:"ramp"`
	RampOK int64 `json:"ramp_ok"`
}

// Budget is what the API says is left. While the breaker is not CLOSED, a reset is when a limit ends that is reached.
type Budget struct {
	Metered     int64  `json:"metered"` // since when calls are counted because few are left
	BudgetLeft  int64  `json:"budget_left"`
	BudgetReset int64  `json:"budget_reset"`
	BudgetLimit int64  `json:"budget_limit"`
	Windows     string `json:"windows"` // of several: each as "id left reset limit", the one first that binds
}

// Row is calls in a row that count for an outage, or keys in a row that were refused.
type Row struct {
	Streak      int64  `json:"streak"`
	StreakSince int64  `json:"streak_since"` // when the first of them ended, µs
	StreakOver  int64  `json:"streak_over"`  // calls that ended before that count no more: the API accepted one then; µs
	StreakLimit int64  `json:"streak_limit"` // this many open
	StreakOf    string `json:"streak_of"`    // "down", "401", "403"; "429" of keys
	StreakJobs  string `json:"streak_jobs"`  // of each call "job@ended", or "key@ended", µs; with commas between
	Outage      string `json:"outage"`       // what the last one consisted of
	OutageID    int64  `json:"outage_id"`
	OutageJobs  string `json:"outage_jobs"` // whose calls reopened in slow start
}

// Spacing is a limiter that spaces calls, see pace.go.
type Spacing struct {
	Pace         int64 `json:"pace"` // ms from one call to the next: the meter's; 0: none
	Spaced       int64 `json:"spaced"`
	PaceFrom     int64 `json:"pace_from"`
	PaceGap      int64 `json:"pace_gap"`
	PaceAccepted int64 `json:"pace_accepted"`
	PaceRefused  int64 `json:"pace_refused"`
	PaceTested   int64 `json:"pace_tested"`
}

// Learned is a limit that the API shows only by 429, see learn.go. Instants and lengths are µs, except LearnedSince
// and ProbeDue.
type Learned struct {
	LearnedSince   int64  `json:"learned_since"`
	Learner        string `json:"learner"` // learner.State as JSON
	LearnedGap     int64  `json:"learned_gap"`
	LearnedLength  int64  `json:"learned_length"`
	LearnedQuota   int64  `json:"learned_quota"`
	LearnedAsks    int64  `json:"learned_asks"`
	LearnedCap     int64  `json:"learned_cap"`
	LearnedCareful int64  `json:"learned_careful"`
	LearnedEnough  int64  `json:"learned_enough"`
	LearnedCalm    int64  `json:"learned_calm"`
	RoundStarted   int64  `json:"round_started"`
	RoundAnchor    int64  `json:"round_anchor"`
	RoundUsed      int64  `json:"round_used"`
	RoundHold      int64  `json:"round_hold"`
	RoundTotal     int64  `json:"round_total"`
	RoundPaced     int64  `json:"round_paced"`
	RoundCalm      int64  `json:"round_calm"`
	RoundDoubted   int64  `json:"round_doubted"` // 1: a hint opened that a call got which may be refused for its own sake
	RefusedAt      int64  `json:"refused_at"`
	Confirming     int64  `json:"confirming"`
	ProbeDue       int64  `json:"probe_due"`
}

// Scope is what is known about who causes refusals, see scope.go.
type Scope struct {
	AloneAt    int64 `json:"alone_at"`    // when one was last shown to be its job's own
	EarlyUntil int64 `json:"early_until"` // when OPEN would have ended without its early tests
	Doubted    int64 `json:"doubted"`     // tests in a row that were refused while one call at a time may start
	Beside     int64 `json:"beside"`      // calls beside the test that were refused, of jobs that were not before; RampOK were accepted
	Again      int64 `json:"again"`       // refusals in a row of jobs that were refused before, while a limit is learned,
	AgainAt    int64 `json:"again_at"`    // how many calls were accepted as the last one came
	Real       int64 `json:"real"`        // early tests in a row that were refused, or calls beside tests: the limit was everyone's
	StreakSent int64 `json:"streak_sent"` // when the last call of a streak of keys began, µs
	KeysNeeded int64 `json:"keys_needed"` // the number of keys refused in a row that are taken for it; 0: as at first
	AllSince   int64 `json:"all_since"`   // the streak of keys that was taken for a limit of all began then, µs,
	AllAt      int64 `json:"all_at"`      // and was long enough then, µs,
	AllOver    int64 `json:"all_over"`    // until a call was accepted, µs
	AllKeys    int64 `json:"all_keys"`    // keys that were refused meanwhile
}

// Plain says that any call may start: instances need not know of the breaker.
func (s *State) Plain() bool {
	return s.State == Closed && s.Failures == 0 && s.Streak == 0 && s.Ramp == 0 && s.Metered == 0 && s.LearnedCap == 0 && s.LearnedSince == 0 && s.Forced == ""
}

// UntilReset says that an operator opened it without an end.
func (s *State) UntilReset() bool { return s.State == Open && s.OpenUntil == 0 && s.Cause == "manual" }
