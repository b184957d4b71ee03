package ops

import (
	"context"
	"strings"
	"time"
)

// TopError are attempts of a destination that ended with the same error.
type TopError struct {
	Count int       `json:"count" doc:"How many attempts ended with it." example:"812"`
	Error string    `json:"error" doc:"The text, with # in place of ids and numbers; empty: all texts beyond the 50 most frequent of an hour." example:"answered 422: item # does not exist"`
	Match string    `json:"match" doc:"A part of the text that all of them have, for the filter error of lists and actions; empty: none." example:"does not exist"`
	At    time.Time `json:"last_at" doc:"When the last one ended." example:"2030-01-31T14:35:00Z"`
	Job   string    `json:"last_job" doc:"The last job that it happened to." example:"post-7"`
}

// DefaultErrors is the time whose errors are shown.
const DefaultErrors = 24 * time.Hour

// shortestMatch is the length from which on a part of a text tells errors apart.
const shortestMatch = 4

// TopErrors returns the errors that attempts of a destination ended with from the hour of an instant on, the most
// frequent first; 25 hours are kept. A zero since is DefaultErrors ago. An unknown destination is a
// *jobs.UnknownDestinationError.
func (s *System) TopErrors(ctx context.Context, destination string, since time.Time) (List[TopError], error) {
	if err := s.Known(ctx, destination); err != nil {
		return List[TopError]{}, err
	}
	now := time.Now()
	if since.IsZero() {
		since = now.Add(-DefaultErrors)
	}
	found, err := s.namespace().TopErrors(ctx, s.rdb, destination, since, now)
	items := make([]TopError, len(found))
	for i, e := range found {
		items[i] = TopError{Count: e.Count, Error: e.Text, Match: longestPart(e.Text), At: e.At, Job: e.Job}
	}
	return listOf(items, err)
}

// longestPart is the longest part of a text without what stands for ids and numbers.
func longestPart(text string) (longest string) {
	for part := range strings.SplitSeq(text, "#") {
		if part = strings.TrimSpace(part); len(part) > len(longest) {
			longest = part
		}
	}
	if len(longest) < shortestMatch {
		return ""
	}
	return longest
}
