package callbacks

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// failures in a row are logged; 5xx for as many callbacks open a receiver's breaker.
	failures = 3
	// logEvery is the time between two lines about a receiver that goes on failing.
	logEvery = 10 * time.Minute
)

// health is whether a receiver fails, as seen by this worker.
type health struct {
	log outage.Log

	mu     sync.Mutex
	errors []string // callbacks that were answered with 5xx in a row, failures at most
}

// failing records whether a callback was answered with 5xx, and reports whether enough
// different ones in a row were for the receiver, not the callback, to be at fault.
func (s *health) failing(id string, is5xx bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !is5xx:
		s.errors = nil
	case len(s.errors) < failures && !slices.Contains(s.errors, id):
		s.errors = append(s.errors, id)
	}
	return len(s.errors) == failures
}

// note logs a receiver that fails again and again, and one that works again.
func (s *health) note(ctx context.Context, log *slog.Logger, destination string, err error, now time.Time) {
	if err == nil {
		if since, over := s.log.Worked(); over {
			log.InfoContext(ctx, "a receiver takes callbacks again", "destination", destination, "since", since.UTC())
		}
		return
	}
	since, write := s.log.Failed(now)
	if !write {
		return
	}
	about := []any{"destination", destination, "why", err, "since", since.UTC()}
	if fail, ok := errors.AsType[*jobs.FailError](err); ok && fail.Permanent {
		log.WarnContext(ctx, "a receiver refuses callbacks for good; they fail, and can be retried", about...)
		return
	}
	log.WarnContext(ctx, "a receiver takes no callbacks; they wait and are tried again", append(about, "breaker", Destination+"/"+destination)...)
}
