package jobs

import (
	"encoding/json"
	"math"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Spec describes a job to enqueue. Make one with New; Client.Enqueue validates it as a whole.
type Spec struct {
	ID          string
	Destination string
	Key         string
	Payload     json.RawMessage
	Request     Request
	Priority    Priority
	// Order is how it is called among the jobs of its key; "" as its destination says.
	Order          Ordering
	Retry          *RetryPolicy
	MaxReschedules *int
	// Cost is what a call takes of each declared limit, 1 to MaxCost; nil means 1.
	Cost *int
	// Costs is what a call takes of named limits, by their units: up to 8, each 1 to MaxCosts.
	Costs map[string]int
	// At is the earliest instant of the first call; zero means at once.
	At time.Time
	// Delay is At relative to the enqueue, by Redis's clock. At and Delay exclude
	// each other. It must be less than TTL, unless that is 0.
	Delay time.Duration
	// Replace is the job's replace-key, and ReplaceMax bounds its Delay; see [Replace] and [ReplaceMax].
	Replace    string
	ReplaceMax time.Duration
	// ExpiresAt is the instant from which the job must not be started any more;
	// zero means never.
	ExpiresAt time.Time
	// TTL is ExpiresAt relative to the enqueue, by Redis's clock; nil means never.
	// ExpiresAt and TTL exclude each other.
	TTL *time.Duration
	// IfLate says what becomes of it if it would expire before it can start. Default LateEnqueue.
	IfLate LatePolicy
	// Batch names the batch that the job belongs to, if any.
	Batch string
	// Labels are up to MaxLabels free labels; see [Label].
	Labels map[string]string
	// After are the ids of the job's parents: it waits until all have completed.
	After []string
	// OnSuccess and OnFailure: see [Job.OnSuccess].
	OnSuccess, OnFailure string

	// Owner is the owner of the ID, stored with the job as [Job.Owner] if an ID is given. It
	// must be a name as an ID is. The HTTP API sets the name of the token.
	Owner string

	// OwnParents says that each of After must be a job with this Owner: another one is refused as one that does not exist.
	OwnParents bool

	// Fresh says that the ID is new, such as a UUID: it is not looked up.
	Fresh bool

	// Gateway and KeepResponse are set by the gateway of the HTTP API; see [Job.Gateway].
	Gateway, KeepResponse bool

	// Of New, reported by the enqueue.
	err       error
	nilOption bool
}

// Option sets one property of a job to be enqueued.
type Option func(s *Spec)

// Apply sets the property in s. It panics if s is nil.
func (o Option) Apply(s *Spec) {
	if s == nil {
		panic("jobs: apply: the spec is nil; make one with New")
	}
	if o == nil {
		s.nilOption = true
		return
	}
	o(s)
}

// New describes a job for a destination. A payload of type []byte or
// json.RawMessage is sent byte for byte and must be JSON; anything else is
// encoded with encoding/json. Errors, also about a nil option, are reported by the enqueue.
func New(destination string, payload any, opts ...Option) *Spec {
	s := &Spec{Destination: destination, Priority: PriorityDefault}
	switch p := payload.(type) {
	case nil:
		s.Payload = json.RawMessage("null")
	case json.RawMessage:
		s.Payload = p
	case []byte:
		s.Payload = p
	default:
		b, err := json.Marshal(payload)
		if err != nil {
			s.err = err
		}
		s.Payload = b
	}
	for _, o := range opts {
		o.Apply(s)
	}
	return s
}

// ID gives the job its id instead of a new UUIDv7. An id that exists already,
// in any destination, enqueues nothing: the existing job is returned with
// Duplicate set. The look-up costs one more round trip to Redis.
//
// Two clients that enqueue the same new id at the same instant for different
// destinations or priorities can both be accepted: give an id always with the same
// ones.
func ID(id string) Option { return func(s *Spec) { s.ID = id } }

// Key names the owner of the budget inside the destination, a user or a tenant
// for instance. It is a name, never a token.
func Key(key string) Option { return func(s *Spec) { s.Key = key } }

// Path is appended to the destination's URL. It must start with a slash.
func Path(path string) Option { return func(s *Spec) { s.Request.Path = path } }

// Query is appended to the destination's query: "a=b&c=d".
func Query(query string) Option { return func(s *Spec) { s.Request.Query = query } }

// Method replaces the destination's HTTP method, for instance "PUT".
func Method(method string) Option { return func(s *Spec) { s.Request.Method = method } }

// Encode makes the body of the call of the payload, in place of sending it as JSON.
func Encode(e Encoding) Option { return func(s *Spec) { s.Request.Encoding = e } }

// CallTimeout bounds the call, where the destination's timeout is longer. It is rounded up to
// whole seconds; a negative one is refused.
func CallTimeout(d time.Duration) Option {
	return func(s *Spec) {
		if s.Request.TimeoutSecs = int(math.Ceil(d.Seconds())); d < 0 {
			s.Request.TimeoutSecs = -1
		}
	}
}

// Header adds a header to the call.
func Header(name, value string) Option {
	return func(s *Spec) {
		if s.Request.Headers == nil {
			s.Request.Headers = map[string]string{}
		}
		s.Request.Headers[name] = value
	}
}

// Prioritize puts the job before or behind the others of its destination.
func Prioritize(p Priority) Option { return func(s *Spec) { s.Priority = p } }

// MaxReschedules fails the job instead of rescheduling it more than n times. Without it
// there is no limit.
func MaxReschedules(n int) Option {
	return func(s *Spec) {
		limit := n // a copy: an option can be used for many jobs
		s.MaxReschedules = &limit
	}
}

// MaxCost is the highest cost of a call.
const MaxCost = store.MaxCost

// MaxCosts is the highest cost of a call in a unit.
const MaxCosts = 1_000_000_000

// Costs is what a call takes of named limits, by their units: {"tokens": 1200}. Of a limit whose unit it does not
// name, the call takes the destination's estimate, or 1.
func Costs(byUnit map[string]int) Option { return func(s *Spec) { s.Costs = byUnit } }

// Cost is what a call takes of each window of the destination's declared limits, 1 to MaxCost; 1
// without it. A job whose cost is above a window can never run. A handler sets [Job].Cost to what the
// call has really cost.
func Cost(n int) Option { return func(s *Spec) { s.Cost = &n } }

// Retry calls the job again after failures by the given policy. Zero fields of
// the policy take their defaults. Without it a job is called once.
func Retry(p RetryPolicy) Option {
	return func(s *Spec) {
		policy := p.withDefaults() // a copy: an option can be used for many jobs
		s.Retry = &policy
	}
}

// At schedules the job for t.
func At(t time.Time) Option { return func(s *Spec) { s.At = t } }

// Delay schedules the job d after the enqueue. It must be less than a TTL other than 0.
func Delay(d time.Duration) Option { return func(s *Spec) { s.Delay = d } }

// TTL keeps the job from being started d after the enqueue or later: it ends as expired then,
// which is not a failure. TTL(0) expires it at once. A call in flight at that instant is not
// cancelled.
func TTL(d time.Duration) Option {
	return func(s *Spec) {
		ttl := d // a copy: an option can be used for many jobs
		s.TTL = &ttl
	}
}

// ExpiresAt keeps the job from being started at t or later; see TTL.
func ExpiresAt(t time.Time) Option { return func(s *Spec) { s.ExpiresAt = t } }

// Batch adds the job to a named batch, which can be counted, listed, waited for and cancelled
// as a whole. Jobs can be added to it at any time.
func Batch(name string) Option { return func(s *Spec) { s.Batch = name } }

// After makes the job wait until the jobs with these ids have completed. If one of them ends
// otherwise, this job and its descendants are cancelled. They may be in other destinations,
// and must exist, or come earlier in the same EnqueueMany; so there are no cycles. Their outputs
// are in Job.ParentOutput, and in {{ expressions }}: see Job.Resolved.
func After(ids ...string) Option {
	return func(s *Spec) { s.After = append(s.After, ids...) }
}
