package asynqx

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// health logs the loss of Redis once and its return once, however many calls
// fail in between.
type health struct {
	log  *slog.Logger
	down atomic.Bool
	mu   sync.Mutex
	at   time.Time
	last error
}

func (h *health) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = err
	if h.down.Load() {
		return
	}
	h.down.Store(true)
	h.at = time.Now()
	if _, refused := errors.AsType[redis.Error](err); refused {
		h.log.Error("redis refuses what a worker needs; work in hand goes on, nothing new is fetched until it does it again", "error", err)
		return
	}
	h.log.Error("redis does not answer; work in hand goes on, nothing new is fetched until it is back", "error", err)
}

func (h *health) worked() {
	if !h.down.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down.CompareAndSwap(true, false) {
		h.last = nil
		h.log.Info("redis answers again", "after", time.Since(h.at).Round(time.Millisecond).String())
	}
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
