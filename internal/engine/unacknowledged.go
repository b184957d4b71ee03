package engine

import (
	"context"
	"time"
)

// applyReturned applies the outcomes of jobs whose handlers had returned ackWithin before now
// and for which no acknowledgement came: asynq found its lease lost, or Redis was away for
// longer than that. They stay in flight until that is done. It reports whether any is left.
func (e *Engine) applyReturned(now time.Time) (left bool) {
	away := map[string]bool{} // queues: they may lie on different nodes
	for _, d := range e.flight.unacknowledged(now) {
		if away[d.Queue] {
			continue
		}
		ctx, cancel := context.WithTimeout(e.hard, time.Second)
		if err := e.apply(ctx, d); err != nil {
			e.health.failed(err)
		}
		cancel()
		if e.flight.get(d.ID) == d {
			away[d.Queue] = true
		}
	}
	return len(away) > 0
}

// applyAll applies the outcomes that are left at the end of a shutdown, until nothing may be
// waited for any more.
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
