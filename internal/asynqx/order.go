package asynqx

import (
	"time"
)

// Turns of the less urgent queues, so that the urgent one is served first and the
// others are not starved: each eighth fetch looks at the second queue first, every
// other one of these at the third instead.
const (
	secondsTurn = 8
	thirdsTurn  = 16
)

// order returns the queues in the order in which the next fetch looks at them,
// without those that were found empty a moment ago. bufferMu is held.
func (c *Client) order(now time.Time) []string {
	queues := c.o.Queues
	c.turn++
	first := 0
	switch {
	case c.turn%thirdsTurn == 0:
		first = 2
	case c.turn%secondsTurn == 0:
		first = 1
	}
	first = min(first, len(queues)-1)
	out := make([]string, 0, len(queues))
	add := func(queue string) {
		if !now.Before(c.empty[queue]) {
			out = append(out, queue)
		}
	}
	add(queues[first])
	for i, q := range queues {
		if i != first {
			add(q)
		}
	}
	return out
}

// foundEmpty passes a queue over for a moment that has no pending jobs. If held jobs of it
// are due, they have the next turn of the queue instead. bufferMu is held.
func (c *Client) foundEmpty(queue string, now time.Time) {
	if due := c.due[queue]; len(due.keys) > 0 {
		due.turn = true
		c.due[queue] = due
		return
	}
	c.empty[queue] = now.Add(emptyFor)
}
