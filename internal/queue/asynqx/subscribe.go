package asynqx

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// CancelChannel is the channel on which asynq's tools send the id of a task to cancel. The
// engine's worker is to subscribe to it.
const CancelChannel = "asynq:cancel"

// Subscribe answers asynq's subscription to cancelled tasks with a closed one, which asynq tries
// again every 5 s until it stops. It would find only the jobs that asynq's goroutines began
// with; waits without a limit for a Redis that hangs, and asynq's shutdown for it; and crashes
// the process if its client is closed.
func (c *Client) Subscribe(ctx context.Context, _ ...string) *redis.PubSub {
	closed := c.UniversalClient.Subscribe(ctx) // without a channel it does not connect
	_ = closed.Close()
	return closed
}

// NotSubscribed is the beginning of what asynq logs about it.
const NotSubscribed = "cannot subscribe to cancelation channel"
