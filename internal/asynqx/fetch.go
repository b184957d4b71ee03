package asynqx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// Times of the fetching.
const (
	// leaseDuration is asynq's: it extends leases by as much every 5 s.
	leaseDuration = 30 * time.Second
	// staleAfter is how old a fetched job may be when it is handed out. asynq
	// extends its lease only from then on.
	staleAfter = 5 * time.Second
	// emptyFor is how long a queue found empty is passed over while another
	// queue of the Server has jobs.
	emptyFor = 100 * time.Millisecond
	// redisTimeout bounds a call whose context has no end of its own.
	redisTimeout = 5 * time.Second
	// maxFetch bounds one call, so that it stays short for Redis and within what
	// a script can unpack.
	maxFetch = 100
)

// weights are the shares of the queues, the most urgent first, when all of them
// have jobs: the less urgent are not starved.
var weights = []int{6, 3, 1}

// dequeue answers asynq's dequeue of one queue. asynq asks for each queue in
// turn; the first call fetches from all of them and waits until there is a job,
// the others are told that theirs is empty.
func (c *Client) dequeue(keys []string) *redis.Cmd {
	if keys[0] != record.Pending(c.o.Queues[0]) {
		return redis.NewCmdResult(nil, redis.Nil)
	}
	c.fetch.Lock()
	defer c.fetch.Unlock()
	d := c.next()
	if d == nil {
		return redis.NewCmdResult(nil, redis.Nil)
	}
	msg := d.msg
	d.msg = ""
	return redis.NewCmdResult(msg, nil)
}

// next returns a job, or nil when fetching is to stop.
func (c *Client) next() *Delivery {
	pause := c.o.PollMin
	for c.ctx.Err() == nil {
		if d := c.fromBuffer(); d != nil {
			return d
		}
		c.waiting.Store(true)
		grant, err := c.gate.Wait(c.ctx, c.backlog)
		c.waiting.Store(false)
		if err != nil {
			if c.ctx.Err() == nil {
				c.health.failed(err)
				pause = c.rest(pause)
			}
			continue
		}
		if grant.Opened || c.heldFor.Load() != 0 {
			c.forwardAll()
		}
		n, err := c.take(grant)
		if n == 0 {
			c.gate.Unused(c.ctx, grant)
		}
		switch {
		case err != nil:
			c.health.failed(err)
			pause = c.rest(pause)
		case n == 0:
			pause = c.rest(pause)
		default:
			c.health.worked()
			pause = c.o.PollMin
		}
	}
	return nil
}

// rest waits for a pause, or until woken, and returns the next, longer pause.
func (c *Client) rest(pause time.Duration) time.Duration {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return min(2*pause, c.o.PollMax)
	case <-c.wake:
	case <-c.ctx.Done():
	}
	return c.o.PollMin
}

// fromBuffer returns a job that was fetched with others, nil if there is none.
func (c *Client) fromBuffer() *Delivery {
	c.bufferMu.Lock()
	if len(c.buffer) == 0 {
		c.bufferMu.Unlock()
		return nil
	}
	d := c.buffer[0]
	if time.Since(d.fetched) < staleAfter {
		c.buffer = c.buffer[1:]
		c.bufferMu.Unlock()
		return d
	}
	c.bufferMu.Unlock()
	// Redis or this process stood still: give the jobs to whoever is ready.
	ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
	defer cancel()
	if err := c.putBack(ctx); err != nil {
		c.health.failed(err)
	}
	return nil
}

// putBack returns what was fetched but not handed out to the head of its queue,
// the job that is to run next as the last one, so that the order stays, and a
// permit to the gate. What Redis does not take comes back when its lease ends.
func (c *Client) putBack(ctx context.Context) error {
	c.bufferMu.Lock()
	buffer := c.buffer
	c.buffer = nil
	c.bufferMu.Unlock()
	var errs []error
	for _, d := range slices.Backward(buffer) {
		if _, err := c.settle(ctx, d.Queue, d.ID, Outcome{Kind: Requeue}); err != nil {
			errs = append(errs, err)
		}
		c.inHand.remove(d.ID)
		if d.Permit != nil {
			c.gate.Unused(ctx, Grant{Max: 1, Permit: d.Permit})
		}
	}
	return errors.Join(errs...)
}

// free is how many jobs may be fetched: asynq has a slot ready for the one that
// it asks for, and the rest follows from what is in hand.
func (c *Client) free() int {
	n := c.o.Concurrency - c.inHand.len()
	if n < 1 {
		c.inHand.forget(time.Now())
		n = c.o.Concurrency - c.inHand.len()
	}
	return max(1, n)
}

// take fetches jobs into the buffer and returns how many.
func (c *Client) take(grant Grant) (int, error) {
	want := min(c.free(), maxFetch)
	if grant.Max > 0 {
		want = min(want, grant.Max)
	}
	if grant.Permit != nil {
		want = 1
	}
	now := time.Now()
	for _, queue := range c.order() {
		if until, ok := c.empty[queue]; ok && now.Before(until) {
			continue
		}
		n, err := c.takeFrom(queue, want, grant.Permit)
		if n > 0 {
			c.bufferMu.Lock()
			c.flowing, c.flowingUntil = queue, now.Add(emptyFor)
			c.bufferMu.Unlock()
		}
		if n > 0 || err != nil {
			return n, err
		}
		c.empty[queue] = now.Add(emptyFor)
	}
	// All are empty, or were a moment ago: look at each of them next time.
	clear(c.empty)
	return 0, nil
}

