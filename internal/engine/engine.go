// Package engine runs the loop of a worker: it fetches jobs into a buffer, knows which are
// in flight, extends their leases, applies their outcomes, repeating what Redis did not
// take, and does the maintenance of their queues. It asks a Gate when it may fetch.
//
// What is in Redis and how it changes is internal/store's; which program calls the engine is
// not its concern (internal/asynqx makes asynq's Server do it). The life of a job here:
//
//	Next                 fetch.go, receive.go (gate, keys: held.go, hold.go)
//	Delivery.Decide      delivery.go
//	Acknowledge          ack.go
//	Maintain, Purge      forward.go, maintenance.go, release.go, purge.go
//	ExtendLeases, Lapsed lease.go
//	Recover              recover.go
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// Options configure an Engine.
type Options struct {
	// Queues to serve, the most urgent first.
	Queues []string
	// Concurrency is how many jobs are in flight at most.
	Concurrency int
	// Worker is kept with each job that this process fetches: host:pid.
	Worker string
	// Gate says when jobs may be fetched. Nil means always.
	Gate Gate
	// Retention of completed and of failed jobs.
	Retention, RetentionFailed time.Duration
	// MaxCrashes is how many workers may die with a job before it fails as poison. 0 means
	// no limit.
	MaxCrashes int
	// Suspect is shared by all engines of a process; nil means one of its own.
	Suspect *Suspect
	// Lease of a fetched job. It is recovered once its lease has been over for as long
	// again. Default 30 s.
	Lease time.Duration
	// RecoverSpread is the time over which jobs of a dead worker come back.
	// Default 30 s.
	RecoverSpread time.Duration
	// PollMin and PollMax bound the pause between two looks at empty queues,
	// which doubles from one to the other. Defaults 100 ms and 1 s.
	PollMin, PollMax time.Duration
	// Logger gets an error once when Redis is lost, and a line when it is back.
	Logger *slog.Logger
	// Fatal is called once, if the worker cannot go on: the caller has closed the Redis
	// client, for instance. It must stop the worker.
	Fatal func(error)
	// Expired, if set, is called with how many waiting jobs of a queue this engine has
	// expired.
	Expired func(queue string, n int)
	// Released, if set, is called with how many held jobs of a queue this engine has
	// fetched.
	Released func(queue string, n int)
	// Recovered, if set, is called for each job of a dead worker that this engine has
	// recovered.
	Recovered func(msg *store.Message, s store.Applied)
	// Unreadable, if set, is called for each job that this engine has failed because its
	// message cannot be read.
	Unreadable func(queue, id, key string, s store.Applied)
}

// Engine is the loop of one worker for some queues.
type Engine struct {
	rdb  redis.UniversalClient
	o    Options
	gate Gate

	flight   inFlight
	bufferMu sync.Mutex
	buffer   []*Delivery // fetched, not yet handed out
	// The next four are under bufferMu too.
	paused  bool                 // the last fetch met a paused queue
	flowing bool                 // the last fetch found jobs: more come along with completions
	turn    uint64               // counts fetches
	empty   map[string]time.Time // until when a queue that was found empty is passed over
	purged  map[string]time.Time // used by Purge alone
	purgeAt time.Time            // used by Worker.Purge alone
	acks    committer
	// waiting is true while the gate lets nothing through: then due jobs stay where they
	// are, and are moved when the gate opens.
	waiting     atomic.Bool
	due         map[string]dueKeys // by queue; under bufferMu too
	opening     opening
	unheld      []unheld // under bufferMu
	health      health
	maintenance maintenance
	looks       *looks

	name string              // of this client, for the names of its fetches
	runs atomic.Uint64       // counts them
	lost map[string][]string // by queue: fetches whose reply was lost; under bufferMu

	ctx    context.Context // ends when fetching is to stop
	cancel context.CancelFunc
	hard   context.Context // ends when nothing may be waited for any more
	abort  context.CancelFunc
	wake   chan struct{}
	fatal  sync.Once

	pulse pulse

	run      run
	fetch    sync.Mutex    // held by Next
	pause    time.Duration // until the next look at empty queues; under fetch
	flushing sync.Mutex    // held while completions are sent
	// completes tells by queue whether Redis took the last completions; under flushing.
	completes map[string]bool
}

