package asynqx

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// forward is the beat of a queue, at asynq's call for the first of its two sets.
// Nothing is moved while the gate is closed.
func (c *Client) forward(ctx context.Context, keys []string) *redis.Cmd {
	queue := queueOf(keys[0])
	if keys[0] != store.ScheduledKey(queue) {
		return redis.NewCmdResult(int64(0), nil)
	}
	c.settleReturned(time.Now())
	c.reclaim()
	c.returnStranded()
	c.retryReleases()
	now := time.Now()
	// A tenth less, because the beat comes by at about that interval.
	move := !c.waiting.Load() && now.Sub(c.forwarded[queue]) >= c.o.ForwardEvery-c.o.ForwardEvery/10
	if !move && c.inHand.len() == 0 && now.Sub(c.looked[queue]) < c.o.LookEvery-c.o.LookEvery/10 {
		return redis.NewCmdResult(int64(0), nil)
	}
	c.looked[queue] = now
	ctx, cancel := c.within(ctx)
	defer cancel()
	n, err := c.beat(ctx, queue, move)
	if err != nil {
		c.health.failed(err)
		// asynq would log this every second; the outage is logged once.
		return redis.NewCmdResult(int64(0), nil)
	}
	// At a closed gate nothing else would show that Redis is back.
	c.health.answered()
	if move && n == 0 {
		c.forwarded[queue] = now // until then, asynq asks again at once
	}
	return redis.NewCmdResult(n, nil)
}

// beat moves what is due, if that is wanted, and sees to the rest of what the
// queue needs.
func (c *Client) beat(ctx context.Context, queue string, move bool) (int64, error) {
	keys := []string{store.DueKey(queue), store.PendingKey(queue)}
	// Who ends a parent tells its children; this finds what a crash has left over,
	// and the marks of jobs that had ended before they could be heeded.
	leftOver := c.beats.Add(1)/uint64(len(c.o.Queues))%lookForLeftOvers == 0
	marks := leftOver || c.inHand.len() > 0
	reply, err := forwardScript.Run(ctx, c.UniversalClient, keys, queue, flag(move), flag(leftOver), flag(marks)).Slice()
	if err != nil || len(reply) < 3 {
		return 0, fmt.Errorf("asynqx: forward %s: %w", queue, err)
	}
	n, _ := reply[0].(int64)
	if n > 0 {
		c.Wake()
	}
	if due, _ := reply[1].(int64); due == 1 {
		c.add(chore{queue: queue, kind: sweepExpired})
	}
	if ended, _ := reply[2].(int64); ended == 1 {
		c.add(chore{queue: queue, kind: tellChildren})
	}
	for i := 3; i+1 < len(reply); i += 2 {
		id, _ := reply[i].(string)
		mark, _ := reply[i+1].(string)
		c.Mark(id, mark)
	}
	return n, nil
}

// lookForLeftOvers is how many beats come between two looks at the outbox and other
// leftovers.
const lookForLeftOvers = 5

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// forwardAll moves due jobs to the queues now instead of within a second.
func (c *Client) forwardAll() {
	ctx, cancel := context.WithTimeout(c.ctx, redisTimeout)
	defer cancel()
	for _, q := range c.o.Queues {
		if _, err := c.beat(ctx, q, true); err != nil {
			c.health.failed(err)
			return
		}
	}
}

// backlog reports whether any queue has a job that is ready, after moving due ones
// there if there is none, or a held one whose key may be asked for.
func (c *Client) backlog(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if more, err := c.ready(ctx); more || err != nil {
		return more, err
	}
	c.forwardAll()
	return c.ready(ctx)
}

// ready does so without moving anything.
func (c *Client) ready(ctx context.Context) (bool, error) {
	var lens, paused []*redis.IntCmd
	var held []*redis.ZSliceCmd
	var clock *redis.TimeCmd
	_, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, q := range c.o.Queues {
			lens = append(lens, pipe.LLen(ctx, store.PendingKey(q)))
			paused = append(paused, pipe.Exists(ctx, store.PausedKey(q)))
			held = append(held, pipe.ZRangeWithScores(ctx, store.HeldIndexKey(q), 0, 0))
		}
		clock = pipe.Time(ctx)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("asynqx: look at the queues: %w", err)
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
