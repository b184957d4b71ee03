package engine

import (
	"context"
	"time"
)

// applyReturned applies the outcomes of jobs whose handlers returned ackWithin before now
// without an acknowledgement: asynq found its lease lost, or Redis was unavailable for longer
// than that. They stay in flight until then. It reports whether any are left.
func (e *Engine) applyReturned(now time.Time) (left bool) {
	away := map[string]bool{} // by queue, as queues may be on different nodes
	for _, d := range e.flight.unacknowledged(now) {
		if away[d.Queue] {
			continue
		}
		ctx, cancel := context.WithTimeout(e.hard, time.Second)
		over, err := e.apply(ctx, d)
		if err != nil {
			e.health.failed(err)
		}
		cancel()
		if over {
			e.flight.remove(d)
		}
		if e.flight.get(d.ID) == d {
			away[d.Queue] = true
		}
	}
	return len(away) > 0
}

// applyAll applies the remaining outcomes at the end of a shutdown, until Abort.
func (e *Engine) applyAll() {
	const pause = 100 * time.Millisecond
	for e.applyReturned(time.Now().Add(2 * ackWithin)) {
		select {
		case <-e.hard.Done():
			return
		case <-time.After(pause):
		}
	}
}
