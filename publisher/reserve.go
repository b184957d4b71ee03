package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// class is the jobs of one priority where parts of limits are reserved.
type class struct {
	queues int // that this and the more urgent ones have
	leave  int // per cent that it leaves to more urgent ones
}

// checkReserve returns what is wrong with a reserve.
func checkReserve(percent map[jobs.Priority]int) error {
	sum := 0
	for priority, part := range percent {
		if priority != jobs.PriorityHigh && priority != jobs.PriorityDefault {
			return fmt.Errorf("Reserve has %q: want high and default", priority)
		}
		if part < 0 {
			return fmt.Errorf("Reserve of %s is %d: want 0 to 99", priority, part)
		}
		sum += part
	}
	if sum > 99 {
		return fmt.Errorf("Reserve is %d per cent together: want less than 100", sum)
	}
	return nil
}

// reserveText is a reserve for people: "high=20%,default=10%".
func reserveText(percent map[jobs.Priority]int) string {
	var words []string
	for _, priority := range store.Priorities {
		if part := percent[jobs.Priority(priority)]; part > 0 {
			words = append(words, fmt.Sprintf("%s=%d%%", priority, part))
		}
	}
	return strings.Join(words, ",")
}

// reserve sets the classes of the destination from the parts, in per cent, that are kept for each priority.
func (g *gate) reserve(percent map[jobs.Priority]int) {
	if len(percent) == 0 {
		return
	}
	leave := 0
	for i, priority := range store.Priorities {
		g.classes = append(g.classes, class{queues: i + 1, leave: leave})
		leave += percent[jobs.Priority(priority)]
	}
	g.urgent = make(chan struct{}, 1)
}

// class is the index of a queue's class; 0 without classes.
func (g *gate) class(queue string) int {
	if len(g.classes) == 0 {
		return 0
	}
	_, priority, _ := store.ParseQueue(queue)
	return max(0, slices.Index(store.Priorities, priority))
}

// leave is what a class leaves to more urgent ones.
func (g *gate) leave(class int) int {
	if class < 0 || class >= len(g.classes) {
		return 0
	}
	return g.classes[class].leave
}

// noteReady ends the wait for the limit of less urgent jobs.
func (g *gate) noteReady(queue string) {
	if len(g.classes) == 0 || queue != "" && g.class(queue) == len(g.classes)-1 {
		return
	}
	select {
	case g.urgent <- struct{}{}:
	default:
	}
}

// ask acquires permits, for jobs of how many of the first queues (0 is all). It asks for the least urgent
// class, whose permits serve all, and, as long as it is refused what is reserved, for more urgent ones that have jobs.
// A job that has been refused for its cost is the next one of its class; others are asked for with a cost of 1.
func (g *gate) ask(ctx context.Context, n int, want *price, state breaker.State) (permits []breaker.Permit, queues int, err error) {
	at := len(g.classes) - 1
	if !want.equal(g.unknown) && at > 0 {
		at = int(g.costly.Load())
	}
	for {
		leave := g.leave(at)
		permits, err = command(ctx, func(ctx context.Context) ([]breaker.Permit, error) { return g.allow(ctx, n, *want, leave, state) })
		if err == nil && at < len(g.classes)-1 {
			queues = g.classes[at].queues
		}
		open, refused := errors.AsType[*breaker.OpenError](err)
		if !refused || !open.Capacity() {
			return permits, queues, err
		}
		ready := 0
		for at--; at >= 0 && ready == 0; at-- {
			if g.classes[at].leave == leave {
				continue
			}
			var problem error
			if ready, problem = command(ctx, func(ctx context.Context) (int, error) { return g.ready(ctx, g.classes[at].queues) }); problem != nil {
				return nil, 0, problem
			}
		}
		if at++; ready == 0 {
			return nil, 0, err
		}
		n, *want = min(n, ready), g.unknown
	}
}

// wait is wait that more urgent jobs and members of the pool end, too.
func (g *gate) wait(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	var moved <-chan struct{}
	if g.pool != nil {
		moved = g.pool.moved
	}
	select {
	case <-moved:
	case <-time.After(d):
	case <-g.urgent:
	case <-changed:
	case <-ctx.Done():
	}
}
