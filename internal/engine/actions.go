package engine

import (
	"context"

	"github.com/tidegate/tidegate/internal/store"
)

// LookForAction reads the requested action of a job, if it is in flight, and acts on it. A
// message that there may be one is only a reason to look: all databases of a Redis share its
// channels, and ids of jobs are not unique among them. What cannot be read is found by the
// next beat.
func (e *Engine) LookForAction(ctx context.Context, queue, id string) {
	if e.flight.get(id) == nil {
		return
	}
	if action, err := store.RequestedAction(ctx, e.rdb, queue, id); err == nil {
		e.request(id, action)
	}
}

// request acts on the requested action of a job that may be in flight. A pause needs
// nothing here: it takes effect when the run ends.
func (e *Engine) request(id string, action store.Action) {
	if d := e.flight.get(id); d != nil && action == store.Cancel {
		d.cancel()
	}
}

func (d *Delivery) cancel() {
	d.mu.Lock()
	cut := d.cut
	d.cancelled = true
	d.mu.Unlock()
	if cut != nil {
		cut()
	}
}

// OnCancel has cut called when the job is cancelled, once or more often. It returns false if
// that has happened: the call is not to be made.
func (d *Delivery) OnCancel(cut func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = cut
	return !d.cancelled
}

// MarkStuck records with a job that its handler has not returned long after its context
// ended, so that a cancel can say so.
func (e *Engine) MarkStuck(ctx context.Context, d *Delivery) error {
	return store.MarkStuck(ctx, e.rdb, d.Queue, d.ID, d.run) //nolint:wrapcheck // it names the operation
}
