package asynqx

import (
	"math/rand/v2"
)

// weights are the shares of the queues, the most urgent first, when all of them
// have jobs: the less urgent are not starved.
var weights = []int{6, 3, 1}

// order returns the queues by weighted chance.
func (c *Client) order() []string {
	queues := c.o.Queues
	if len(queues) == 1 {
		return queues
	}
	left := make([]int, len(queues))
	total := 0
	for i := range queues {
		left[i] = 1
		if i < len(weights) {
			left[i] = weights[i]
		}
		total += left[i]
	}
	out := make([]string, 0, len(queues))
	for len(out) < len(queues) {
		n := rand.IntN(total) //nolint:gosec // fairness needs no secrecy
		for i, w := range left {
			if n < w {
				out = append(out, queues[i])
				total -= w
				left[i] = 0
				break
			}
			n -= w
		}
	}
	return out
}
