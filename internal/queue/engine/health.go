package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/outage"
)

// settledOnCluster is longer than the heartbeat interval of a queue: its heartbeat fails if
// its node is down.
const settledOnCluster = 2 * time.Second

// flapFor is how soon after its end a failure belongs to an outage still: for a second go-redis
// answers some calls with the error of an earlier dial.
const flapFor = 1500 * time.Millisecond

// confirmFor is how long calls must fail after the first one whose connection broke: a connection of
// the pool may have been cut while it was idle, and the next call succeeds.
const confirmFor = time.Second

// health logs each outage of Redis once, and its end once.
type health struct {
	log *slog.Logger
	// settled is how long no call may have failed before Redis counts as available. On a
	// Cluster queues are on different nodes: while a node is down, only some calls fail.
	settled time.Duration

	// closed is called on redis.ErrClosed.
	closed func()

	down     atomic.Bool
	moved    outage.Log // of migrating slots
	mu       sync.Mutex
	at       time.Time // of the first failure
	failedAt time.Time // of the latest one
	endedAt  time.Time // when the last outage ended
	workedAt time.Time // of the latest success during an outage
	loud     bool      // this outage is logged
	confirm  *time.Timer
	stopped  bool
	last     error
	// refused is the kind of refusal of the latest failure.
	refused atomic.Int32
}

// The kinds of refusals.
const (
	unanswered int32 = iota // none: any answer ends the outage
	noWrites                // any write ends the outage
	noRights                // only a refused command that succeeds ends the outage
)

func (h *health) failed(err error) {
	if errors.Is(err, redis.ErrClosed) && h.closed != nil {
		h.closed()
	}
	if errors.Is(err, context.Canceled) {
		return // this process has ended the call
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settled > 0 && slotMoves(err) {
		// Not an outage: the queue waits, and no command was half executed.
		if _, log := h.moved.Failed(time.Now()); log {
			h.log.Info("the slot of a queue moves to another node; its jobs wait until then", "error", err)
		}
		return
	}
	h.last, h.failedAt = err, time.Now()
	h.refused.Store(refusalOf(err))
	if !h.down.Swap(true) {
		h.at, h.loud = h.failedAt, false
	}
	if h.loud || h.failedAt.Sub(h.endedAt) < flapFor {
		return
	}
	if broken(err) && h.failedAt.Sub(h.at) < confirmFor {
		if h.confirm == nil && !h.stopped {
			h.confirm = time.AfterFunc(confirmFor, h.confirmed)
		}
		return
	}
	h.report(err)
}

// confirmed reports an outage if no call has succeeded since the last one failed.
func (h *health) confirmed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirm = nil
	if h.down.Load() && !h.loud && !h.stopped && h.workedAt.Before(h.failedAt) {
		h.report(h.last)
	}
}

// stop ends the reports that are not confirmed yet.
func (h *health) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	if h.confirm != nil {
		h.confirm.Stop()
	}
}

// broken reports whether an established connection broke, or got no answer in time.
func broken(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ETIMEDOUT)
}

// report logs an outage. The caller holds mu.
func (h *health) report(err error) {
	h.loud = true
	if noSocket(err) {
		h.log.Error("this worker cannot connect to redis: it has no file descriptor or local port left; raise its limit (ulimit -n), or lower its concurrency; jobs in flight go on", "error", err)
		return
	}
	if redis.IsAuthError(err) {
		h.log.Error("redis refuses this worker's user or password; jobs in flight go on, no job is fetched: set the new ones in REDIS_URL and restart this worker", "error", err)
		return
	}
	if h.refused.Load() != unanswered && !redis.IsReadOnlyError(err) {
		h.log.Error("redis refuses what a worker needs; jobs in flight go on, no job is fetched until redis accepts it again", "error", err)
		return
	}
	h.log.Error("redis does not answer; jobs in flight go on, no job is fetched until it answers again", "error", err)
}

// slotMoves reports whether a node of a Cluster refuses because a slot is migrating or has
// migrated. The client follows a few redirections by itself.
func slotMoves(err error) bool {
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask || redis.IsTryAgainError(err)
}

// worked records that a call has succeeded which began at an instant. One that began before the outage
// says nothing about it: its goroutine may have had to wait with the reply.
func (h *health) worked(began time.Time) {
	if !h.down.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if began.Before(h.at) {
		return
	}
	h.workedAt = time.Now()
	if time.Since(h.failedAt) >= h.settled && h.down.CompareAndSwap(true, false) {
		h.last = nil
		if h.confirm != nil {
			h.confirm.Stop()
			h.confirm = nil
		}
		if h.loud {
			h.endedAt = time.Now()
			h.log.Info("redis answers again", "after", time.Since(h.at).Round(time.Millisecond).String())
		}
	}
}

// noSocket reports whether this process or its machine has no file descriptor or local port
// left, so that the error is not Redis's.
func noSocket(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// answered records any answer of Redis: it ends an outage without answers, not one of
// refused commands.
func (h *health) answered(began time.Time) {
	if h.down.Load() && h.refused.Load() == unanswered {
		h.worked(began)
	}
}

// ran records that Redis has run a script, which may have written nothing.
func (h *health) ran(began time.Time) {
	if h.down.Load() && h.refused.Load() != noWrites {
		h.worked(began)
	}
}

// wrote records a successful write, such as a heartbeat: while the gate is closed no other
// call shows that Redis accepts writes again.
func (h *health) wrote(began time.Time) {
	if h.down.Load() && h.refused.Load() != noRights {
		h.worked(began)
	}
}

// heartbeat takes the result of a heartbeat, which also an idle worker writes, and when it began. A full Redis
// is not a failure: jobs can be fetched from it.
func (h *health) heartbeat(began time.Time, err error) {
	switch {
	case err == nil:
		h.wrote(began)
	case refusalOf(err) == noWrites && !redis.IsOOMError(err):
		h.failed(err)
	}
}

// refusalOf classifies an error: as a refusal of the command, or as unanswered. The latter
// includes a Redis that refuses all commands for a time, such as during a failover or while
// loading.
func refusalOf(err error) int32 {
	_, refused := errors.AsType[redis.Error](err)
	switch {
	case !refused, redis.IsClusterDownError(err), redis.IsLoadingError(err), redis.IsMasterDownError(err),
		redis.IsTryAgainError(err):
		return unanswered
	case redis.IsOOMError(err), redis.IsReadOnlyError(err), redis.HasErrorPrefix(err, "MISCONF"), redis.HasErrorPrefix(err, "NOREPLICAS"):
		return noWrites
	}
	return noRights
}

// failure returns the last failure during an outage, and when the outage began; else nil.
func (h *health) failure() (since time.Time, err error) {
	if !h.down.Load() {
		return time.Time{}, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		return time.Time{}, nil
	}
	return h.at, h.last
}
