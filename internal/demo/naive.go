package demo

import (
	"container/heap"
	"time"
)

// naivePause is how long a worker without a breaker waits before it tries a
// refused job again.
const naivePause = time.Second

// naive computes how many calls would be wasted without a breaker: the same jobs,
// slots and API, where each refused job is tried again after naivePause and the
// slot takes another one meanwhile. It is a simulation, which takes no time.
func naive(o Options) (wasted int) {
	slots := make(instants, o.Workers*o.Concurrency) // when each is free
	due := make(instants, o.Jobs)                    // when each job may be tried
	var windowEnd time.Duration                      // of the API, as fakeapi.FixedWindow counts
	used, open := 0, false
	latency := max(o.Latency, time.Millisecond)
	for done := 0; done < o.Jobs; {
		now := max(slots[0], due[0])
		if !open || now >= windowEnd {
			windowEnd, used, open = now+o.Window, 0, true
		}
		if used < o.Quota {
			used++
			done++
			heap.Pop(&due)
		} else {
			wasted++
			due[0] = now + latency + naivePause
			heap.Fix(&due, 0)
		}
		slots[0] = now + latency
		heap.Fix(&slots, 0)
	}
	return wasted
}

// instants is a heap of times, the earliest first.
type instants []time.Duration

func (h instants) Len() int           { return len(h) }
func (h instants) Less(i, j int) bool { return h[i] < h[j] }
func (h instants) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *instants) Push(x any)        { *h = append(*h, x.(time.Duration)) }

func (h *instants) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
