package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var (
	forwardScript = script("forward")
	releaseScript = script("release")
)

// ForwardArgs say what maintenance of a queue to do, and what to look for.
type ForwardArgs struct {
	Queue string
	// Move moves due jobs to pending.
	Move bool
	// Parents and Actions look for parents in the outbox, and for requested actions.
	Parents, Actions bool
}

// ForwardReply says what was moved, and what other maintenance the queue needs.
type ForwardReply struct {
	Moved   int
	Expired bool // a job is to be expired: call Sweep
	Parents bool // a parent has finished: call ReleaseAllChildren
	Actions []Requested
}

// Requested is an action that is requested of a running job.
type Requested struct {
	ID     string
	Action Action
}

// Forward moves due jobs of a queue to pending, up to a hundred. Errors: Redis's.
func Forward(ctx context.Context, rdb redis.Scripter, a ForwardArgs) (ForwardReply, error) {
	v, err := valuesOf(forwardScript.Run(ctx, rdb, []string{DueKey(a.Queue), PendingKey(a.Queue)},
		a.Queue, flag(a.Move), flag(a.Parents), flag(a.Actions)))
	r := ForwardReply{Moved: v.integer(), Expired: v.integer() == 1, Parents: v.integer() == 1}
	if err == nil {
		err = v.err
	}
	if err != nil {
		return ForwardReply{}, fmt.Errorf("forward jobs of %s: %w", a.Queue, err)
	}
	for len(v.left) >= 2 {
		r.Actions = append(r.Actions, Requested{ID: v.text(), Action: Action(v.text())})
	}
	return r, nil
}

// Release puts up to a hundred jobs that a breaker deferred back to pending, and returns how
// many, and how many are left. Errors: Redis's.
func Release(ctx context.Context, rdb redis.Scripter, queue, breaker string) (released, left int, err error) {
	v, err := valuesOf(releaseScript.Run(ctx, rdb, []string{DeferredKey(queue, breaker), PendingKey(queue)}, queue))
	released, left = v.integer(), v.integer()
	if err == nil {
		err = v.err
	}
	if err != nil {
		return 0, 0, fmt.Errorf("release jobs that breaker %s deferred in %s: %w", breaker, queue, err)
	}
	return released, left, nil
}

// Ready reports whether any of the queues has a pending job, or a held one whose key may be
// asked for, and is not paused. It moves nothing. Errors: Redis's.
func Ready(ctx context.Context, rdb redis.UniversalClient, queues []string) (bool, error) {
	var lens, paused []*redis.IntCmd
	var held []*redis.ZSliceCmd
	var clock *redis.TimeCmd
	_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, q := range queues {
			lens = append(lens, pipe.LLen(ctx, PendingKey(q)))
			paused = append(paused, pipe.Exists(ctx, PausedKey(q)))
			held = append(held, pipe.ZRangeWithScores(ctx, HeldIndexKey(q), 0, 0))
		}
		clock = pipe.Time(ctx)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look at the queues: %w", err)
	}
	now := float64(clock.Val().UnixMilli())
	for i, n := range lens {
		first := held[i].Val()
		due := len(first) > 0 && first[0].Score <= now
		if (n.Val() > 0 || due) && paused[i].Val() == 0 {
			return true, nil
		}
	}
	return false, nil
}
