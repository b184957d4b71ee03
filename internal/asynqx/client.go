// Package asynqx is what Tidegate leans on in asynq beyond its API.
//
// asynq takes any redis.UniversalClient and speaks to Redis through a fixed
// set of Lua scripts. Client is such a client: it passes on what asynq sends,
// but stands in for the scripts where Tidegate must do more, or differently,
// in the same round trip: dequeue, done and complete, retry, requeue, archive
// and forward. The caller's own client is left alone.
//
// A contract test holds the SHA-1, KEYS and ARGV of each of these scripts
// against asynq's source; a script that is not known stops the Server.
package asynqx

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

// Options configure a Client.
type Options struct {
	// Queues of the Server, the most urgent first. The Server must be given the
	// same ones with StrictPriority, the first one highest.
	Queues []string
	// Concurrency of the Server.
	Concurrency int
	// Worker is kept with each job that this process takes: host:pid.
	Worker string
	// Gate says when jobs may be fetched. Nil means always.
	Gate Gate
	// Retention of completed and of failed jobs.
	Retention, RetentionFailed time.Duration
	// MaxCrashes is how many times a job may be in the hands of a worker that dies
	// before it fails as poison. 0 means that there is no limit.
	MaxCrashes int
	// Suspect is shared by all Servers of a process; see MaxCrashes. Nil means one
	// of its own.
	Suspect *Suspect
	// ForwardEvery is how often due jobs are moved to their queue. The Server
	// must be told to look at least as often.
	ForwardEvery time.Duration
	// LookEvery is how often a queue is looked at that has nothing to move, while
	// nothing is in hand. 0 means whenever the Server asks; with jobs in hand it is
	// always so, because one of them may have been cancelled.
	LookEvery time.Duration
	// Lease is how long a job stays this worker's without a heartbeat. It is recovered
	// once its lease has been over for as long again. Default 30 s.
	Lease time.Duration
	// RecoverSpread is the time over which jobs of a dead worker come back.
	// Default 30 s.
	RecoverSpread time.Duration
	// PollMin and PollMax bound the pause between two looks at empty queues,
	// which doubles from one to the other. Defaults 100 ms and 1 s.
	PollMin, PollMax time.Duration
	// Logger gets an error once when Redis is lost, and a line when it is back.
	Logger *slog.Logger
	// Fatal is called once, if asynq sends a script that is not known or the caller has
	// closed the client. It must stop the Server.
	Fatal func(error)
	// Expired, if set, is told how many waiting jobs of a queue this Client has ended,
	// because they have expired.
	Expired func(queue string, n int)
	// Released, if set, is told how many held jobs of a queue this Client has fetched,
	// because their keys let them through.
	Released func(queue string, n int)
	// Recovered, if set, is told of each job that was taken from a dead worker. Of
	// several Clients one is told.
	Recovered func(msg *store.Message, s Settled)
	// Unreadable, if set, is told of each job that was failed because asynq could not
	// have read its message. Of several Clients one is told.
	Unreadable func(queue, id, key string, s Settled)
}

// Client is the redis.UniversalClient of one asynq Server.
type Client struct {
	redis.UniversalClient
	o    Options
	gate Gate

	inHand   inHand
	bufferMu sync.Mutex
	buffer   []*Delivery // fetched, not yet handed out
	// The next three are under bufferMu too.
	flowing   bool                 // the last fetch found jobs: more come along with completions
	turn      uint64               // counts fetches
	empty     map[string]time.Time // until when a queue that was found empty is passed over
	purged    map[string]time.Time // only the janitor's goroutine uses it
	forwarded map[string]time.Time // only the forwarder's goroutine uses it
	looked    map[string]time.Time // likewise
	acks      committer
	// waiting is true while the gate lets nothing through: then what is due may
	// as well stay where it is, and is moved when the gate opens.
	waiting atomic.Bool
	due     map[string]dueKeys // by queue; under bufferMu too
	opening opening
	unheld  []unheld // under bufferMu
	health  health
	chores  chores
	beats   atomic.Uint64

	name string              // of this client, for the names of its fetches
	runs atomic.Uint64       // counts them
	lost map[string][]string // by queue: fetches whose reply was lost; under bufferMu

	ctx    context.Context // ends when fetching is to stop
	cancel context.CancelFunc
	hard   context.Context // ends when nothing may be waited for any more
	abort  context.CancelFunc
	wake   chan struct{}
	fatal  sync.Once

	heartbeat  sync.WaitGroup
	subscriber subscriber
	pulse      pulse

	fetch    sync.Mutex    // held while a dequeue is under way
	pause    time.Duration // until the next look at empty queues; under fetch
	patience time.Duration // fetchPatience, but for tests
	flushing sync.Mutex    // held while completions are sent
	// completes tells by queue whether Redis took the last completions; under flushing.
	completes map[string]bool
}

