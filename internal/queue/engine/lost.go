package engine

import (
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// noteLost remembers a fetch whose reply was lost: it may have taken jobs. A fetch that Redis
// refused took none. On a Cluster the client may have repeated the fetch: then only a refusal
// answers all of its tries.
func (e *queues) noteLost(f fetch, err error) {
	if refusalOf(err) != unanswered && !redis.IsReadOnlyError(err) {
		return
	}
	const most = 100 // jobs of further fetches are recovered when their leases end
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	if len(e.lost[f.queue]) < most {
		e.lost[f.queue] = append(e.lost[f.queue], f.run)
	}
}

// reclaim puts back the jobs of fetches whose replies were lost, and holds the jobs that
// could not be held when they were fetched.
func (e *holder) reclaim() {
	e.holdAgain()
	e.bufferMu.Lock()
	lost := e.lost
	if len(lost) > 0 {
		e.lost = map[string][]string{}
	}
	e.bufferMu.Unlock()
	for queue, runs := range lost {
		if e.inBackoff(queue) {
			e.keepLost(queue, runs)
			continue
		}
		ctx, cancel := e.bounded()
		if err := store.Reclaim(ctx, e.rdb, queue, runs); err != nil {
			e.health.failed(err)
			e.keepLost(queue, runs)
			e.backOffNode(queue)
		}
		cancel()
	}
}

func (e *queues) keepLost(queue string, runs []string) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	e.lost[queue] = append(e.lost[queue], runs...)
}
