package alerts

import (
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// keysCase is what the one message about all keys of a destination is about.
type keysCase struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	// Ended is since when no key is limited; zero while one is.
	Ended time.Time `json:"ended,omitzero"`
	// Open counts the keys that are limited now, Most those that were at once.
	Open int  `json:"open"`
	Most int  `json:"most"`
	Told bool `json:"told,omitempty"`
}

func (c *keysCase) over(now time.Time) bool {
	return !c.Ended.IsZero() && !now.Before(c.Ended.Add(keysQuiet))
}

// keysSubject is what is known of the keys of a destination.
type keysSubject struct {
	Case *keysCase `json:"case,omitempty"`
}

// merge brings it up to date with the keys that are not CLOSED. heard is when a key has
// opened, which may be over by now; zero if that is not what is new.
func (s *keysSubject) merge(open []breaker.Status, heard, now time.Time) bool {
	c := s.Case
	fresh := c == nil || c.Told && c.over(now)
	if fresh {
		if len(open) == 0 && (heard.IsZero() || c != nil && !heard.After(c.Ended.Add(keysQuiet))) {
			return false // it was told of with the last case
		}
		c = &keysCase{ID: "keys-" + timeID(now), Since: now}
		if first := firstOf(open); !first.IsZero() {
			c.Since = first
		}
		s.Case = c
	}
	was := *c
	c.Open, c.Most = len(open), max(c.Most, len(open))
	switch {
	case len(open) > 0:
		c.Ended, c.Told = time.Time{}, false
	case c.Ended.IsZero():
		c.Ended = now
	}
	return fresh || was != *c
}

// firstOf is when the first of the keys opened.
func firstOf(open []breaker.Status) time.Time {
	if len(open) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(open, func(a, b breaker.Status) int { return a.OpenedAt.Compare(b.OpenedAt) }).OpenedAt
}

// timeID makes a part of an id of a time.
func timeID(t time.Time) string { return t.UTC().Format("20060102T150405.000") }
