package policy

// Kind is what has happened.
type Kind string

// The reports of calls, what an operator does, and Due: an instance asks, or looks, and time may have passed.
const (
	Limited      Kind = "limited"
	Succeeded    Kind = "success"
	Failed       Kind = "failure"
	Unauthorized Kind = "unauthorized"
	Neutral      Kind = "neutral"
	Counted      Kind = "counted" // the meter has reached a number: see Event.MeterEvent

	Due       Kind = "due"     // an instance asks for a call
	Advanced  Kind = "advance" // it looks
	Tripped   Kind = "trip"
	Forcing   Kind = "force"
	Reset     Kind = "reset"
	Renewed   Kind = "renewed"
	Forgotten Kind = "forget"
)

// Event is one event of a destination, or of a key of it.
type Event struct {
	Kind Kind

	// Of reports.
	Permit      string
	Generation  int64 // of the permit
	Known       bool  // it was counted before
	Metered     bool  // the destination's meter has the call,
	KeyMetered  bool  // and the key's
	Sent        int64 // µs
	Scope       string
	Threshold   int64 // refusals that open; 0: no response to this instance does
	Hint        int64 // ms
	Doubt       bool  // the refusal may be the call's own
	Announces   bool
	Left        int64
	ResetIn     int64 // ms
	Limit       int64
	Windows     string // of several: each as "id left reset_in limit"
	Reason      string // also an operator's
	Permanent   bool
	Credentials string
	Retry       int64 // ms after which to ask again for credentials
	Uncalled    bool  // there were none, and no call was made
	Outage      string
	Busy        bool // 503
	Job         string
	Enough      int64 // calls that are an outage

	// When the call ended, and the last one of this instance that the API accepted, of the destination and of the key, µs;
	// 0: now, and none.
	Ended                 int64
	Accepted, KeyAccepted int64
	Others                int64 // of a refusal: the number of other keys that the instance saw accepted lately

	MeterEvent, KeyMeterEvent string // of Counted: as learn.lua has it

	OfKey           bool  // of Due: it is the key's breaker
	Rated, KeyRated bool  // and declared limits space the calls
	Steady          int64 // since when Redis's clock has agreed with the instance's, ms

	Length int64 // ms, of Tripped and Forcing; 0: until a reset
}

// Options of the instance that decides.
type Options struct {
	Cooldown    float64 // ms
	Multiplier  float64
	MaxCooldown float64
	Jitter      float64 // part that is added to a cooldown that has grown
	Learn       bool
	EarlyTests  bool   // of openings by a limit without a hint, see early.go
	Caller      string // who decides: an instance, or an operator
	Instance    bool
}

// Pair is what Redis says of a destination and of a key of it.
type Pair struct {
	Destination, Key      State
	Keyed                 bool // there is a key
	Lost, KeyLost         *State
	InFlight, KeyInFlight int64 // calls that the meter has
	Version               int64 // the highest revision
	Capacity              int64 // calls that all instances make at once
	NewBudget, KeyBudget  bool  // what instances have joined with was of another budget
}

// Effect is a change that is to be stored, and published.
type Effect struct {
	OfKey  bool
	State  State
	Event  *Transition // nil: no transition
	Over   *State      // with the incident that is over; nil: none is
	Opened [2]string   // its reason and the operator that opened it
	Note   bool        // the event is no transition: it is an entry of the history alone
}

// Transition is an entry of the history, but for what the swap adds: instant, generation and incident.
type Transition struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Cause  string `json:"cause"`
	Reason string `json:"reason,omitempty"`

	Failures      int64  `json:"failures,omitempty"`
	OpenedAt      int64  `json:"opened_at,omitempty"`
	OpenUntil     int64  `json:"open_until,omitempty"`
	Probes        int64  `json:"probes,omitempty"`
	Wasted        int64  `json:"wasted,omitempty"`
	Rescheduled   int64  `json:"rescheduled,omitempty"`
	Permanent     int64  `json:"permanent,omitempty"`
	IncidentCause string `json:"incident_cause,omitempty"`
}
