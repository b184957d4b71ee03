package asynqx

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// completion is one job's way to completed.
type completion struct {
	queue, id string
	response  *Response
	statsKey  string
	statsTTL  any
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
// it succeeds or the lease ends (ctx): asynq would give up after one try and
// run the job again.
func (c *Client) complete(ctx context.Context, keys []string, args []any) *redis.Cmd {
	queue, id := queueOf(keys[0]), fmt.Sprint(args[0])
	a := &completion{queue: queue, id: id, statsKey: keys[len(keys)-2], statsTTL: args[1]}
	d := c.inHand.get(id)
	defer c.inHand.remove(id)
	if d != nil {
		if o := d.decided(); o != nil {
			a.response = o.Response
			if o.Settled != nil {
				defer func() {
					s := Settled{}
					if a.result > 0 {
						s.Kind = Complete
					}
					o.Settled(s)
				}()
			}
		}
	}
	if err := c.repeat(ctx, func() error { return c.acks.do(a) }); err != nil {
		return redis.NewCmdResult(nil, err)
	}
	return redis.NewCmdResult("OK", nil)
}

// CompleteLate records that the destination accepted a job whose lease was
// lost meanwhile, which asynq would forget. It tries until ctx ends.
func (c *Client) CompleteLate(ctx context.Context, d *Delivery, r *Response) error {
	defer c.inHand.remove(d.ID)
	now := time.Now().UTC()
	a := &completion{
		queue: d.Queue, id: d.ID, response: r,
		statsKey: "asynq:{" + d.Queue + "}:processed:" + now.Format(time.DateOnly),
		statsTTL: now.Add(90 * 24 * time.Hour).Unix(),
	}
	return c.repeat(ctx, func() error { return c.acks.do(a) })
}

// flushCompletions sends completions that share a queue in one call each, and
// with them, in the same round trip, fetches as many jobs as become free.
func (c *Client) flushCompletions(batch []*completion) {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
	defer cancel()
	byQueue := map[string][]*completion{}
	for _, a := range batch {
		byQueue[a.queue] = append(byQueue[a.queue], a)
	}
	queue := c.prefetchFrom()
	for own, as := range byQueue {
		keys, args := c.completionArgs(own, as)
		var cmd *redis.Cmd
		if queue == "" {
			cmd = completeScript.Run(ctx, c.UniversalClient, keys, args...)
		} else {
			cmd = c.completeAndFetch(ctx, keys, args, queue, len(as))
			queue = "" // once is enough
		}
		results, err := cmd.Int64Slice()
		if err == nil && len(results) != len(as) {
			err = fmt.Errorf("%d results for %d jobs", len(results), len(as))
		}
		if err != nil {
			err = fmt.Errorf("asynqx: complete in %s: %w", own, err)
		}
		for i, a := range as {
			if err == nil {
				a.result = results[i]
			}
			a.done <- err
		}
	}
}

func (c *Client) completionArgs(queue string, as []*completion) (keys []string, args []any) {
	keys = []string{
		record.Active(queue), record.Lease(queue), record.Completed(queue), as[0].statsKey,
		"asynq:{" + queue + "}:processed", record.Scheduled(queue), record.Retry(queue), record.Failed(queue),
	}
	args = make([]any, 0, 4+3*len(as))
	args = append(args, as[0].statsTTL, record.TaskPrefix(queue), int64(c.o.Retention/time.Second), c.o.Worker)
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
	now := time.Now()
	var completed, fetched *redis.Cmd
	_, _ = c.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each command has its own error
		completed = completeScript.EvalSha(ctx, pipe, keys, args...)
		fetchKeys, fetchArgs := c.fetchArgs(queue, n, now)
		fetched = dequeueScript.EvalSha(ctx, pipe, fetchKeys, fetchArgs...)
		return nil
	})
	if reply, err := fetched.Slice(); err == nil {
		n, err := c.receive(queue, reply, now, nil)
		if err != nil {
			c.health.failed(err)
		}
		if n == 0 {
			c.bufferMu.Lock()
			c.flowing = ""
			c.bufferMu.Unlock()
		}
	}
	if redis.HasErrorPrefix(completed.Err(), "NOSCRIPT") {
		return completeScript.Run(ctx, c.UniversalClient, keys, args...)
	}
	return completed
}

