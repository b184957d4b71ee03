package ops

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// ErrorCount are attempts of a destination that ended with the same error.
type ErrorCount = store.ErrorCount

// TopErrors returns the errors that attempts of a destination ended with from the hour of an instant on, the most
// frequent first; 25 hours are kept, and a zero since is all of them. An unknown destination is a
// *jobs.UnknownDestinationError.
func (s *System) TopErrors(ctx context.Context, destination string, since time.Time) (List[ErrorCount], error) {
	if err := cmp.Or(mayWhole(ctx, destination), s.Known(ctx, destination)); err != nil {
		return List[ErrorCount]{}, err
	}
	return listOf(s.namespace().TopErrors(ctx, s.rdb, destination, since, time.Now()))
}

// KeyBacklog is the backlog of a destination by key.
type KeyBacklog store.KeyBacklog

// Keys counts the waiting jobs of a destination by key, in a bounded time. An unknown destination is a
// *jobs.UnknownDestinationError.
func (s *System) Keys(ctx context.Context, destination string) (KeyBacklog, error) {
	if err := cmp.Or(mayWhole(ctx, destination), s.Known(ctx, destination)); err != nil {
		return KeyBacklog{}, err
	}
	b, err := s.namespace().Keys(ctx, s.rdb, destination)
	return KeyBacklog(b), err
}

// Note says how exact the counts are; "" if they are.
func (b KeyBacklog) Note() string {
	if !b.Sampled || b.Of == 0 {
		return ""
	}
	return fmt.Sprintf("Jobs in the queue are estimated: %d of %d were read. Held jobs are counted exactly.", b.Read, b.Of)
}
