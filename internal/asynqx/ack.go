package asynqx

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// completion is one job's way to completed.
type completion struct {
	queue, id string
	delivery  *Delivery // nil if it is not in hand
	response  *Response
	done      chan error
	result    int64
}

// committer lets completions that come while a call is under way share the
// next one.
type committer struct {
	flush func([]*completion)

	mu      sync.Mutex
	waiting []*completion
	busy    bool
}

// completedWithChildren is complete.lua's word for a job that has children to tell.
const completedWithChildren = 3

// statsKept is how long the count of a day is kept, as asynq does.
const statsKept = 90 * 24 * time.Hour

// maxCompletions bounds one call, so that it stays short for Redis.
const maxCompletions = 100

func (k *committer) do(a *completion) error {
	a.done = make(chan error, 1)
	k.mu.Lock()
	k.waiting = append(k.waiting, a)
	if !k.busy {
		k.busy = true
		go k.run()
	}
	k.mu.Unlock()
	return <-a.done
}

func (k *committer) run() {
	for {
		// Jobs that were fetched together often end together: let the others
		// that are ready to run come along.
		runtime.Gosched()
		k.mu.Lock()
		n := min(len(k.waiting), maxCompletions)
		if n == 0 {
			k.busy = false
			k.mu.Unlock()
			return
		}
		batch := k.waiting[:n:n]
		k.waiting = k.waiting[n:]
		k.mu.Unlock()
		k.flush(batch)
	}
}

// complete stands in for asynq's done and complete. It repeats the call until
// it succeeds or asynq's lease ends (ctx): asynq would give up after one try and
// run the job again.
func (c *Client) complete(ctx context.Context, keys []string, args []any) *redis.Cmd {
	queue, id := queueOf(keys[0]), fmt.Sprint(args[0])
	if d := c.inHand.get(id); d != nil && d.decided() != nil {
		return done(c.carryOut(ctx, d))
	} else if d != nil {
		defer c.inHand.remove(d)
	}
	return done(c.recordCompletion(ctx, &completion{queue: queue, id: id}))
}

// done is the reply to an acknowledgement.
func done(err error) *redis.Cmd {
	if err != nil {
		return redis.NewCmdResult(nil, err)
	}
	return redis.NewCmdResult("OK", nil)
}

// recordCompletion repeats the call until it succeeds or ctx ends.
func (c *Client) recordCompletion(ctx context.Context, a *completion) error {
	err := c.repeat(ctx, func() error { return a.delivery.tried(c.acks.do(a)) })
	if err == nil && a.result == completedWithChildren {
		c.tell(a.queue)
	}
	return err
}

// carryOut records what was decided about a job in hand, and then lets go of it. What
// could not be recorded until ctx ends stays in hand, for settleReturned; only an error
// that no repetition would change is returned.
func (c *Client) carryOut(ctx context.Context, d *Delivery) error {
	if !d.beginAck() {
		return nil
	}
	defer d.endAck()
	o, s := d.decided(), Settled{}
	var err error
	if o.Kind == Complete {
		a := &completion{queue: d.Queue, id: d.ID, delivery: d, response: o.Response}
		if err = c.recordCompletion(ctx, a); err == nil && a.result > 0 {
			s.Kind = Complete
		}
	} else {
		err = c.repeat(ctx, func() (err error) {
			s, err = c.settle(ctx, d.Queue, d.ID, d.run, *o)
			return d.tried(err)
		})
	}
	if err != nil && !final(err) {
		return nil
	}
	if o.Settled != nil {
		o.Settled(s)
	}
	c.inHand.remove(d)
	return err
}