// retry stands in for asynq's retry and archive: it carries out what the
// handler decided. asynq's recoverer comes here too, for jobs of workers that
// died.
func (c *Client) retry(ctx context.Context, keys []string, args []any) *redis.Cmd {
	queue, id := queueOf(keys[0]), fmt.Sprint(args[0])
	encoded, _ := args[1].([]byte)
	d := c.inHand.get(id)
	var o Outcome
	if d != nil && d.decided() != nil {
		o = *d.decided()
		defer c.inHand.remove(id)
	} else {
		msg, err := record.DecodeMessage(encoded)
		switch {
		case err != nil:
			return redis.NewCmdResult(nil, err)
		case msg.ErrorMsg == leaseExpired:
			o = c.recoverOutcome()
		default:
			// asynq gave up waiting for the handler, which only happens when
			// somebody cancels the task through asynq itself.
			o = Outcome{Kind: Fail, Error: msg.ErrorMsg}
		}
	}
	if _, bounded := ctx.Deadline(); !bounded {
		// asynq's recoverer, which comes by again; a shutdown must not wait for it.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(c.ctx, redisTimeout)
		defer cancel()
	}
	var s Settled
	err := c.repeat(ctx, func() (err error) {
		s, err = c.settle(ctx, queue, id, o)
		return err
	})
	if err != nil {
		return redis.NewCmdResult(nil, err)
	}
	if o.Settled != nil {
		o.Settled(s)
	}
	if o.Kind == recovered && s.Kind != "" && c.o.Recovered != nil {
		c.o.Recovered(id, s)
	}
	return redis.NewCmdResult("OK", nil)
}

// requeue stands in for asynq's: at the end of a shutdown it puts jobs whose
// handlers still run back to the head of the queue.
func (c *Client) requeue(ctx context.Context, keys []string, args []any) *redis.Cmd {
	id := fmt.Sprint(args[0])
	defer c.inHand.remove(id)
	err := c.repeat(ctx, func() error {
		_, err := c.settle(ctx, queueOf(keys[0]), id, Outcome{Kind: Requeue})
		return err
	})
	if err != nil {
		return redis.NewCmdResult(nil, err)
	}
	return redis.NewCmdResult("OK", nil)
}

// settle carries one outcome out.
func (c *Client) settle(ctx context.Context, queue, id string, o Outcome) (Settled, error) {
	keys := []string{
		record.Task(queue, id), record.Active(queue), record.Lease(queue), record.Scheduled(queue),
		record.Retry(queue), record.Pending(queue), record.Failed(queue),
	}
	delay := int64(0)
	if !o.At.IsZero() {
		// Rounded up, so that nothing starts early.
		delay = max(0, int64((time.Until(o.At)+time.Millisecond-1)/time.Millisecond))
	}
	limit, status, body, extend := "", "", "", ""
	if o.Limit != nil {
		limit = strconv.Itoa(*o.Limit)
	}
	if o.Response != nil {
		status, body = strconv.Itoa(o.Response.Status), o.Response.Body
	}
	if o.Extend > 0 {
		extend = strconv.FormatInt(o.Extend.Milliseconds(), 10)
	}
	reply, err := settleScript.Run(ctx, c.UniversalClient, keys,
		id, string(o.Kind), delay, o.Reason, o.Error, limit, status, body, extend).Slice()
	if err != nil {
		return Settled{}, fmt.Errorf("asynqx: %s job %s: %w", o.Kind, id, err)
	}
	var s Settled
	if len(reply) == 3 {
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
		var reply redis.Error
		if errors.As(err, &reply) && !transient(reply) {
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
		case <-t.C:
		}
		pause = min(2*pause, time.Second)
	}
}

// transient reports whether a reply of Redis may be another one soon.
func transient(err redis.Error) bool {
	for _, prefix := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "OOM", "BUSY", "NOREPLICAS"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}
