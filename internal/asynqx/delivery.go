package asynqx

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// Fields are the changing fields of a job that the dequeue reads with it.
type Fields struct {
	Attempt     int
	Reschedules int
	Crashes     int
	ExpiresAt   string // unix ms, "" for never
}

// Delivery is one job in the hands of this process.
type Delivery struct {
	Queue, ID string
	// Key of the job, "" without one.
	Key    string
	Fields Fields
	// Expires is when the job must not be started any more, by the local clock;
	// zero for never.
	Expires time.Time
	// Permit is what the gate granted for this job, and Admit for its key; nil without
	// one.
	Permit any

	msg     string
	run     string // the fetch that it came with
	place   string // among the jobs of its key
	fetched time.Time

	mu       sync.Mutex
	outcome  *Outcome
	returned time.Time // when the handler returned; zero before
	acking   bool      // the outcome is being recorded
	refused  bool      // and Redis has not taken it at the first try

	cancelled bool   // somebody has cancelled the job
	cut       func() // cuts its call
}

// Decide records what is to become of the job; asynq's acknowledgement, which
// follows when the handler returns, carries it out.
func (d *Delivery) Decide(o Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outcome = &o
	d.returned = time.Now()
}

// over reports whether the handler has returned, and the job may run again: it may not
// while it is known to be published and that is not on record.
func (d *Delivery) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	published := d.outcome != nil && d.outcome.Kind == Complete && (!d.acking || d.refused)
	return !d.returned.IsZero() && !published
}

// tried notes the error of an attempt to record the outcome, and returns it.
func (d *Delivery) tried(err error) error {
	if d != nil && err != nil {
		d.mu.Lock()
		d.refused = true
		d.mu.Unlock()
	}
	return err
}

// beginAck reports whether the outcome may be recorded now: nobody else does.
func (d *Delivery) beginAck() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.acking {
		return false
	}
	d.acking = true
	return true
}

func (d *Delivery) endAck() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acking = false
}

// forgotten reports whether the handler returned a while ago and asynq does not
// acknowledge it.
func (d *Delivery) forgotten(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.returned.IsZero() && !d.acking && now.Sub(d.returned) > ackWithin
}

func (d *Delivery) decided() *Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.outcome
}

// Kind is what becomes of a job after a run.
type Kind string

// The kinds of outcomes.
const (
	Complete   Kind = "complete"
	Reschedule Kind = "reschedule" // not now, later: counts in reschedules
	Retry      Kind = "retry"      // failed, again later: counts in attempt
	Fail       Kind = "fail"       // failed for good
	Cancel     Kind = "cancel"     // cancelled while it ran
	Pause      Kind = "pause"      // only of Settled: paused while it ran
	Unstarted  Kind = "defer"      // it was not started; nothing counted
	Requeue    Kind = "requeue"    // back to the head, nothing counted
	recovered  Kind = "recover"    // its worker died: counts in crashes
)

// Outcome says what becomes of a job.
type Outcome struct {
	Kind Kind
	// At is when the job may run again, by the local clock; for Reschedule and
	// Retry. It is turned into a delay when the call to Redis is made, so that
	// time spent repeating the call is not added.
	At time.Time
	// Reason is why the job waits.
	Reason store.Reason
	// Error is kept as last_error unless empty.
	Error string
	// Limit bounds the counter of the kind; nil for none. Reaching beyond it
	// fails the job.
	Limit *int
	// CountedBy is the record's field of a counter that Limit bounds in place of the
	// kind's own; "" for none.
	CountedBy string
	// Response is kept with the job unless nil.
	Response *Response
	// Extend is added to the job's expiry, if it has one.
	Extend time.Duration
	// Settled, if set, is told what came of it before the slot is free again.
	Settled func(Settled)
}

// Response is the destination's answer, as it is kept.
type Response struct {
	Status int
	Body   string
}

// Settled is what Redis made of an outcome.
type Settled struct {
	// Kind is the outcome's, or Fail where a limit was exceeded, Cancel or Pause
	// where that was asked for while it ran, or "" where the job was no longer in
	// this process's hands.
	Kind Kind
	// Count is the new value of the kind's counter.
	Count int
	// AvailableAt is when it may run again, by Redis's clock; zero if never.
	AvailableAt time.Time
	// Error is what is kept as last_error where Kind is Fail.
	Error string
}

// inHand holds the deliveries of one Server.
type inHand struct {
	mu      sync.Mutex
	jobs    map[string]*Delivery // by id: UUIDs, or given ids that are unique
	suspect *Suspect
}

// Suspect is the one job in the hands of a process that a worker has died with.
// All Servers of the process share it.
type Suspect struct {
	mu sync.Mutex
	d  *Delivery
}

// take reserves the place for d, and reports whether it was free.
func (s *Suspect) take(d *Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.d != nil && s.d != d {
		return false
	}
	s.d = d
	return true
}

func (s *Suspect) leave(d *Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.d == d {
		s.d = nil
	}
}

// added says whether a job is in hand.
type added int

const (
	taken        added = iota
	runsStill          // its handler still runs from an earlier fetch, or that it was published is not on record
	suspectWaits       // another suspect is in hand
)

// add takes a job in hand, unless it must not be now.
func (h *inHand) add(d *Delivery) added {
	h.mu.Lock()
	defer h.mu.Unlock()
	earlier := h.jobs[d.ID]
	if earlier != nil && !earlier.over() {
		return runsStill
	}
	if earlier != nil {
		h.suspect.leave(earlier)
	}
	if d.Fields.Crashes > 0 && !h.suspect.take(d) {
		return suspectWaits
	}
	h.jobs[d.ID] = d
	return taken
}

func (h *inHand) get(id string) *Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.jobs[id]
}

// remove lets go of a delivery, and of no later one of the same job.
func (h *inHand) remove(d *Delivery) {
	if d == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.jobs[d.ID] == d {
		delete(h.jobs, d.ID)
	}
	h.suspect.leave(d)
}

func (h *inHand) all() []*Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.jobs))
}

func (h *inHand) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs)
}

// ackWithin is how soon after the handler's return asynq acknowledges. It says
// nothing where it found the lease lost.
const ackWithin = time.Second

// forgotten returns the deliveries that asynq will not acknowledge any more.
func (h *inHand) forgotten(now time.Time) []*Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*Delivery
	for _, d := range h.jobs {
		if d.forgotten(now) {
			out = append(out, d)
		}
	}
	return out
}

// Map returns the fields under their names in the record.
func (f Fields) Map() map[string]string {
	m := make(map[string]string, 4)
	for name, n := range map[string]int{
		store.FieldAttempt: f.Attempt, store.FieldReschedules: f.Reschedules, store.FieldCrashes: f.Crashes,
	} {
		if n > 0 {
			m[name] = strconv.Itoa(n)
		}
	}
	if f.ExpiresAt != "" {
		m[store.FieldExpiresAt] = f.ExpiresAt
	}
	return m
}
