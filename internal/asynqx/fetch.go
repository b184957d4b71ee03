package asynqx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	// fetchPatience bounds asynq's wait for a job: asynq sets the end of the job's
	// lease when it begins to wait, and never extends a lease that has ended.
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
		if grant.Opened || c.heldFor.Load() != 0 {
			c.forwardAll()
		}
		c.reclaim()
		n, err := c.take(grant)
		if n == 0 {
			c.gate.Unused(c.ctx, grant)
		}
		switch {
		case err != nil:
			c.health.failed(err)
			c.rest(ctx)
		case n == 0:
			c.health.worked()
			c.rest(ctx)
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
func (c *Client) rest(ctx context.Context) {
	t := time.NewTimer(c.pause)
	defer t.Stop()
	select {
	case <-t.C:
		c.pause = min(2*c.pause, c.o.PollMax)
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
	c.bufferMu.Lock()
	queues := c.order(now)
	c.bufferMu.Unlock()
	for _, queue := range queues {
		n, err := c.takeFrom(queue, want, grant.Permit)
		c.bufferMu.Lock()
		c.flowing = n > 0
		if n == 0 && err == nil {
			c.foundEmpty(queue, now)
		}
		c.bufferMu.Unlock()
		if n > 0 || err != nil {
			return n, err
		}
	}
	// All are empty, or were a moment ago: look at each of them next time.
	c.bufferMu.Lock()
	clear(c.empty)
	c.bufferMu.Unlock()
	return 0, nil
}

func (c *Client) takeFrom(queue string, want int, permit any) (int, error) {
	for {
		n, dropped, err := c.takeOnce(queue, want, permit)
		if dropped > 0 {
			c.tell(queue) // some may have expired that had children
		}
		// Behind what was dropped there may be jobs.
		if n > 0 || err != nil || dropped == 0 || c.ctx.Err() != nil {
			return n, err
		}
	}
}

func (c *Client) takeOnce(queue string, want int, permit any) (n, dropped int, err error) {
	ctx, cancel := c.bounded()
	defer cancel()
	f := fetch{queue: queue, run: c.nextRun(), at: time.Now(), permit: permit}
	keys, args := c.fetchArgs(f, want)
	reply, err := dequeueScript.Run(ctx, c.UniversalClient, keys, args...).Slice()
	if err != nil {
		c.noteLost(f, err)
		return 0, 0, fmt.Errorf("asynqx: dequeue %s: %w", queue, err)
	}
	ds, dropped, err := c.receive(f, reply)
	c.bufferMu.Lock()
	c.buffer = append(c.buffer, ds...)
	c.bufferMu.Unlock()
	return len(ds), dropped, err
}

// fetch is one call for jobs.
type fetch struct {
	queue  string
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
	keys = []string{record.Pending(queue), record.Paused(queue), record.Active(queue), record.Lease(queue)}
	return keys, []any{queue, f.at.Add(leaseDuration).Unix(), want, c.o.Worker, f.run}
}

// receive takes the jobs of a reply in hand. dropped is how many ids were thrown
// away or put off on the way; an error tells of jobs that could not be taken.
func (c *Client) receive(f fetch, reply []any) (ds []*Delivery, dropped int, err error) {
	if len(reply) > 0 {
		n, _ := reply[0].(int64)
		dropped, reply = int(n), reply[1:]
	}
	for _, r := range reply {
		d, problem := deliveryOf(f, r)
		if problem != nil {
			err = errors.Join(err, problem)
			continue
		}
		if refusal := c.refusal(d); refusal != nil {
			ctx, cancel := c.bounded()
			_, problem := c.settle(ctx, f.queue, d.ID, d.run, *refusal)
			cancel()
			err = errors.Join(err, problem)
			dropped++
			continue
		}
		ds = append(ds, d)
	}
	return ds, dropped, err
}

// refusal takes the job in hand, or says what becomes of it instead.
func (c *Client) refusal(d *Delivery) *Outcome {
	if err := record.CheckMessage(d.msg); err != nil {
		// asynq could not read it, and would keep the slot for ever.
		return &Outcome{Kind: Fail, Error: err.Error()}
	}
	switch c.inHand.add(d) {
	case runsStill:
		// The job outlived its lease here and came back while its handler still
		// runs. It is never run twice in one process.
		return &Outcome{Kind: Unstarted, At: d.fetched.Add(staleAfter), Reason: "still in the hands of " + c.o.Worker}
	case suspectWaits:
		return c.suspectOutcome()
	}
	return nil
}

func deliveryOf(f fetch, reply any) (*Delivery, error) {
	values, ok := reply.([]any)
	if !ok || len(values) != 7 {
		return nil, fmt.Errorf("asynqx: dequeue %s: unexpected reply %T", f.queue, reply)
	}
	text := func(i int) string { s, _ := values[i].(string); return s }
	expires := time.Time{}
	if left := text(6); left != "" {
		// From before the call on, so that it is never too late.
		expires = f.at.Add(time.Duration(atoi(left)) * time.Millisecond)
	}
	return &Delivery{
		Expires: expires,
		Queue:   f.queue, ID: text(0), msg: text(1), run: f.run, fetched: f.at, Permit: f.permit,
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
