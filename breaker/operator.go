package breaker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// maxReason is how long an operator's reason may be, in characters.
const maxReason = 500

// TripOptions say how an operator opens a breaker.
type TripOptions struct {
	// For is how long it stays OPEN, in whole milliseconds; then it is probed
	// as after any cooldown. 0: until it is reset.
	For time.Duration
	// Reason is shown to everybody who asks why; at most 500 characters.
	Reason string
	// By is who trips it. "" means host:pid of this process.
	By string
}

// Get reads the breaker of a destination. A breaker that nobody has used is
// CLOSED. The error is of an invalid name, or wraps [ErrUnavailable].
func Get(ctx context.Context, rdb redis.UniversalClient, destination string) (Status, error) {
	return operate(ctx, rdb, destination, statusScript, caller{})
}

// Trip opens the breaker of a destination for all instances, whatever state it
// is in. Later hints do not shorten that. An OPEN breaker's incident goes on
// under the same id.
func Trip(ctx context.Context, rdb redis.UniversalClient, destination string, o TripOptions) (Status, error) {
	var errs []error
	if o.For < 0 {
		errs = append(errs, fmt.Errorf("the time is %v: want more than 0, or 0 for \"until it is reset\"", o.For))
	}
	if n := utf8.RuneCountInString(o.Reason); n > maxReason {
		errs = append(errs, fmt.Errorf("the reason has %d characters: want at most %d", n, maxReason))
	}
	if err := errors.Join(errs...); err != nil {
		return Status{}, fmt.Errorf("breaker: trip %s: %w", destination, err)
	}
	return operate(ctx, rdb, destination, tripScript, caller{who: o.By}, millis(o.For), strings.ToValidUTF8(o.Reason, "\uFFFD"))
}

// Reset closes the breaker of a destination for all instances, whatever state
// it is in, and forgets its failures. by is who resets it; "" means host:pid of
// this process.
func Reset(ctx context.Context, rdb redis.UniversalClient, destination, by string) (Status, error) {
	return operate(ctx, rdb, destination, resetScript, caller{who: by})
}

// History returns the last limit transitions of the breaker of a destination,
// oldest first; all that are kept (1,000) if limit is not above 0.
func History(ctx context.Context, rdb redis.UniversalClient, destination string, limit int) ([]Event, error) {
	if err := validDestination(destination); err != nil {
		return nil, fmt.Errorf("breaker: history: %w", err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	last := int64(-1)
	if limit > 0 {
		last = int64(limit) - 1
	}
	history, err := readHistory(ctx, rdb, placeOf(destination), 0, last)
	if err != nil {
		return nil, err
	}
	events := make([]Event, len(history))
	for i := range history {
		events[i] = history[i].event()
	}
	slices.Reverse(events)
	return events, nil
}

// operate runs a script for somebody who needs no Breaker.
func operate(ctx context.Context, rdb redis.UniversalClient, destination string, s *script, c caller, own ...any) (Status, error) {
	if err := validDestination(destination); err != nil {
		return Status{}, fmt.Errorf("breaker: %s: %w", s.operation, err)
	}
	if c.who == "" {
		c.who = processName()
	}
	c.who = strings.ToValidUTF8(c.who, "\uFFFD")
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := s.run(ctx, rdb, placeOf(destination), c, own...)
	if err != nil {
		return Status{}, unavailable(s.operation, destination, err)
	}
	return r.status(time.Now()), nil
}
