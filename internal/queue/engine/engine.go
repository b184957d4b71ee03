// Package engine runs the loop of a worker: it fetches jobs into a buffer when a Gate
// permits it, tracks the jobs in flight, extends their leases, applies their outcomes until
// Redis has recorded them, and maintains their queues.
//
// internal/queue/store has the keys and scripts; internal/queue/asynqx makes asynq's Server call the
// engine. The life of a job here:
//
//	Next                 fetch.go, receive.go (gate, keys: held.go, hold.go)
//	Delivery.Decide      delivery.go
//	Settle, After        worker.go, ack.go
//	Maintain, Purge      forward.go, maintenance.go, release.go, purge.go
//	ExtendLeases         lease.go
//	RecoverLapsed        recover.go
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// Options configure an Engine.
type Options struct {
	// Queues to serve, the most urgent first.
	Queues []string
	// Concurrency is the maximum of jobs in flight.
	Concurrency int
	// Before is the engine that this one replaces in the process, for the same queues. It is stopped, and its jobs in
	// flight still count as in flight here. Nil: this engine replaces none.
	Before *Engine
	// KeyOf returns the key under which the gate holds a job, given its encoded message and the job's
	// own key; "" for none. Nil: its own key.
	KeyOf func(msg, own string) string
	// Scarce reports whether the gate was refused permits of late: then, and while the API is slow, keys of a
	// queue take turns. Nil: they never do.
	Scarce func() bool
	// Weights of keys in turns, as store.WeightsOf; others have 1.
	Weights string
	// Lines says whether jobs of a key are run one at a time, in order.
	Lines store.Lines
	// AskAll has the gate asked about every job that has a permit: jobs draw on limits in different ways.
	AskAll bool
	// Worker is recorded with each job that this process fetches: host:pid.
	Worker string
	// Gate permits fetches. Nil: always.
	Gate Gate
	// Retention of completed and of failed jobs.
	Retention, RetentionFailed time.Duration
	// MaxCrashes is how many workers may die with a job in flight before it fails as poison.
	// 0: no limit.
	MaxCrashes int
	// Suspect is shared by all engines of a process; nil: its own.
	Suspect *Suspect
	// Lease of a fetched job. The job is recovered about one further lease after its end.
	// Default store.Lease.
	Lease time.Duration
	// RecoverSpread is the time over which the recovered jobs of a dead worker become
	// available. Default 30 s.
	RecoverSpread time.Duration
	// PollMin and PollMax bound the pause between two polls of empty queues, which doubles
	// from one to the other. Defaults 100 ms and 1 s.
	PollMin, PollMax time.Duration
	// Logger gets one error per outage of Redis, and a line when it ends.
	Logger *slog.Logger
	// Fatal is called once if the worker cannot continue, such as after the caller closed the
	// Redis client. It must stop the worker.
	Fatal func(error)
	// Ready, if set, is called when a queue may have jobs, "" for all. It must return at once.
	Ready func(queue string)
	// Expired, if set, is called with the number of waiting jobs of a queue that this engine
	// has expired.
	Expired func(queue string, n int)
	// Released, if set, is called with the number of held jobs of a queue that this engine
	// has fetched.
	Released func(queue string, n int)
	// Redistributed, if set, is called with the number of jobs of a queue that this engine has put back into it for any
	// worker: that had waited because of a limit, or because their worker had died.
	Redistributed func(queue string, limited, lost int)
	// Foreign, if set, is called with the number of tasks of another program, all of the type,
	// that this engine has moved from a queue to asynq's archive.
	Foreign func(queue, taskType string, n int)
	// Recovered, if set, is called for each job of a dead worker that this engine has
	// recovered.
	Recovered func(msg *store.Message, s store.Applied)
}

// An engine is built in layers: a layer knows the layers below it, and none above.

// core is what all layers share: the jobs in flight, their leases, and Redis.
type core struct {
	rdb  redis.UniversalClient
	o    Options
	gate Gate

	flight inFlight
	health health
	pulse  pulse
	pace   pace
	node   func(queue string) string // of a Cluster

	name string        // random; prefix of the ids of fetches
	runs atomic.Uint64 // counts fetches

	ctx    context.Context // ends when fetching stops
	cancel context.CancelFunc
	hard   context.Context // ends at Abort
	abort  context.CancelFunc
	fatal  sync.Once
}

// queues is what is known of the queues, and the jobs that were fetched from them and not handed out.
type queues struct {
	core

	// waiting is true while the gate is closed.
	waiting atomic.Bool
	heldFor atomic.Int64 // in how many ns a held key was due first, as the backlog was found to be empty; 0: none is held
	opening opening

	bufferMu  sync.Mutex // of all below
	buffer    []*Delivery
	refusedIn string               // queue of the job that the gate has refused, and that is next
	paused    bool                 // the last fetch found a paused queue
	flowing   bool                 // the last fetch returned jobs: completions fetch more
	more      bool                 // the last fetch returned all that it asked for, and left some
	fetches   uint64               // counts fetches
	empty     map[string]emptied   // by queue
	wakes     uint64               // counts calls of Wake
	due       map[string]dueKeys   // by queue
	slots     map[string][]any     // permits of KeySlot that no job has yet
	unheld    []unheld             // to be held again
	unsorted  map[string]bool      // queues with pending jobs that wait to be sorted by their keys
	lost      map[string][]string  // by queue: fetches whose reply was lost
	backoff   map[string]time.Time // queues that are skipped, until then
	left      map[string]time.Time // when jobs left a test to others
}

