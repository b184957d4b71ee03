package asynqx

import (
	"context"
	"fmt"

	"github.com/tidegate/tidegate/internal/store"
)

// markCancel is the mark of a job whose call is to be cut.
const markCancel = "cancel"

// LookForMark reads what is asked of a job, if it is in hand, and acts on it. A message
// that something may be is no more than a reason to look: channels are common to all
// databases of a Redis, and ids of jobs are not unique among them. What cannot be read is
// found by the next beat.
func (c *Client) LookForMark(ctx context.Context, queue, id string) {
	if c.inHand.get(id) == nil {
		return
	}
	if mark, err := c.HGet(ctx, store.TaskKey(queue, id), store.FieldMark).Result(); err == nil {
		c.Mark(id, mark)
	}
}

// Mark tells the Server what is asked of a job that it may have in hand. A pause
// needs no word: it takes effect when the run ends.
func (c *Client) Mark(id, mark string) {
	if d := c.inHand.get(id); d != nil && mark == markCancel {
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

// OnCancel has cut called when somebody cancels the job, once or more often. It
// returns false if that has happened: the call is not to be made.
func (d *Delivery) OnCancel(cut func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = cut
	return !d.cancelled
}

// MarkStuck records with a job that its handler has not returned long after its context
// ended, so that a cancel can say so.
func (c *Client) MarkStuck(ctx context.Context, d *Delivery) error {
	if err := stuckScript.Run(ctx, c.UniversalClient, []string{store.TaskKey(d.Queue, d.ID)}, d.Queue, d.run).Err(); err != nil {
		return fmt.Errorf("asynqx: mark job %s: %w", d.ID, err)
	}
	return nil
}