// New returns an engine on rdb, which stays the caller's.
func New(rdb redis.UniversalClient, o Options) *Engine {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Gate == nil {
		o.Gate = openGate{}
	}
	if o.PollMin == 0 {
		o.PollMin = 100 * time.Millisecond
	}
	if o.PollMax == 0 {
		o.PollMax = time.Second
	}
	if o.Suspect == nil {
		o.Suspect = &Suspect{}
	}
	if o.Lease == 0 {
		o.Lease = leaseDuration
	}
	if o.RecoverSpread == 0 {
		o.RecoverSpread = 30 * time.Second
	}
	e := &Engine{
		rdb: rdb, o: o, gate: o.Gate,
		flight:    inFlight{jobs: map[string]*Delivery{}, suspect: o.Suspect, freed: make(chan struct{}, 1)},
		empty:     map[string]time.Time{},
		purged:    map[string]time.Time{},
		lost:      map[string][]string{},
		due:       map[string]dueKeys{},
		looks:     newLooks(o.Queues),
		completes: map[string]bool{},
		opening:   opening{all: true},
		name:      strconv.FormatUint(rand.Uint64(), 36), //nolint:gosec // a name needs no secrecy
		wake:      make(chan struct{}, 1),
		pause:     o.PollMin,
	}
	e.acks.flush = e.flushCompletions
	e.health.log, e.health.closed = o.Logger, e.clientClosed
	e.health.moved.Every, e.maintenance.failing.Every = time.Minute, time.Minute
	if _, cluster := rdb.(*redis.ClusterClient); cluster {
		e.health.settled = settledOnCluster
	}
	e.hard, e.abort = context.WithCancel(context.Background())
	e.ctx, e.cancel = context.WithCancel(e.hard)
	return e
}

// CloseGate stops fetching: a Next that waits returns no job, jobs that were
// fetched but not handed out go back to the head of their queue, an unused
// permit is given back. Calling it again does nothing.
func (e *Engine) CloseGate(ctx context.Context) error {
	e.cancel()
	e.fetch.Lock() // wait for the Next under way
	defer e.fetch.Unlock()
	e.flushing.Lock() // and for a completion that fetches on its way
	defer e.flushing.Unlock()
	var errs []error
	if err := e.putBack(ctx); err != nil {
		errs = append(errs, fmt.Errorf("engine: put jobs back: %w", err))
	}
	if err := e.gate.Close(ctx); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Finish applies what outcomes are left once no handler runs any more, for as long as that
// takes or until Abort, and ends everything else.
func (e *Engine) Finish() {
	e.applyAll()
	e.abort()
	e.maintenance.wait()
}

// Abort ends all waiting for Redis: the time to shut down is over. Jobs whose outcomes are
// lost by it come back when their leases end.
func (e *Engine) Abort() { e.abort() }

// bounded returns a context for a call of our own.
func (e *Engine) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.hard, redisTimeout)
}

// Trouble is why nothing can be fetched at present: what Redis said last, and since
// when. It is nil while fetching works, or has not been tried.
func (e *Engine) Trouble() (since time.Time, err error) { return e.health.trouble() }

// CountInFlight is how many jobs are in flight: fetched, running, or not acknowledged yet.
func (e *Engine) CountInFlight() int { return e.flight.len() }

// InFlight reports whether the job with the id is in flight.
func (e *Engine) InFlight(id string) bool { return e.flight.get(id) != nil }

// Delivery returns the job in flight with the id, nil if there is none.
func (e *Engine) Delivery(id string) *Delivery { return e.flight.get(id) }

// Bounded bounds a call that has no bound of its own, so that a Redis that hangs cannot
// hold a shutdown up.
func (e *Engine) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return e.bounded()
}

// Aborted is not nil once nothing may be waited for any more.
func (e *Engine) Aborted() error { return e.hard.Err() }

// Stop reports, once, that the worker must stop for good: nothing that it does can succeed.
func (e *Engine) Stop(err error) {
	if e.o.Fatal != nil {
		e.fatal.Do(func() { e.o.Fatal(err) })
	}
}

// clientClosed stops the worker if the caller has closed the Redis client: outcomes can not
// be applied any more. A Cluster's client also closes single nodes by itself.
func (e *Engine) clientClosed() {
	ctx, cancel := context.WithTimeout(e.hard, time.Second)
	defer cancel()
	if err := e.rdb.Ping(ctx).Err(); errors.Is(err, redis.ErrClosed) {
		e.abort()
		e.Stop(err)
	}
}
