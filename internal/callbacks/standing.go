package callbacks

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// refusals in a row are logged; 5xx for as many callbacks hold a receiver.
	refusals = 3
	// tellEvery is how often at most that is.
	tellEvery = time.Minute
)

// standing is what this worker has last seen of a receiver: whether it fails, and what
// was logged of that.
type standing struct {
	mu      sync.Mutex
	refused int       // calls in a row
	since   time.Time // of the first of them
	told    time.Time // when that was logged last
	open    bool      // it was logged, and not yet that it is over
	why     string    // as it was logged
	errors  []string  // callbacks that were answered with 5xx in a row, refusals at most
}

// failing notes whether a callback was answered with 5xx, and reports whether so many
// different ones were in a row that the receiver fails and not the callback.
func (s *standing) failing(id string, is5xx bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !is5xx:
		s.errors = nil
	case len(s.errors) < refusals && !slices.Contains(s.errors, id):
		s.errors = append(s.errors, id)
	}
	return len(s.errors) == refusals
}

func (s *standing) note(ctx context.Context, log *slog.Logger, destination string, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		if s.open {
			log.InfoContext(ctx, "a receiver takes callbacks again", "destination", destination, "since", s.since.UTC())
		}
		s.refused, s.open = 0, false
		return
	}
	if s.refused == 0 {
		s.since = now
	}
	s.refused++
	if s.refused < refusals || s.open && s.why == err.Error() || now.Sub(s.told) < tellEvery {
		return
	}
	s.open, s.told, s.why = true, now, err.Error()
	log.WarnContext(ctx, "a receiver takes no callbacks; they wait and are tried again",
		"destination", destination, "why", err, "since", s.since.UTC(), "breaker", Destination+"/"+destination)
}