// order returns the queues by weighted chance.
func (c *Client) order() []string {
	queues := c.o.Queues
	if len(queues) == 1 {
		return queues
	}
	left := make([]int, len(queues))
	total := 0
	for i := range queues {
		left[i] = 1
		if i < len(weights) {
			left[i] = weights[i]
		}
		total += left[i]
	}
	out := make([]string, 0, len(queues))
	for len(out) < len(queues) {
		n := rand.IntN(total) //nolint:gosec // fairness needs no secrecy
		for i, w := range left {
			if n < w {
				out = append(out, queues[i])
				total -= w
				left[i] = 0
				break
			}
			n -= w
		}
	}
	return out
}

func (c *Client) takeFrom(queue string, want int, permit any) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
	defer cancel()
	now := time.Now()
	keys, args := c.fetchArgs(queue, want, now)
	reply, err := dequeueScript.Run(ctx, c.UniversalClient, keys, args...).Slice()
	if err != nil {
		return 0, fmt.Errorf("asynqx: dequeue %s: %w", queue, err)
	}
	return c.receive(queue, reply, now, permit)
}

func (c *Client) fetchArgs(queue string, want int, now time.Time) (keys []string, args []any) {
	keys = []string{record.Pending(queue), record.Paused(queue), record.Active(queue), record.Lease(queue)}
	return keys, []any{now.Add(leaseDuration).Unix(), record.TaskPrefix(queue), want, c.o.Worker}
}

// receive puts the jobs of a reply into the buffer and returns how many. All of
// them are tried; an error tells of those that could not be taken.
func (c *Client) receive(queue string, reply []any, now time.Time, permit any) (taken int, err error) {
	for _, r := range reply {
		d, problem := deliveryOf(queue, r, now)
		if problem != nil {
			err = errors.Join(err, problem)
			continue
		}
		d.Permit = permit
		if c.inHand.add(d) {
			// The job outlived its lease here and came back while its handler
			// still runs. It is never run twice in one process.
			ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
			_, problem := c.settle(ctx, queue, d.ID, Outcome{Kind: deferred, At: now.Add(staleAfter), Reason: "still in the hands of " + c.o.Worker})
			cancel()
			err = errors.Join(err, problem)
			continue
		}
		c.bufferMu.Lock()
		c.buffer = append(c.buffer, d)
		c.bufferMu.Unlock()
		taken++
	}
	return taken, err
}

// prefetchFrom returns the queue to fetch from while jobs are completed, or ""
// if nothing is to be fetched now: when fetching has stopped, when the gate does
// not let jobs flow freely, when jobs are at hand, or when it is time to look at
// the other queues.
func (c *Client) prefetchFrom() string {
	if c.ctx.Err() != nil || !c.gate.Flowing() {
		return ""
	}
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	if len(c.buffer) > 0 || time.Now().After(c.flowingUntil) {
		return ""
	}
	return c.flowing
}

func deliveryOf(queue string, reply any, now time.Time) (*Delivery, error) {
	values, ok := reply.([]any)
	if !ok || len(values) != 6 {
		return nil, fmt.Errorf("asynqx: dequeue %s: unexpected reply %T", queue, reply)
	}
	text := func(i int) string { s, _ := values[i].(string); return s }
	return &Delivery{
		Queue: queue, ID: text(0), msg: text(1), fetched: now,
		Fields: Fields{
			Attempt: atoi(text(2)), Reschedules: atoi(text(3)), Crashes: atoi(text(4)), ExpiresAt: text(5),
		},
	}, nil
}

func atoi(s string) int {
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' {
			return 0
		}
		n = n*10 + int(r-'0')
	}
	return n
}

// backlog reports whether any queue has a job that is ready, after moving due
// ones there.
func (c *Client) backlog(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	c.forwardAll()
	var lens []*redis.IntCmd
	_, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, q := range c.o.Queues {
			lens = append(lens, pipe.LLen(ctx, record.Pending(q)))
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("asynqx: look at the queues: %w", err)
	}
	for _, n := range lens {
		if n.Val() > 0 {
			return true, nil
		}
	}
	return false, nil
}

// ReleaseHeld brings back what was put off because the gate was closed, up to
// maximum ahead: the gate is open, perhaps before its time. It returns at once;
// the fetching does it.
func (c *Client) ReleaseHeld(maximum time.Duration) {
	c.heldFor.Store(int64(maximum))
	c.Wake()
}

// forwardAll moves due jobs to the queues now instead of within a second, and
// those that ReleaseHeld is about.
func (c *Client) forwardAll() {
	held := time.Duration(c.heldFor.Swap(0))
	ctx, cancel := context.WithTimeout(c.ctx, redisTimeout)
	defer cancel()
	for _, q := range c.o.Queues {
		if _, err := c.forwardQueue(ctx, q, held); err != nil {
			c.heldFor.CompareAndSwap(0, int64(held))
			c.health.failed(err)
			return
		}
	}
}
