package publisher

import (
	"log/slog"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/text"
)

// Bounds of what is logged of failed jobs: failuresLogged lines in each failureWindow,
// with at most failureText bytes of an error.
const (
	failuresLogged = 10
	failureWindow  = time.Minute
	failureText    = 200
)

// failureLog logs the failed jobs of one destination: a line for each, then for each
// window how many more there were.
type failureLog struct {
	log *slog.Logger

	mu      sync.Mutex
	window  *time.Timer // nil while no window lasts
	logged  int         // in this window
	unsaid  int
	stopped bool
}

// add logs or counts a failed job. The problem must hold no payload and no secret.
func (f *failureLog) add(id, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.window == nil && !f.stopped {
		f.window = time.AfterFunc(failureWindow, f.endWindow)
	}
	if f.logged == failuresLogged {
		f.unsaid++
		return
	}
	f.logged++
	f.log.Warn("job failed", "job", id, "error", text.Head(problem, failureText))
}

func (f *failureLog) endWindow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unsaid > 0 {
		f.log.Warn("more jobs failed within a minute", "jobs", f.unsaid)
	}
	f.window, f.logged, f.unsaid = nil, 0, 0
}

// stop ends the window. What fails after that is logged up to the bound.
func (f *failureLog) stop() {
	f.mu.Lock()
	f.stopped = true
	if f.window != nil {
		f.window.Stop()
	}
	f.mu.Unlock()
	f.endWindow()
}
