package callbacks

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

const (
	// failures in a row are logged; 5xx for as many callbacks open a receiver's breaker.
	failures = 3
	// logEvery is the least time between two lines.
	logEvery = time.Minute
)

// health is whether a receiver fails, as seen by this worker, and what was logged of it.
type health struct {
	mu     sync.Mutex
	failed int       // calls in a row
	since  time.Time // of the first of them
	logged time.Time // the last line about it
	open   bool      // its beginning was logged, its end not yet
	reason string    // as it was logged
	errors []string  // callbacks that were answered with 5xx in a row, failures at most
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

func (s *health) note(ctx context.Context, log *slog.Logger, destination string, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		if s.open {
			log.InfoContext(ctx, "a receiver takes callbacks again", "destination", destination, "since", s.since.UTC())
		}
		s.failed, s.open = 0, false
		return
	}
	if s.failed == 0 {
		s.since = now
	}
	s.failed++
	if s.failed < failures || s.open && s.reason == err.Error() || now.Sub(s.logged) < logEvery {
		return
	}
	s.open, s.logged, s.reason = true, now, err.Error()
	if fail, ok := errors.AsType[*jobs.FailError](err); ok && fail.Permanent {
		log.WarnContext(ctx, "a receiver refuses callbacks for good; they fail, and can be retried", "destination", destination, "why", err, "since", s.since.UTC())
		return
	}
	log.WarnContext(ctx, "a receiver takes no callbacks; they wait and are tried again",
		"destination", destination, "why", err, "since", s.since.UTC(), "breaker", Destination+"/"+destination)
}
