package asynqx

import (
	"math/rand/v2"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/hibiken/asynq"
)

// leaseExpired is how asynq's recoverer marks a task of a worker that died.
var leaseExpired = asynq.ErrLeaseExpired.Error()

// recoverOutcome brings a job of a dead worker back. All jobs of that worker
// come back together; they are spread, so that one which kills its worker does
// not take the same others with it again.
func (c *Client) recoverOutcome() Outcome {
	spread := time.Duration(rand.Int64N(int64(c.o.RecoverSpread) + 1)) //nolint:gosec // spreading needs no secrecy
	o := Outcome{Kind: recovered, At: time.Now().Add(spread), Reason: store.ReasonWorkerLost}
	if c.o.MaxCrashes > 0 {
		o.Limit = &c.o.MaxCrashes
	}
	return o
}

// suspectOutcome puts a job off that a worker has died with while another such job
// is in hand: they run one at a time, so that the guilty one does not take the
// others with it again and again.
func (c *Client) suspectOutcome() *Outcome {
	const from, to = time.Second, 3 * time.Second
	pause := from + time.Duration(rand.Int64N(int64(to-from))) //nolint:gosec // spreading needs no secrecy
	return &Outcome{Kind: Unstarted, At: time.Now().Add(pause), Reason: store.ReasonSuspect}
}
