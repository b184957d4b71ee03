package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Delivery is one job in flight.
type Delivery struct {
	Queue, ID string
	// Key of the job, "" without one.
	Key    string
	Fields store.Fields
	// Expires is when the job expires, by the local clock: it must not be started later.
	// Zero: never.
	Expires time.Time
	// Permit of the grant, and of Admit for its key; nil without one.
	Permit any

	run     string // id of the fetch
	place   string // among the jobs of its key
	fetched time.Time

	mu      sync.Mutex
	msg     string // encoded; "" once the handler has started
	outcome *store.Outcome
	applied func(store.Applied) // called with the applied outcome; may be nil
	acking  bool                // the outcome is being recorded
	refused bool                // and Redis has not taken it at the first try

	cancelled bool   // a cancel was requested
	cut       func() // cancels its call
}

// Message returns the encoded message.
func (d *Delivery) Message() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.msg
}

// Fetched returns when the job was fetched.
func (d *Delivery) Fetched() time.Time { return d.fetched }

// Start notes that the handler of the job starts, and returns its message, once. The error is stored
// with the job.
func (d *Delivery) Start() (*store.Message, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := store.CheckMessage(d.msg); err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	m, err := store.DecodeMessage([]byte(d.msg))
	d.msg = ""
	return m, err //nolint:wrapcheck // it names the operation
}

// Decide sets the outcome of the job, which Worker.Settle applies. applied, if it is not nil, is called with what became of the job
// before its slot is free again.
func (d *Delivery) Decide(o store.Outcome, applied func(store.Applied)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outcome, d.applied = &o, applied
}

// over reports whether the handler has returned and the job may run again: it may not while
// its completion is not recorded.
func (d *Delivery) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	published := d.outcome != nil && d.outcome.Kind == store.KindComplete && (!d.acking || d.refused)
	return d.outcome != nil && !published
}

// tried notes that recording the outcome failed, and returns the error.
func (d *Delivery) tried(err error) error {
	if err != nil {
		d.mu.Lock()
		d.refused = true
		d.mu.Unlock()
	}
	return err
}

// beginAck returns the outcome, which is being recorded from now on; a failure if none was decided.
func (d *Delivery) beginAck() store.Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.outcome == nil {
		d.outcome = &store.Outcome{Kind: store.KindFail, Error: errUndecided.Error()}
	}
	d.acking = true
	return *d.outcome
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
	parked  map[string]bool      // ids of the jobs without a slot
	suspect *Suspect
	freed   chan struct{} // gets a value when there may be a slot
	// before are the jobs still in flight in the engine that this one replaces, after the jobs in the engine that
	// replaces this one; nil: there is no such engine.
	before, after atomic.Pointer[inFlight]
	left          bool // its engine has ended; guarded by linking
}

// follow counts what another engine of the queues still has in flight as this one's, until that ends.
func (f *inFlight) follow(before *inFlight) {
	linking.Lock()
	defer linking.Unlock()
	for before.left {
		if before = before.before.Load(); before == nil {
			return
		}
	}
	f.before.Store(before)
	before.after.Store(f)
}

// linking is held while before and after change.
var linking sync.Mutex

// leave has the engine after this one no longer count what is in flight here.
func (f *inFlight) leave() {
	linking.Lock()
	before, after := f.before.Load(), f.after.Load()
	if before != nil {
		before.after.Store(after)
	}
	if after != nil {
		after.before.Store(before)
		f.before.Store(nil)
	}
	f.left = true
	linking.Unlock()
	if after != nil {
		after.free()
	}
}

// Suspect is the one crash suspect in flight: a job that was in flight when a worker died.
// All engines of a process share it.
type Suspect struct {
	mu sync.Mutex
	d  *Delivery
}

// take makes d the suspect in flight; false if there is another one.
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

// added is the result of inFlight.add.
type added int

const (
	taken        added = iota
	runsStill          // its handler still runs from an earlier fetch, or its completion is not recorded
	suspectWaits       // another suspect is in flight
)

// add adds a job, unless it must not be in flight now.
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
	delete(f.parked, d.ID)
	return taken
}

// park takes the slot of a job that stays in flight.
func (f *inFlight) park(d *Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.jobs[d.ID] == d {
		if f.parked == nil {
			f.parked = map[string]bool{}
		}
		f.parked[d.ID] = true
	}
}

func (f *inFlight) get(id string) *Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jobs[id]
}

// remove removes a delivery, but not a later one of the same job, and frees its slot.
func (f *inFlight) remove(d *Delivery) {
	f.takeOut(d)
	f.free()
}

// takeOut is remove for a caller that uses the slot again, or frees it. It reports whether the
// delivery was in flight.
func (f *inFlight) takeOut(d *Delivery) (was bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was = f.jobs[d.ID] == d; was {
		delete(f.jobs, d.ID)
		delete(f.parked, d.ID)
	}
	f.suspect.leave(d)
	return was
}

// free says that there may be a slot.
func (f *inFlight) free() {
	poke(f.freed)
	if after := f.after.Load(); after != nil {
		after.free()
	}
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

// slots returns how many slots are in use.
func (f *inFlight) slots() (n int) {
	if before := f.before.Load(); before != nil {
		n = before.slots()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return n + len(f.jobs) - len(f.parked)
}
