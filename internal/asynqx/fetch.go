package asynqx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// Times of the fetching.
const (
	// staleAfter is how old a fetched job may be when it is handed out: Redis or this
	// process stood still.
	staleAfter = 5 * time.Second
	// fetchPatience bounds asynq's wait for a job: the lease that asynq keeps in memory
	// begins when it begins to wait, and is not extended once it has ended.
	fetchPatience = 5 * time.Second
	// strandedAfter is how long a fetched job may lie while the gate is closed.
	strandedAfter = 500 * time.Millisecond
	// emptyFor is how long a queue found empty is passed over while another
	// queue of the Server has jobs.
	emptyFor = 100 * time.Millisecond
	// redisTimeout bounds a call whose context has no end of its own.
	redisTimeout = 5 * time.Second
	// maxFetch bounds one call, so that it stays short for Redis and within what
	// a script can unpack.
	maxFetch = 100
)

// dequeue answers asynq's dequeue of one queue. asynq asks for each queue in
// turn; the first call fetches from all of them and waits until there is a job,
// the others are told that theirs is empty.
func (c *Client) dequeue(keys []string) *redis.Cmd {
	if keys[0] != store.PendingKey(c.o.Queues[0]) {
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

// next returns a job, or nil when there was none for a while or fetching is to stop.
func (c *Client) next() *Delivery {
	ctx, cancel := context.WithTimeout(c.ctx, c.patience)
	defer cancel()
	for ctx.Err() == nil {
		if d := c.fromBuffer(); d != nil {
			return d
		}
		if !c.startWaiting() {
			continue
		}
		grant, err := c.gate.Wait(ctx, c.backlog)
		if err != nil && ctx.Err() != nil {
			continue // asynq asks again in a moment: still at the gate
		}
		c.waiting.Store(false)
		if err != nil {
			c.health.failed(err)
			c.rest(ctx)
			continue
		}
		if grant.Opened {
			c.forwardAll()
		}
		c.reclaim() // first, so that order stays
		c.openKeys()
		l := &leave{Grant: grant}
		n, err := c.take(l)
		if n == 0 && !l.spent {
			c.gate.Unused(c.ctx, grant)
		}
		switch {
		case err != nil:
			c.health.failed(err)
			c.rest(ctx)
		case n == 0:
			c.health.worked()
			c.restUntilDue(ctx)
		default:
			c.health.worked()
			c.pause = c.o.PollMin
		}
	}
	return nil
}

// startWaiting announces that the fetching is at the gate, so that nothing is put
// into the buffer behind its back; false if there is something already.
func (c *Client) startWaiting() bool {
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	if len(c.buffer) > 0 {
		return false
	}
	c.waiting.Store(true)
	return true
}

// rest waits for a pause, or until woken. The next pause is longer, unless woken.
func (c *Client) rest(ctx context.Context) { c.restFor(ctx, c.pause) }

// restUntilDue is rest, but ends when a held key is due.
func (c *Client) restUntilDue(ctx context.Context) {
	pause := c.pause
	if at, ok := c.nextDue(); ok {
		pause = min(pause, max(0, time.Until(at)))
	}
	c.restFor(ctx, pause)
}

func (c *Client) restFor(ctx context.Context, pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		if pause == c.pause {
			c.pause = min(2*c.pause, c.o.PollMax)
		}
	case <-c.wake:
		c.pause = c.o.PollMin
	case <-ctx.Done():
	}
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
	ctx, cancel := c.bounded()
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
	return c.returnJobs(ctx, buffer)
}

func (c *Client) returnJobs(ctx context.Context, ds []*Delivery) error {
	var errs []error
	for _, d := range slices.Backward(ds) {
		// First: it may be fetched again the moment that it is back.
		c.inHand.remove(d)
		if _, err := c.settle(ctx, d.Queue, d.ID, d.run, Outcome{Kind: Requeue}); err != nil {
			errs = append(errs, err)
		}
		if d.Permit != nil {
			c.gate.Unused(ctx, Grant{Max: 1, Permit: d.Permit})
		}
	}
	return errors.Join(errs...)
}

// free is how many jobs may be fetched: asynq has a slot ready for the one that
// it asks for, and the rest follows from what is in hand.
func (c *Client) free() int {
	return max(1, c.o.Concurrency-c.inHand.len())
}

// leave is a grant on its way to a job.
type leave struct {
	Grant
	// spent is true once its permit has been given back as a part of what the gate
	// made of it for a key.
	spent bool
}

// take fetches jobs into the buffer and returns how many.
func (c *Client) take(l *leave) (int, error) {
	want := min(c.free(), maxFetch)
	if l.Max > 0 {
		want = min(want, l.Max)
	}
	if l.Permit != nil {
		want = 1
	}
	now := time.Now()
	c.bufferMu.Lock()
	queues := c.order(now)
	c.bufferMu.Unlock()
	for _, queue := range queues {
		n, err := c.takeQueue(queue, want, l)
		c.bufferMu.Lock()
		c.flowing = n > 0
		if n == 0 && err == nil {
			c.foundEmpty(queue, now)
		}
		c.bufferMu.Unlock()
		if n > 0 || err != nil || l.spent {
			return n, err
		}
	}
	// All are empty, or were a moment ago: look at each of them next time.
	c.bufferMu.Lock()
	clear(c.empty)
	c.bufferMu.Unlock()
	return 0, nil
}

// takeQueue fetches from the pending jobs of a queue and from the held ones of keys
// that are due, in turn.
func (c *Client) takeQueue(queue string, want int, l *leave) (int, error) {
	if c.turnOfHeld(queue) {
		if n, err := c.takeHeld(queue, want, l); n > 0 || err != nil || l.spent {
			return n, err
		}
	}
	if n, err := c.takeFrom(queue, want, l.Permit); n > 0 || err != nil {
		return n, err
	}
	return c.takeHeld(queue, want, l)
}

// takeFrom fetches pending jobs of a queue.
func (c *Client) takeFrom(queue string, want int, permit any) (int, error) {
	return c.takeAny(fetch{queue: queue, permit: permit}, want)
}

// takeAny looks until it finds jobs or there are none.
func (c *Client) takeAny(f fetch, want int) (int, error) {
	for {
		n, passed, err := c.takeOnce(f, want)
		if passed.dropped > 0 {
			c.tell(f.queue) // some may have expired that had children
		}
		if n > 0 {
			c.served(f)
		}
		if n > 0 && f.key != "" && c.o.Released != nil {
			c.o.Released(f.queue, n)
		}
		// Behind what was passed over there may be jobs.
		if n > 0 || err != nil || passed == (passedOver{}) || c.ctx.Err() != nil {
			return n, err
		}
	}
}

func (c *Client) takeOnce(f fetch, want int) (n int, passed passedOver, err error) {
	ctx, cancel := c.bounded()
	defer cancel()
	f.run, f.at = c.nextRun(), time.Now()
	keys, args := c.fetchArgs(f, want)
	reply, err := dequeueScript.Run(ctx, c.UniversalClient, keys, args...).Slice()
	if err != nil {
		c.noteLost(f, err)
		return 0, passed, fmt.Errorf("asynqx: dequeue %s: %w", f.queue, err)
	}
	ds, passed, err := c.receive(f, reply)
	c.bufferMu.Lock()
	c.buffer = append(c.buffer, ds...)
	c.bufferMu.Unlock()
	return len(ds), passed, err
}

// fetch is one call for jobs.
type fetch struct {
	queue  string
	key    string // whose held jobs are fetched; "" for pending ones
	run    string
	at     time.Time
	permit any
}

// nextRun names a fetch as no other is named.
func (c *Client) nextRun() string {
	return c.name + "-" + strconv.FormatUint(c.runs.Add(1), 36)
}

func (c *Client) fetchArgs(f fetch, want int) (keys []string, args []any) {
	queue := f.queue
	keys = []string{store.PendingKey(queue), store.PausedKey(queue), store.ActiveKey(queue), store.LeaseKey(queue)}
	return keys, []any{queue, c.o.Lease.Milliseconds(), want, c.o.Worker, f.run, f.key}
}
