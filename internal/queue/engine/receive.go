package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// passedOver counts jobs that a fetch moved and did not return.
type passedOver struct {
	dropped int // deleted, ended or deferred
	held    int // held for their keys
}

// receive takes the jobs of a reply in flight, and holds those whose keys the gate refuses.
// The error is about jobs that could not be moved.
func (e *Engine) receive(f fetch, reply store.FetchReply) (ds []*Delivery, passed passedOver, err error) {
	passed = passedOver{dropped: reply.Dropped, held: reply.Held}
	e.noteDue(f.queue, reply.HeldKeys)
	if f.key == "" {
		e.noteUnsorted(f.queue, reply.Unsorted)
	}
	e.pace.fetched(len(reply.Jobs))
	e.bufferMu.Lock()
	e.paused = e.paused || reply.Paused
	if reply.Drained {
		e.foundDrained(f)
	}
	e.bufferMu.Unlock()
	if reply.Expired > 0 && e.o.Expired != nil {
		e.o.Expired(f.queue, reply.Expired)
	}
	for of, n := range reply.Foreign {
		if e.o.Foreign != nil {
			e.o.Foreign(f.queue, of, n)
		}
	}
	err = reply.Malformed
	a := admission{e: &e.holder, f: f, opened: e.opening.count()}
	fetched := make([]*Delivery, len(reply.Jobs))
	for i, job := range reply.Jobs {
		fetched[i] = e.deliveryOf(f, job)
	}
	if !reply.InTurns {
		err = errors.Join(err, a.behindHeld(fetched, reply.HeldKeys))
	}
	for i, d := range fetched {
		refusal := e.leaves(f, d)
		if refusal == nil {
			refusal = e.refusal(d)
		}
		if refusal != nil {
			ctx, cancel := e.bounded()
			_, problem := e.applyOutcome(ctx, f.queue, d.ID, d.run, *refusal)
			cancel()
			err = errors.Join(err, problem)
			passed.dropped++
			continue
		}
		switch a.admit(d) {
		case Admitted:
			ds = append(ds, d)
		case KeyRefused:
			if f.key == "" { // else the other held jobs of the key are behind it
				passed.held++
			}
		case Refused:
			problem := errors.Join(a.err, e.refused(d, reply.Jobs[i+1:]))
			if problem == nil {
				problem = errRefused
			}
			return ds, passed, errors.Join(err, problem, a.hold())
		}
	}
	return ds, passed, errors.Join(err, a.hold())
}

// errRefused ends a fetch whose job costs more than the destination has now.
var errRefused = errors.New("the destination has not as much as the next job costs")

// refused puts back the job and the jobs that were fetched behind it, and makes its queue the next one.
func (e *holder) refused(d *Delivery, behind []store.Fetched) error {
	e.bufferMu.Lock()
	e.refusedIn = d.Queue
	e.bufferMu.Unlock()
	ctx, cancel := e.bounded()
	defer cancel()
	e.flight.remove(d)
	var errs []error
	back := func(id string) {
		_, err := e.applyUndecided(ctx, d.Queue, id, d.run, store.Outcome{Kind: store.KindRequeue})
		errs = append(errs, err)
	}
	for _, job := range slices.Backward(behind) {
		back(job.ID)
	}
	back(d.ID)
	return errors.Join(errs...)
}

const (
	leaveFor   = time.Second      // for which a job that was refused leaves a test to others, once of each worker,
	leaveUntil = 10 * time.Second // and not later than that after the refusal: all jobs may have been refused
)

// leaves returns the outcome of a job that is not to make the call that decides for others, as its own last one was refused.
func (e *holder) leaves(f fetch, d *Delivery) *store.Outcome {
	if !f.tests {
		return nil
	}
	if ago, refused := d.Fields.RefusedAgo(); !refused || ago > leaveUntil {
		return nil
	}
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	if at, has := e.left[d.ID]; has && d.fetched.Sub(at) < 3*leaveFor { // no other job has come
		delete(e.left, d.ID)
		return nil
	}
	if e.left == nil || len(e.left) >= maxFetch {
		e.left = map[string]time.Time{}
	}
	e.left[d.ID] = d.fetched
	return &store.Outcome{Kind: store.KindUnstarted, At: d.fetched.Add(leaveFor)}
}

// refusal takes the job in flight, or returns its outcome instead.
func (e *holder) refusal(d *Delivery) *store.Outcome {
	switch e.flight.add(d) {
	case runsStill:
		// The lease ended, and the job was fetched again while its handler still runs here
		// or before its completion is recorded. A process never runs a job twice at once.
		return &store.Outcome{Kind: store.KindUnstarted, At: d.fetched.Add(staleAfter), Reason: store.ReasonOf(store.ReasonStillRunning, e.o.Worker)}
	case suspectWaits:
		return e.suspectOutcome()
	}
	return nil
}

func (e *core) deliveryOf(f fetch, job store.Fetched) *Delivery {
	d := &Delivery{
		Queue: f.queue, ID: job.ID, Key: job.Key, Fields: job.Fields,
		place: job.Place, msg: job.Message, run: f.run, fetched: f.at,
	}
	if e.o.KeyOf != nil {
		d.Key = e.o.KeyOf(job.Message, job.Key)
	}
	if job.ExpiresIn != nil {
		// From before the fetch, so that the expiry is never too late.
		d.Expires = f.at.Add(*job.ExpiresIn)
	}
	return d
}
