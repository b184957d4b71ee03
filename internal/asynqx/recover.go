package asynqx

import (
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
)

// leaseExpired is how asynq's recoverer marks a task of a worker that died.
var leaseExpired = asynq.ErrLeaseExpired.Error()

// recoverOutcome brings a job of a dead worker back. All jobs of that worker
// come back together; they are spread, so that one which kills its worker does
// not take the same others with it again.
func (c *Client) recoverOutcome() Outcome {
	spread := time.Duration(rand.Int64N(int64(c.o.RecoverSpread) + 1)) //nolint:gosec // spreading needs no secrecy
	return Outcome{Kind: recovered, At: time.Now().Add(spread), Reason: "its worker died; it runs again"}
}
