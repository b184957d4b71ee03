package publisher

import (
	"log/slog"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/base/text"
)

// Bounds of the log of failed jobs: failuresLogged lines in each failureWindow, with at most
// failureText bytes of an error.
const (
	failuresLogged = 10
	failureWindow  = time.Minute
	failureText    = 200
)

// failureLog logs the failed jobs of one destination: a line each up to failuresLogged, then
// the number of others in the window.
type failureLog struct {
	log *slog.Logger

	mu         sync.Mutex
	window     *time.Timer // nil outside a window
	logged     int         // in this window
	suppressed int
	stopped    bool
}

// add logs or counts a failed job. The problem must hold no payload and no secret.
func (f *failureLog) add(id, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.window == nil && !f.stopped {
		f.window = time.AfterFunc(failureWindow, f.endWindow)
	}
	if f.logged == failuresLogged {
		f.suppressed++
		return
	}
	f.logged++
	f.log.Warn("job failed", "job", id, "error", text.Head(problem, failureText))
}

func (f *failureLog) endWindow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.suppressed > 0 {
		f.log.Warn("more jobs failed within a minute", "jobs", f.suppressed)
	}
	f.window, f.logged, f.suppressed = nil, 0, 0
}

// stop ends the window; a later failure begins a new one.
func (f *failureLog) stop() {
	f.mu.Lock()
	f.stopped = true
	if f.window != nil {
		f.window.Stop()
	}
	f.mu.Unlock()
	f.endWindow()
}
