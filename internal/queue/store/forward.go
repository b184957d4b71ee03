package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

var (
	forwardScript = script("forward")
	releaseScript = script("release")
)

// ForwardArgs select the maintenance of a queue.
type ForwardArgs struct {
	Queue string
	// Move moves due jobs to pending.
	Move bool
	// Parents and Actions look for parents in the outbox, and for requested actions.
	Parents, Actions bool
	// Lease is the length of a lease: later ends are shortened if the clock went back.
	// Default: Lease.
	Lease time.Duration
}

// ForwardReply is what was moved, and the other maintenance that the queue needs.
type ForwardReply struct {
	Moved   int
	Expired bool // a job is to be expired: call Sweep
	Parents bool // a parent has finished: call ReleaseAllChildren
	// Next is when the next job is due or expires; nil if none does. At or below 0: now.
	Next *time.Duration
	// Limited and Lost are how many of the moved jobs had waited because of a limit, and because their worker had died.
	Limited, Lost int
	Actions       []Requested
}

// Requested is an action that is requested of a running job.
type Requested struct {
	ID     string
	Action Action
}

// Forward moves due jobs of a queue to pending, up to a hundred. Errors: Redis's.
func Forward(ctx context.Context, rdb redis.Scripter, a ForwardArgs) (ForwardReply, error) {
	return a.reply(a.eval(ctx, rdb, (*Script).Run))
}

// ForwardAll is Forward for many queues in two round trips. Of the queues behind the first, the
// script runs for those only that have something for it: on one node the others cost next to
// nothing.
func ForwardAll(ctx context.Context, rdb redis.UniversalClient, all []ForwardArgs) ([]ForwardReply, []error) {
	replies, errs := make([]ForwardReply, len(all)), make([]error, len(all))
	if len(all) == 1 {
		replies[0], errs[0] = Forward(ctx, rdb, all[0])
		return replies, errs
	}
	queues := make([]string, len(all))
	for i, a := range all {
		queues[i] = a.Queue
	}
	exist, problems := existing(ctx, rdb, queues, func(q string) []string {
		return []string{DueKey(q), ExpiryKey(q), HeldIndexKey(q), OutboxKey(q), ActionsKey(q), ParkedKey(q, StateAccepted)}
	})
	var some []int
	for i := range all {
		if i == 0 || exist[i] || problems[i] != nil {
			some = append(some, i)
		}
	}
	cmds := evalAll(ctx, rdb, len(some),
		func(c redis.Scripter, i int) *redis.Cmd { return all[some[i]].eval(ctx, c, (*Script).EvalSha) },
		func(i int) *redis.Cmd { return all[some[i]].eval(ctx, rdb, (*Script).Run) })
	for i, cmd := range cmds {
		replies[some[i]], errs[some[i]] = all[some[i]].reply(cmd)
	}
	return replies, errs
}

func (a ForwardArgs) eval(ctx context.Context, c redis.Scripter, eval evaluation) *redis.Cmd {
	return eval(forwardScript, ctx, c, []string{DueKey(a.Queue), PendingKey(a.Queue)},
		a.Queue, flag(a.Move), flag(a.Parents), flag(a.Actions), cmp.Or(a.Lease, Lease).Milliseconds())
}

func (a ForwardArgs) reply(cmd *redis.Cmd) (ForwardReply, error) {
	v, err := valuesOf(cmd)
	r := ForwardReply{Moved: v.integer(), Expired: v.integer() == 1, Parents: v.integer() == 1}
	if ms, err := strconv.ParseInt(v.text(), 10, 64); err == nil {
		next := Duration(ms)
		r.Next = &next
	}
	r.Limited, r.Lost = v.integer(), v.integer()
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

// Ready returns how many pending jobs the queues have that are not paused, and one more for each queue
// with a held job whose key is due; and in how long the first other key is, 0 if
// there is none. Jobs that were cancelled count until a fetch drops them. It moves nothing. Errors: Redis's.
func Ready(ctx context.Context, rdb redis.UniversalClient, queues []string) (jobs int, next time.Duration, err error) {
	var lens, turns, paused []*redis.IntCmd
	var held []*redis.ZSliceCmd
	var clock *redis.TimeCmd
	_, err = redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		for _, q := range queues {
			lens = append(lens, pipe.LLen(ctx, PendingKey(q)))
			turns = append(turns, pipe.ZCard(ctx, TurnsKey(q)))
			paused = append(paused, pipe.Exists(ctx, PausedKey(q)))
			held = append(held, pipe.ZRangeWithScores(ctx, HeldIndexKey(q), 0, 0))
		}
		clock = pipe.Time(ctx)
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("look at the queues: %w", err)
	}
	now := float64(clock.Val().UnixMilli())
	for i, n := range lens {
		if paused[i].Val() > 0 {
			continue
		}
		jobs += int(n.Val() + turns[i].Val())
		switch first := held[i].Val(); {
		case len(first) == 0:
		case first[0].Score <= now:
			jobs++
		default:
			if in := Duration(int64(math.Ceil(first[0].Score - now))); next == 0 || in < next {
				next = in
			}
		}
	}
	return jobs, next, nil
}

// NodeOf names the node of a Cluster that a queue lies on, as far as the client knows; "" if it
// does not, or there is no Cluster.
func NodeOf(ctx context.Context, rdb redis.UniversalClient, queue string) string {
	c, cluster := rdb.(*redis.ClusterClient)
	if !cluster {
		return ""
	}
	master, err := c.MasterForKey(ctx, PendingKey(queue))
	if err != nil {
		return ""
	}
	return master.Options().Addr
}

// Awake returns which queues have pending or held jobs. errs[i] is of queues[i]. Errors: Redis's.
func Awake(ctx context.Context, rdb redis.UniversalClient, queues []string) (awake []bool, errs []error) {
	return existing(ctx, rdb, queues, func(q string) []string { return []string{PendingKey(q), HeldIndexKey(q)} })
}

// Leased is Awake for jobs with a lease.
func Leased(ctx context.Context, rdb redis.UniversalClient, queues []string) (leased []bool, errs []error) {
	return existing(ctx, rdb, queues, func(q string) []string { return []string{LeaseKey(q)} })
}