// flushCompletions sends completions that share a queue in one call each, and
// with them, in the same round trip, fetches as many jobs as become free. It does so
// only where Redis has taken the last ones: if it does not know the script, refuses it,
// or completed the same jobs before, no slot becomes free for what it hands out.
func (c *Client) flushCompletions(batch []*completion) {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	ctx, cancel := c.bounded()
	defer cancel()
	byQueue := map[string][]*completion{}
	for _, a := range batch {
		byQueue[a.queue] = append(byQueue[a.queue], a)
	}
	asked := false // what to fetch: once is enough
	for own, as := range byQueue {
		keys, args := c.completionArgs(own, as)
		queue := ""
		if c.completes[own] && !asked {
			queue, asked = c.prefetchFrom(), true
		}
		var cmd *redis.Cmd
		if queue == "" {
			cmd = completeScript.Run(ctx, c.UniversalClient, keys, args...)
		} else {
			cmd = c.completeAndFetch(ctx, keys, args, queue, len(as))
		}
		results, err := cmd.Int64Slice()
		if err == nil && len(results) != len(as) {
			err = fmt.Errorf("%d results for %d jobs", len(results), len(as))
		}
		if err != nil {
			err = fmt.Errorf("asynqx: complete in %s: %w", own, err)
		}
		c.completes[own] = err == nil
		for i, a := range as {
			if err == nil {
				a.result = results[i]
			}
			a.done <- err
		}
	}
}

func (c *Client) completionArgs(queue string, as []*completion) (keys []string, args []any) {
	now, processed := time.Now().UTC(), "asynq:{"+queue+"}:processed"
	keys = []string{
		store.ActiveKey(queue), store.LeaseKey(queue), store.CompletedKey(queue),
		processed + ":" + now.Format(time.DateOnly), processed,
	}
	args = make([]any, 0, 4+3*len(as))
	args = append(args, queue, now.Add(statsKept).Unix(), int64(c.o.Retention/time.Second), c.o.Worker)
	for _, a := range as {
		status, body := "", ""
		if a.response != nil {
			status, body = strconv.Itoa(a.response.Status), a.response.Body
		}
		args = append(args, a.id, status, body)
	}
	return keys, args
}

// completeAndFetch completes jobs and fetches up to n from queue in one round
// trip. What is fetched is in the buffer before anybody learns of a free slot.
func (c *Client) completeAndFetch(ctx context.Context, keys []string, args []any, queue string, n int) *redis.Cmd {
	f := fetch{queue: queue, run: c.nextRun(), at: time.Now()}
	var completed, fetched *redis.Cmd
	_, _ = c.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each command has its own error
		completed = completeScript.EvalSha(ctx, pipe, keys, args...)
		fetchKeys, fetchArgs := c.fetchArgs(f, n)
		fetched = dequeueScript.EvalSha(ctx, pipe, fetchKeys, fetchArgs...)
		return nil
	})
	if reply, err := fetched.Slice(); err == nil {
		ds, passed, err := c.receive(f, reply)
		if passed.dropped > 0 {
			c.tell(f.queue) // some may have expired that had children
		}
		if err != nil {
			c.health.failed(err)
		}
		c.keepPrefetched(f, ds, passed)
	} else {
		c.noteLost(f, err)
	}
	if redis.HasErrorPrefix(completed.Err(), "NOSCRIPT") {
		return completeScript.Run(ctx, c.UniversalClient, keys, args...)
	}
	return completed
}

// ErrNotCompleted is what a handler returns to asynq for a job whose outcome, other than
// Complete, stands in its Delivery.
var ErrNotCompleted = errors.New("not completed")

// retry stands in for asynq's retry and archive: it carries out what the
// handler decided. asynq's recoverer comes here too, for jobs of workers that
// died.
func (c *Client) retry(ctx context.Context, keys []string, args []any) *redis.Cmd {
	queue, id := queueOf(keys[0]), fmt.Sprint(args[0])
	d := c.inHand.get(id)
	if d != nil && d.decided() != nil {
		return done(c.carryOut(ctx, d))
	}
	encoded, _ := args[1].([]byte)
	msg, err := store.DecodeMessage(encoded)
	var o Outcome
	switch {
	case err != nil:
		return redis.NewCmdResult(nil, err)
	case msg.ErrorMsg == leaseExpired:
		o = c.recoverOutcome()
	case d == nil, msg.ErrorMsg == ErrNotCompleted.Error():
		// This process stood still after the handler had returned, and
		// settleReturned was quicker. What is in hand is a later run.
		return done(nil)
	default:
		// asynq gave up waiting for the handler, which only happens when
		// somebody cancels the task through asynq itself.
		o = Outcome{Kind: Fail, Error: msg.ErrorMsg}
	}
	if _, bounded := ctx.Deadline(); !bounded {
		// asynq's recoverer, which comes by again; a shutdown must not wait for it.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(c.ctx, redisTimeout)
		defer cancel()
	}
	var s Settled
	err = c.repeat(ctx, func() (err error) {
		s, err = c.settle(ctx, queue, id, "", o)
		return err
	})
	if err == nil && o.Kind == recovered && s.Kind != "" && c.o.Recovered != nil {
		c.o.Recovered(msg, s)
	}
	return done(err)
}

