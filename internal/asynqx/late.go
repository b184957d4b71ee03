package asynqx

import (
	"context"
	"time"
)

// completeLate records that the destination accepted a job whose lease was lost
// meanwhile, which asynq forgets.
func (c *Client) completeLate(ctx context.Context, d *Delivery) error {
	now := time.Now().UTC()
	a := &completion{
		queue: d.Queue, id: d.ID,
		statsKey: "asynq:{" + d.Queue + "}:processed:" + now.Format(time.DateOnly),
		statsTTL: now.Add(90 * 24 * time.Hour).Unix(),
	}
	return c.completeDelivery(ctx, d, a)
}

// settleLate carries out what was decided about a job whose lease was lost. If
// somebody has recovered it meanwhile it only takes back that its worker was
// counted as dead.
func (c *Client) settleLate(ctx context.Context, d *Delivery, o Outcome) error {
	s, err := c.settle(ctx, d.Queue, d.ID, d.run, o)
	if err != nil && !final(err) {
		return err
	}
	c.inHand.remove(d)
	if o.Settled != nil {
		o.Settled(s)
	}
	return err
}

// settleForgotten deals with jobs whose handlers have returned and that asynq will
// not acknowledge, because it found their lease lost: what was decided is recorded
// all the same, for as long as that takes.
func (c *Client) settleForgotten() {
	c.settleReturned(time.Now())
}

// settleReturned deals with those that had returned ackWithin before now.
func (c *Client) settleReturned(now time.Time) {
	for _, d := range c.inHand.forgotten(now) {
		ctx, cancel := context.WithTimeout(c.hard, time.Second)
		var err error
		if o := d.decided(); o.Kind == Complete {
			err = c.completeLate(ctx, d)
		} else {
			err = c.settleLate(ctx, d, *o)
		}
		cancel()
		if err != nil {
			c.health.failed(err)
			return // the next beat tries again
		}
	}
}