// waker begins the fetching, which offer does, when there may be jobs.
type waker struct {
	queues

	offer func(ready chan<- *Delivery)
	run   run
	wake  chan struct{} // ends the pause of a fetch
}

// maintainer moves due jobs, ends expired ones, releases children and deferred jobs, and deletes old ones. It also
// applies outcomes, which can make such work.
type maintainer struct {
	waker

	maintenance maintenance
	forwards    *forwards
	// The next three are used by Worker.maintain and Worker.Purge alone.
	retrying atomic.Bool
	retried  time.Time
	purgeAt  time.Time
}

// holder holds jobs for their keys, and finds those whose keys have opened.
type holder struct{ maintainer }

// Engine is the loop of one worker for some queues: it fetches, and settles jobs.
type Engine struct {
	holder

	fetch    sync.Mutex    // held by Next
	pause    time.Duration // until the next poll of empty queues; under fetch
	acks     committer
	recorded atomic.Int32 // jobs in flight whose completion is recorded
	flushing sync.Mutex   // held while completions are sent
	// completes is true by queue if Redis accepted its last completions; under flushing.
	completes map[string]bool
}

// New returns an engine on rdb, which it does not close.
func New(rdb redis.UniversalClient, o Options) *Engine {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Gate = cmp.Or[Gate](o.Gate, openGate{})
	o.PollMin = cmp.Or(o.PollMin, 100*time.Millisecond)
	o.PollMax = cmp.Or(o.PollMax, time.Second)
	o.Suspect = cmp.Or(o.Suspect, &Suspect{})
	o.Lease = cmp.Or(o.Lease, leaseDuration)
	o.RecoverSpread = cmp.Or(o.RecoverSpread, 30*time.Second)
	e := &Engine{completes: map[string]bool{}, pause: o.PollMin}
	e.rdb, e.o, e.gate = rdb, o, o.Gate
	e.name = strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // a name needs no secrecy
	e.flight.jobs, e.flight.suspect, e.flight.freed = map[string]*Delivery{}, o.Suspect, make(chan struct{}, 1)
	if o.Before != nil {
		e.flight.follow(&o.Before.flight)
		e.o.Before = nil // not kept once it has ended
	}
	e.empty, e.lost, e.due, e.backoff = map[string]emptied{}, map[string][]string{}, map[string]dueKeys{}, map[string]time.Time{}
	e.unsorted = map[string]bool{}
	e.opening.all = true
	e.wake, e.offer = make(chan struct{}, 1), e.fetchWhileFree
	e.forwards = newForwards(o.Queues)
	e.acks.flush = e.flushCompletions
	e.health.log, e.health.closed = o.Logger, e.clientClosed
	e.health.moved.Every, e.maintenance.failing.Every = time.Minute, time.Minute
	if _, cluster := rdb.(*redis.ClusterClient); cluster {
		e.health.settled = settledOnCluster
	}
	e.hard, e.abort = context.WithCancel(context.Background())
	e.node = func(queue string) string { return store.NodeOf(e.hard, rdb, queue) }
	e.ctx, e.cancel = context.WithCancel(e.hard)
	return e
}

// CloseGate stops fetching: a waiting Next returns no job, fetched jobs that were not handed
// out go back to the head of their queue, and an unused permit is released. Further calls do
// nothing.
func (e *Engine) CloseGate(ctx context.Context) error {
	e.cancel()
	e.fetch.Lock() // wait for a Next in progress
	defer e.fetch.Unlock()
	e.flushing.Lock() // and for completions that fetch
	defer e.flushing.Unlock()
	var errs []error
	e.returnSlots(ctx)
	if err := e.putBack(ctx); err != nil {
		errs = append(errs, fmt.Errorf("engine: put jobs back: %w", err))
	}
	if err := e.gate.Close(ctx); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Finish stops maintenance. No handler may run any more.
func (e *Engine) Finish() {
	e.Abort()
	e.maintenance.wait()
	e.flight.leave()
}

// Abort ends all waiting for Redis at the end of the shutdown timeout. Jobs whose outcomes are
// lost are recovered when their leases end.
func (e *core) Abort() {
	e.abort()
	e.health.stop()
}

// bounded returns a context for a call of the engine.
func (e *core) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.hard, redisTimeout)
}

// Trouble returns the last error of the current outage of Redis and when the outage began;
// nil without an outage.
func (e *core) Trouble() (since time.Time, err error) { return e.health.failure() }

// CountInFlight is how many jobs are in flight: fetched, running, or not acknowledged yet.
func (e *core) CountInFlight() int { return e.flight.len() }

// Delivery returns the job in flight with the id, nil if there is none.
func (e *core) Delivery(id string) *Delivery { return e.flight.get(id) }

// Bounded gives a call without a deadline one, so that a Redis that hangs cannot block a
// shutdown.
func (e *core) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return e.bounded()
}

// Stop calls Fatal, once: the worker cannot continue.
func (e *core) Stop(err error) {
	if e.o.Fatal != nil {
		e.fatal.Do(func() { e.o.Fatal(err) })
	}
}

// clientClosed stops the worker if the caller has closed the Redis client: outcomes can no
// longer be applied. A Cluster's client also closes single nodes by itself.
func (e *core) clientClosed() {
	ctx, cancel := context.WithTimeout(e.hard, time.Second)
	defer cancel()
	if err := e.rdb.Ping(ctx).Err(); errors.Is(err, redis.ErrClosed) {
		e.abort()
		e.Stop(err)
	}
}