// New returns a client for one Server, on top of rdb, which stays the caller's.
func New(rdb redis.UniversalClient, o Options) *Client {
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
	c := &Client{
		UniversalClient: rdb, o: o, gate: o.Gate,
		inHand:    inHand{jobs: map[string]*Delivery{}, suspect: o.Suspect},
		empty:     map[string]time.Time{},
		purged:    map[string]time.Time{},
		forwarded: map[string]time.Time{},
		looked:    map[string]time.Time{},
		lost:      map[string][]string{},
		due:       map[string]dueKeys{},
		completes: map[string]bool{},
		opening:   opening{all: true},
		name:      strconv.FormatUint(rand.Uint64(), 36), //nolint:gosec // a name needs no secrecy
		wake:      make(chan struct{}, 1),
		pause:     o.PollMin, patience: fetchPatience,
	}
	c.acks.flush = c.flushCompletions
	c.health.log, c.health.closed = o.Logger, c.clientClosed
	if _, cluster := c.UniversalClient.(*redis.ClusterClient); cluster {
		c.health.settled = settledOnCluster
	}
	c.hard, c.abort = context.WithCancel(context.Background())
	c.ctx, c.cancel = context.WithCancel(c.hard)
	return c
}

// CloseGate stops fetching: a dequeue that waits returns empty, jobs that were
// fetched but not handed out go back to the head of their queue, an unused
// permit is given back. It must be called before the Server's Stop, which would
// wait for the dequeue for ever. Calling it again does nothing.
func (c *Client) CloseGate(ctx context.Context) error {
	c.cancel()
	c.fetch.Lock() // wait for the dequeue under way
	defer c.fetch.Unlock()
	c.flushing.Lock() // and for a completion that fetches on its way
	defer c.flushing.Unlock()
	var errs []error
	if err := c.putBack(ctx); err != nil {
		errs = append(errs, fmt.Errorf("asynqx: put jobs back: %w", err))
	}
	if err := c.gate.Close(ctx); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Finish records what is left to record once the Server has been shut down, for as long
// as that takes or until Abort, and ends everything else.
func (c *Client) Finish() {
	c.settleAll()
	c.abort()
	c.chores.wait()
	c.heartbeat.Wait()
	if err := c.subscriber.close(); err != nil {
		c.o.Logger.Debug("subscription not closed", "error", err)
	}
}

// Abort ends what still waits for Redis: the time to shut down is over. What it
// cuts comes back by itself when its lease ends.
func (c *Client) Abort() { c.abort() }

// bounded returns a context for a call of our own.
func (c *Client) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.hard, redisTimeout)
}

// Trouble is why nothing can be fetched at present: what Redis said last, and since
// when. It is nil while fetching works, or has not been tried.
func (c *Client) Trouble() (since time.Time, err error) { return c.health.trouble() }

// InHand is how many jobs this Server holds.
func (c *Client) InHand() int { return c.inHand.len() }

// Delivery returns the job in hand with the id, nil if there is none.
func (c *Client) Delivery(id string) *Delivery { return c.inHand.get(id) }

// Wake ends the pause between two looks at empty queues.
func (c *Client) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// EvalSha stands in for asynq's scripts; see the package comment.
func (c *Client) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	s, ok := asynqScripts[sha]
	if !ok {
		err := &UnknownScriptError{SHA: sha}
		c.stop(err)
		return redis.NewCmdResult(nil, err)
	}
	if err := c.hard.Err(); err != nil {
		return redis.NewCmdResult(nil, err)
	}
	switch s.action {
	case doDequeue:
		return c.dequeue(keys)
	case doComplete:
		return c.complete(ctx, keys, args)
	case doRetry:
		return c.retry(ctx, keys, args)
	case doRequeue:
		return c.requeue(ctx, keys, args)
	case doForward:
		return c.forward(ctx, keys)
	case doJanitor:
		return c.purge(ctx, keys)
	case doLapsed:
		return c.lapsed(queueOf(keys[0]))
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	cmd := c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	if s.action == signOfLife {
		c.health.lives(cmd.Err())
	}
	return cmd
}

// within bounds what asynq asks for without a bound of its own, so that a Redis
// that hangs cannot hold a shutdown up.
func (c *Client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return c.bounded()
}

// ZAdd bounds asynq's call; see within.
func (c *Client) ZAdd(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	if err := c.hard.Err(); err != nil {
		return redis.NewIntResult(0, err)
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	return c.UniversalClient.ZAdd(ctx, key, members...)
}

// ZRem bounds asynq's call; see within.
func (c *Client) ZRem(ctx context.Context, key string, members ...any) *redis.IntCmd {
	if err := c.hard.Err(); err != nil {
		return redis.NewIntResult(0, err)
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	return c.UniversalClient.ZRem(ctx, key, members...)
}

// Eval is what go-redis falls back to where Redis does not know a script yet.
// Only scripts that are passed on get here.
func (c *Client) Eval(ctx context.Context, src string, keys []string, args ...any) *redis.Cmd {
	ctx, cancel := c.within(ctx)
	defer cancel()
	return c.UniversalClient.Eval(ctx, src, keys, args...)
}

// queueOf takes the queue out of one of asynq's keys: asynq:{<queue>}:…
func queueOf(key string) string {
	const prefix = "asynq:{"
	if len(key) < len(prefix) {
		return ""
	}
	for i := len(prefix); i < len(key); i++ {
		if key[i] == '}' {
			return key[len(prefix):i]
		}
	}
	return ""
}
