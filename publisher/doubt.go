package publisher

import (
	"log/slog"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// The kinds of doubtful responses.
const (
	// DoubtError is a 2xx whose body looks like an error: its job completed.
	DoubtError = "error"
	// DoubtLimit is a 4xx whose body names a rate limit: its job fails, or is retried.
	DoubtLimit = "limit"
)

func kindOf(d progress.Doubt) string {
	if d.Limit {
		return DoubtLimit
	}
	return DoubtError
}

// doubts counts the doubtful responses of a destination.
type doubts struct {
	log     *slog.Logger
	changed func() // called at the first one of a kind; must not block
	logged  outage.Limiter

	mu   sync.Mutex
	seen map[string]*seenDoubt // by kind
}

type seenDoubt struct {
	count int
	last  time.Time
	doubt progress.Doubt
}

// add counts a doubtful response, and logs the first one of its kind within a minute.
func (s *doubts) add(d progress.Doubt, event *JobEvent, status int, now time.Time) {
	kind := kindOf(d)
	s.mu.Lock()
	seen := s.seen[kind]
	if seen == nil || now.Sub(seen.last) >= doubtFor {
		seen = &seenDoubt{}
		s.seen[kind] = seen
	}
	seen.count++
	seen.last, seen.doubt = now, d
	count := seen.count
	s.mu.Unlock()
	if count == 1 {
		s.changed()
	}
	if !s.logged.Allow(kind) {
		return
	}
	log := s.log.With("job", event.Job.ID, "result", event.Result, "status", status, "sign", d.Sign, "rule", d.Rule, "responses", count)
	if d.Limit {
		log.Warn("a response names a rate limit that no answer rule reads; one would hold such jobs until the limit ends")
		return
	}
	log.Warn("a response of 2xx looks like an error, and its job completed; an answer rule would fail such jobs")
}

// doubtFor is how long a doubt is shown after its last response.
const doubtFor = time.Hour

// latest are the doubts of the last hour, as the worker's record has them. age is how long ago the last
// response was.
func (s *doubts) latest(now time.Time, at int64) []store.Doubt {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Doubt
	for _, kind := range []string{DoubtError, DoubtLimit} {
		if seen := s.seen[kind]; seen != nil && now.Sub(seen.last) < doubtFor {
			out = append(out, store.Doubt{Kind: kind, Count: seen.count, At: at - now.Sub(seen.last).Milliseconds(), Sign: seen.doubt.Sign, Rule: seen.doubt.Rule})
		}
	}
	return out
}