// requeue stands in for asynq's: at the end of a shutdown it puts jobs whose
// handlers still run back to the head of the queue.
func (c *Client) requeue(ctx context.Context, keys []string, args []any) *redis.Cmd {
	queue, id := queueOf(keys[0]), fmt.Sprint(args[0])
	d, run := c.inHand.get(id), ""
	if d != nil {
		if d.decided() != nil {
			return done(c.carryOut(ctx, d)) // the handler returned at the same moment
		}
		defer c.inHand.remove(d)
		run = d.run
	}
	return done(c.repeat(ctx, func() error {
		_, err := c.settle(ctx, queue, id, run, Outcome{Kind: Requeue})
		return err
	}))
}

// settle carries one outcome out, if the job is still in the hands of the fetch
// named run; "" means whichever has it.
func (c *Client) settle(ctx context.Context, queue, id, run string, o Outcome) (Settled, error) {
	keys := []string{store.TaskKey(queue, id), store.ActiveKey(queue), store.LeaseKey(queue)}
	delay := int64(0)
	if !o.At.IsZero() {
		delay = store.Millis(time.Until(o.At))
	}
	limit, status, body, extend := "", "", "", ""
	if o.Limit != nil {
		limit = strconv.Itoa(*o.Limit)
	}
	if o.Response != nil {
		status, body = strconv.Itoa(o.Response.Status), o.Response.Body
	}
	if o.Extend > 0 {
		extend = strconv.FormatInt(store.Millis(o.Extend), 10)
	}
	reply, err := settleScript.Run(ctx, c.UniversalClient, keys,
		queue, id, string(o.Kind), delay, string(o.Reason), o.Error, limit, status, body, extend, run, o.CountedBy).Slice()
	if err != nil {
		return Settled{}, fmt.Errorf("asynqx: %s job %s: %w", o.Kind, id, err)
	}
	var s Settled
	if len(reply) >= 4 {
		if kind, _ := reply[0].(string); kind != "gone" {
			s.Kind = Kind(kind)
		}
		if n, ok := reply[1].(int64); ok {
			s.Count = int(n)
		}
		if text, ok := reply[2].(string); ok {
			if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
				s.AvailableAt = time.UnixMilli(ms)
			}
		}
		if n, _ := reply[3].(int64); n == 1 {
			c.tell(queue)
		}
		if s.Kind == Fail && len(reply) > 4 {
			s.Error, _ = reply[4].(string)
		}
	}
	return s, nil
}

// repeat calls f until it succeeds, ctx ends, or Redis refuses for good.
func (c *Client) repeat(ctx context.Context, f func() error) error {
	pause := 50 * time.Millisecond
	for {
		err := f()
		if err == nil {
			c.health.worked()
			return nil
		}
		if final(err) {
			return err
		}
		if !errors.Is(err, context.Canceled) {
			c.health.failed(err)
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-c.hard.Done():
			t.Stop()
			return err
		case <-t.C:
		}
		pause = min(2*pause, time.Second)
	}
}

// final reports whether repeating the call cannot help: Redis refuses the call
// itself. Everything else (loading, failing over, moving slots, full, changing
// its rules) may pass while the lease lives.
func final(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	for _, prefix := range []string{"WRONGTYPE", "ERR Error compiling", "ERR user_script", "ERR unknown command", "ERR settle"} {
		if redis.HasErrorPrefix(reply, prefix) {
			return true
		}
	}
	return false
}
