package engine

import (
	"context"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// ReadAction reads the requested action of a job in flight and acts on it. The published
// message is not proof of a request: all databases of a Redis share its channels, and ids of
// jobs are not unique among them. If the read fails, the next heartbeat finds the request.
func (e *core) ReadAction(ctx context.Context, queue, id string) {
	if e.flight.get(id) == nil {
		return
	}
	if action, err := store.RequestedAction(ctx, e.rdb, queue, id); err == nil {
		e.request(id, action)
	}
}

// request acts on the requested action of a job that may be in flight. A pause needs
// nothing here: it takes effect when the run ends.
func (e *core) request(id string, action store.Action) {
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

// OnCancel registers cut to be called, once or more often, when the job is cancelled. It
// returns false if the job is cancelled already: the handler must not be called.
func (d *Delivery) OnCancel(cut func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = cut
	return !d.cancelled
}

// MarkStuck records with a job that its handler has not returned long after its context
// ended; a cancel reports that.
func (e *core) MarkStuck(ctx context.Context, d *Delivery) error {
	return store.MarkStuck(ctx, e.rdb, d.Queue, d.ID, d.run) //nolint:wrapcheck // it names the operation
}
