package engine

import (
	"maps"
	"slices"
	"time"
)

// backoffFor is how long the queues of a node of a Cluster are skipped after an error, unless a
// check of one of them is answered.
const backoffFor = 30 * time.Second

// backOffNode skips the queues of a queue's node, which does not answer, so that queues on
// other nodes are fetched from; false without another node.
func (e *queues) backOffNode(queue string) bool {
	failed := e.node(queue)
	same := slices.DeleteFunc(slices.Clone(e.o.Queues), func(q string) bool { return e.node(q) != failed })
	if len(same) == len(e.o.Queues) {
		return false
	}
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	for _, q := range same {
		e.backoff[q] = time.Now().Add(backoffFor)
	}
	return true
}

func (e *queues) inBackoff(queue string) bool {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	_, backoff := e.backoff[queue]
	return backoff
}

// endBackoff ends the backoff of a queue: its node has answered.
func (e *waker) endBackoff(queue string) {
	e.bufferMu.Lock()
	_, rested := e.backoff[queue]
	delete(e.backoff, queue)
	e.bufferMu.Unlock()
	if rested {
		e.wakeFor(queue)
	}
}

// queuesInBackoff are to be checked.
func (e *queues) queuesInBackoff() (queues []string) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	return slices.Collect(maps.Keys(e.backoff))
}

// fetched records that a fetch was answered which began at an instant: by all nodes, if no queue is in backoff.
func (e *queues) fetched(began time.Time) {
	if len(e.queuesInBackoff()) == 0 {
		e.health.worked(began)
	}
}
