package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// Delivery is one job in flight.
type Delivery struct {
	Queue, ID string
	// Key of the job, "" without one.
	Key    string
	Fields store.Fields
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
	outcome  *store.Outcome
	applied  func(store.Applied) // told what became of it; nil without one
	returned time.Time           // when the handler returned; zero before
	acking   bool                // the outcome is being recorded
	refused  bool                // and Redis has not taken it at the first try

	cancelled bool   // a cancel was requested
	cut       func() // cancels its call
}

// Message returns the encoded message, once: asynq decodes it.
func (d *Delivery) Message() (message string) {
	message, d.msg = d.msg, ""
	return message
}

// Decide sets the outcome of the job; the acknowledgement, which follows when the handler
// returns, applies it. applied, if it is not nil, is called with what became of the job
// before its slot is free again.
func (d *Delivery) Decide(o store.Outcome, applied func(store.Applied)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outcome, d.applied = &o, applied
	d.returned = time.Now()
}

// over reports whether the handler has returned, and the job may run again: it may not
// while it is known to be published and that is not on record.
func (d *Delivery) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	published := d.outcome != nil && d.outcome.Kind == store.KindComplete && (!d.acking || d.refused)
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

// beginAck reports whether the outcome may be applied now: no other goroutine does.
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

// unacknowledged reports whether the handler returned a while ago and no acknowledgement has
// come.
func (d *Delivery) unacknowledged(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.returned.IsZero() && !d.acking && now.Sub(d.returned) > ackWithin
}

func (d *Delivery) decided() *store.Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.outcome
}

// inFlight holds the deliveries of one engine.
type inFlight struct {
	mu      sync.Mutex
	jobs    map[string]*Delivery // by id: UUIDs, or given ids that are unique
	suspect *Suspect
	freed   chan struct{} // gets a value when a job is not in flight any more
}

// Suspect is the one crash suspect in flight: a job that a worker has died with. All engines
// of a process share it.
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

// added says whether a job is in flight.
type added int

const (
	taken        added = iota
	runsStill          // its handler still runs from an earlier fetch, or that it was published is not on record
	suspectWaits       // another suspect is in flight
)

// add takes a job in flight, unless it must not be now.
func (f *inFlight) add(d *Delivery) added {
	f.mu.Lock()
	defer f.mu.Unlock()
	earlier := f.jobs[d.ID]
	if earlier != nil && !earlier.over() {
		return runsStill
	}
	if earlier != nil {
		f.suspect.leave(earlier)
	}
	if d.Fields.Crashes > 0 && !f.suspect.take(d) {
		return suspectWaits
	}
	f.jobs[d.ID] = d
	return taken
}

func (f *inFlight) get(id string) *Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jobs[id]
}

// remove lets go of a delivery, and of no later one of the same job.
func (f *inFlight) remove(d *Delivery) {
	if d == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.jobs[d.ID] == d {
		delete(f.jobs, d.ID)
		select {
		case f.freed <- struct{}{}:
		default:
		}
	}
	f.suspect.leave(d)
}

func (f *inFlight) all() []*Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.jobs))
}

func (f *inFlight) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.jobs)
}

// ackWithin is how soon after the handler's return an acknowledgement comes. None comes where
// asynq found its lease lost.
const ackWithin = time.Second

// unacknowledged returns the deliveries for which no acknowledgement will come.
func (f *inFlight) unacknowledged(now time.Time) []*Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*Delivery
	for _, d := range f.jobs {
		if d.unacknowledged(now) {
			out = append(out, d)
		}
	}
	return out
}
