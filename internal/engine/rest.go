package engine

import (
	"slices"
	"time"
)

// restsFor is how long the queues of a node of a Cluster are passed over after an error, unless a
// look at one of them is answered.
const restsFor = 30 * time.Second

// restNode passes over the queues of a queue's node, which does not answer, so that queues on
// other nodes are fetched from; false without another node.
func (e *Engine) restNode(queue string) bool {
	failed := e.node(queue)
	same := slices.DeleteFunc(slices.Clone(e.o.Queues), func(q string) bool { return e.node(q) != failed })
	if len(same) == len(e.o.Queues) {
		return false
	}
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	for _, q := range same {
		e.rests[q] = time.Now().Add(restsFor)
	}
	return true
}

func (e *Engine) resting(queue string) bool {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	_, rests := e.rests[queue]
	return rests
}

// answers ends the rest of a queue: its node has answered.
func (e *Engine) answers(queue string) {
	e.bufferMu.Lock()
	_, rested := e.rests[queue]
	delete(e.rests, queue)
	e.bufferMu.Unlock()
	if rested {
		e.wakeFor(queue)
	}
}

// restingQueues are to be looked at.
func (e *Engine) restingQueues() (queues []string) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	for q := range e.rests {
		queues = append(queues, q)
	}
	return queues
}

// fetched records that a fetch was answered which began at an instant: by all nodes, if no queue rests.
func (e *Engine) fetched(began time.Time) {
	if len(e.restingQueues()) == 0 {
		e.health.worked(began)
	}
}
