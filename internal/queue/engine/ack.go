package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// completion is a job to be completed.
type completion struct {
	queue, id string
	delivery  *Delivery
	response  *store.Response
	output    string
	reason    store.Reason
	took      time.Duration
	done      chan error
	result    store.Completed
}

// size is how many bytes of answer and output it stores.
func (a *completion) size() int {
	if a.response == nil {
		return len(a.output)
	}
	return len(a.response.Body) + len(a.output)
}

// committer batches the completions that arrive during a call into the next call.
type committer struct {
	flush func([]*completion)

	mu      sync.Mutex
	waiting []*completion
	busy    bool
}

// Bounds of the completions of one call, which blocks Redis.
const (
	maxCompletions     = 100
	maxCompletionBytes = 4 << 20 // of answers and outputs, unless one alone has more
)

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
		// Jobs that were fetched together often end together: let goroutines that are
		// ready join the batch.
		runtime.Gosched()
		k.mu.Lock()
		n, size := 0, 0
		for n < min(len(k.waiting), maxCompletions) {
			if size += k.waiting[n].size(); n > 0 && size > maxCompletionBytes {
				break
			}
			n++
		}
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

// requeueUndecided puts the jobs whose handlers do not return at the end of a shutdown back to the
// heads of their queues, without counting the run.
func (e *maintainer) requeueUndecided() {
	for _, d := range e.flight.all() {
		if d.decided() != nil {
			continue
		}
		if _, err := e.applyUndecided(e.hard, d.Queue, d.ID, d.run, store.Outcome{Kind: store.KindRequeue}); err != nil {
			e.health.failed(err)
		}
		e.flight.remove(d)
	}
}

// applyUndecided applies an outcome, repeatedly until it succeeds or ctx ends.
func (e *maintainer) applyUndecided(ctx context.Context, queue, id, run string, o store.Outcome) (a store.Applied, err error) {
	err = e.repeat(ctx, func() (err error) {
		a, err = e.applyOutcome(ctx, queue, id, run, o)
		return err
	})
	return a, err
}

// errUndecided fails a job whose handler has returned without an outcome.
var errUndecided = errors.New("its handler ended without an outcome")

// settle applies the outcome of a job whose handler has returned. It repeats the call until Redis has
// recorded the outcome, refuses it for good, or Abort, and reports whether the job is over: the caller
// takes it out of flight then.
func (e *Engine) settle(d *Delivery) (over bool) {
	o := d.beginAck()
	s := store.Applied{}
	var err error
	if o.Kind == store.KindComplete {
		a := &completion{queue: d.Queue, id: d.ID, delivery: d, response: o.Response, output: o.Output, reason: o.Reason, took: o.Took}
		err = e.repeat(e.hard, func() error { return d.tried(e.acks.do(a)) })
		if err == nil {
			defer e.recorded.Add(-1) // after applied
			if a.result != store.CompletedGone {
				s.Kind = store.KindComplete
			}
			if a.result == store.CompletedParent {
				e.releaseChildren(a.queue)
			}
		}
	} else {
		err = e.repeat(e.hard, func() (err error) {
			s, err = e.applyOutcome(e.hard, d.Queue, d.ID, d.run, o)
			return d.tried(err)
		})
	}
	if err != nil {
		if !final(err) {
			return false // aborted
		}
		e.health.failed(err)
	}
	if d.applied != nil {
		d.applied(s)
	}
	return true
}

// flushCompletions sends the completions of each queue in one call and, in the same round
// trip, fetches one job for each slot that becomes free. It fetches only if Redis accepted the
// queue's last completions: if Redis does not know or refuses the script, or had completed the
// same jobs before, no slot becomes free for the fetched jobs.
func (e *Engine) flushCompletions(batch []*completion) {
	e.flushing.Lock()
	defer e.flushing.Unlock()
	ctx, cancel := e.bounded()
	defer cancel()
	byQueue := map[string][]*completion{}
	for _, a := range batch {
		byQueue[a.queue] = append(byQueue[a.queue], a)
	}
	asked := false // prefetchFrom was called, once per flush
	for own, as := range byQueue {
		args := store.CompleteArgs{Queue: own, Worker: e.o.Worker, Retention: e.o.Retention}
		for _, a := range as {
			args.Jobs = append(args.Jobs, store.Completion{ID: a.id, Response: a.response, Output: a.output, Reason: a.reason, Took: a.took})
		}
		queue, n := "", 0
		if e.completes[own] && !asked {
			queue, n = e.prefetchFrom(len(as))
			asked = true
		}
		var results []store.Completed
		var err error
		if n == 0 {
			results, err = store.Complete(ctx, e.rdb, args)
		} else {
			results, err = e.completeAndFetch(ctx, args, queue, n)
		}
		e.completes[own] = err == nil
		for i, a := range as {
			if err == nil {
				a.result = results[i]
				e.recorded.Add(1)
			}
			a.done <- err
		}
	}
}

// completeAndFetch completes jobs and fetches n from queue in one round trip. The fetched jobs
// are in the buffer before the slots are free.
func (e *Engine) completeAndFetch(ctx context.Context, args store.CompleteArgs, queue string, n int) ([]store.Completed, error) {
	f := fetch{queue: queue, run: e.nextRun(), at: time.Now(), wakes: e.countWakes()}
	return store.CompleteAndFetch(ctx, e.rdb, args, e.fetchArgs(f, n), func(reply store.FetchReply, err error) {
		if err != nil {
			e.noteLost(f, err)
			return
		}
		ds, passed, err := e.receive(f, reply)
		if passed.dropped > 0 {
			e.releaseChildren(f.queue) // jobs with children may have expired
		}
		if err != nil {
			e.health.failed(err)
		}
		e.keepPrefetched(f, ds, passed)
	})
}

// applyOutcome applies one outcome if the job belongs to the run; a run of "" is any run.
func (e *maintainer) applyOutcome(ctx context.Context, queue, id, run string, o store.Outcome) (store.Applied, error) {
	a, err := store.Apply(ctx, e.rdb, queue, id, run, o)
	if a.Children {
		e.releaseChildren(queue)
	}
	return a, err //nolint:wrapcheck // it names the operation
}

// repeat calls f until it succeeds, ctx ends, or Redis refuses for good.
func (e *core) repeat(ctx context.Context, f func() error) error {
	pause := 50 * time.Millisecond
	for {
		began := time.Now()
		err := f()
		if err == nil {
			e.health.worked(began)
			return nil
		}
		if final(err) {
			return err
		}
		if !errors.Is(err, context.Canceled) {
			e.health.failed(err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-e.hard.Done():
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
}

// final reports whether an error is permanent: Redis refuses the call itself. Other errors
// (loading, failover, migrating slots, out of memory, changed ACLs) may end within the lease.
func final(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	permanent := []string{"WRONGTYPE", "ERR Error compiling", "ERR user_script", "ERR unknown command", "ERR apply"}
	return slices.ContainsFunc(permanent, func(prefix string) bool { return redis.HasErrorPrefix(reply, prefix) })
}
