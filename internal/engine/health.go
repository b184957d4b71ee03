package engine

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/outage"
)

// settledOnCluster is longer than the beat of a queue, which fails meanwhile if the
// queue's node is gone.
const settledOnCluster = 2 * time.Second

// health logs the loss of Redis once and its return once, however many calls
// fail in between.
type health struct {
	log *slog.Logger
	// settled is how long nothing may have failed before Redis counts as back. On
	// a Cluster queues lie on different nodes: while one of those is gone, some of
	// the work fails and some succeeds.
	settled time.Duration

	// closed is called where the caller may have closed the client.
	closed func()

	down     atomic.Bool
	moved    outage.Log // of moving slots
	mu       sync.Mutex
	at       time.Time // of the first failure
	failedAt time.Time // of the latest one
	last     error
	// refused is what kind of refusal the latest failure was.
	refused atomic.Int32
}

// The kinds of refusals.
const (
	unanswered int32 = iota // none: any answer shows that Redis is back
	noWrites                // any write that Redis takes shows it
	noRights                // only doing what it refused shows it
)

func (h *health) failed(err error) {
	if errors.Is(err, redis.ErrClosed) && h.closed != nil {
		h.closed()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settled > 0 && slotMoves(err) {
		// Not an outage: the queue waits, and nothing of it is half done.
		if _, log := h.moved.Failed(time.Now()); log {
			h.log.Info("the slot of a queue moves to another node; its jobs wait until it has", "error", err)
		}
		return
	}
	h.last, h.failedAt = err, time.Now()
	h.refused.Store(refusalOf(err))
	if h.down.Load() {
		return
	}
	h.down.Store(true)
	h.at = h.failedAt
	if noSocket(err) {
		h.log.Error("this worker cannot connect to redis: it has no file descriptor or local port left; raise its limit (ulimit -n), or lower its concurrency; work in hand goes on", "error", err)
		return
	}
	if h.refused.Load() != unanswered && !redis.IsReadOnlyError(err) {
		h.log.Error("redis refuses what a worker needs; work in hand goes on, nothing new is fetched until it does it again", "error", err)
		return
	}
	h.log.Error("redis does not answer; work in hand goes on, nothing new is fetched until it is back", "error", err)
}

// slotMoves reports whether a node of a Cluster refuses because it has only a part of a
// slot, or none of it any more. The client follows a few redirections by itself.
func slotMoves(err error) bool {
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask || redis.IsTryAgainError(err)
}

func (h *health) worked() {
	if !h.down.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.failedAt) >= h.settled && h.down.CompareAndSwap(true, false) {
		h.last = nil
		h.log.Info("redis answers again", "after", time.Since(h.at).Round(time.Millisecond).String())
	}
}

// noSocket reports whether the fault is this process's or its machine's, and not Redis's:
// no file descriptor or no local port is left.
func noSocket(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// answered says that Redis has answered to something: enough for one that did not
// answer, and not for one that refused something else.
func (h *health) answered() {
	if h.down.Load() && h.refused.Load() == unanswered {
		h.worked()
	}
}

// ran says that Redis has run a script, which may have written nothing.
func (h *health) ran() {
	if h.down.Load() && h.refused.Load() != noWrites {
		h.worked()
	}
}

// wrote says that Redis has taken something that is of no matter here: at a closed gate
// nothing else would show that it takes writes again.
func (h *health) wrote() {
	if h.down.Load() && h.refused.Load() != noRights {
		h.worked()
	}
}

// lives takes the result of a heartbeat, which is written every few seconds whether or not
// there is anything to do. A full Redis is no failure: jobs can be fetched from it.
func (h *health) lives(err error) {
	switch {
	case err == nil:
		h.wrote()
	case refusalOf(err) == noWrites && !redis.IsOOMError(err):
		h.failed(err)
	}
}

// refusalOf tells whether an error is Redis's answer to what was asked, and of which kind.
// One that serves nobody at the moment, while a new master is elected or a slot moves
// for instance, says so too, and is as good as gone.
func refusalOf(err error) int32 {
	_, said := errors.AsType[redis.Error](err)
	switch {
	case !said, redis.IsClusterDownError(err), redis.IsLoadingError(err), redis.IsMasterDownError(err),
		redis.IsTryAgainError(err):
		return unanswered
	case redis.IsOOMError(err), redis.IsReadOnlyError(err), redis.HasErrorPrefix(err, "MISCONF"), redis.HasErrorPrefix(err, "NOREPLICAS"):
		return noWrites
	}
	return noRights
}

// trouble is the last failure, nil if what came after it has worked.
func (h *health) trouble() (since time.Time, err error) {
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

// Heartbeat takes the result of a write that the worker makes every few seconds.
func (e *Engine) Heartbeat(err error) { e.health.lives(err) }
