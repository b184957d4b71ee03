package asynqx

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// health logs the loss of Redis once and its return once, however many calls
// fail in between.
type health struct {
	log  *slog.Logger
	down atomic.Bool
	mu   sync.Mutex
	at   time.Time
}

func (h *health) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down.Load() {
		return
	}
	h.down.Store(true)
	h.at = time.Now()
	h.log.Error("redis does not answer; work in hand goes on, nothing new is fetched until it is back", "error", err)
}

func (h *health) worked() {
	if !h.down.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down.CompareAndSwap(true, false) {
		h.log.Info("redis answers again", "after", time.Since(h.at).Round(time.Millisecond).String())
	}
}
