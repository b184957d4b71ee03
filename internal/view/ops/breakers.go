package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

// ErrName is wrapped by the error of a name that no breaker has.
var ErrName = errors.New("is not the name of a breaker")

// KnownBreaker parses the name of a breaker: a destination, or destination/key. The error wraps ErrName, or is a
// *jobs.UnknownDestinationError.
func (s *System) KnownBreaker(ctx context.Context, name string) (destination, key string, err error) {
	if destination, key, err = breaker.ParseName(name); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrName, err)
	}
	return destination, key, cmp.Or(mayWhole(ctx, destination), s.Known(ctx, destination))
}

// Breaker is a breaker, and the jobs that its API refused alone: nil without any, and for the breaker of a key.
type Breaker = explain.Breaker

// Breaker reads a breaker.
func (s *System) Breaker(ctx context.Context, name string) (Breaker, error) {
	return explain.ReadBreaker(ctx, s.rdb, s.client, name)
}

// ErrCursor is the error of a cursor that no page has returned.
var ErrCursor = explain.ErrInvalidCursor

// Breakers returns a page of the breakers of a destination, or of all known ones for "". See
// [explain.PageOfBreakers].
func (s *System) Breakers(ctx context.Context, destination, cursor string, limit int) (page Page[breaker.Status], err error) {
	all, err := s.breakersOf(ctx, destination)
	if err != nil {
		return page, err
	}
	page.Items, page.Next, err = explain.PageOfBreakers(all, cursor, limit, time.Now())
	return page, err
}

func (s *System) breakersOf(ctx context.Context, destination string) ([]breaker.Status, error) {
	read := func(ctx context.Context, names ...string) ([]breaker.Status, error) {
		found, err := s.AllBreakers(ctx, names...)
		return slices.Concat(found...), err
	}
	if destination != "" {
		if err := cmp.Or(mayWhole(ctx, destination), s.Known(ctx, destination)); err != nil {
			return nil, err
		}
		return read(ctx, destination)
	}
	all, err := readAll(ctx, s.cache, "breakers", func(ctx context.Context) ([]breaker.Status, error) {
		names, err := s.Names(ctx)
		if err != nil {
			return nil, err
		}
		return read(ctx, names...)
	})
	return ofCaller(ctx, all, func(b breaker.Status) string { name, _, _ := strings.Cut(b.Name, "/"); return name }), err
}

// AllBreakers returns the breakers of destinations: for each, its own breaker and then the breakers of its keys.
func (s *System) AllBreakers(ctx context.Context, destinations ...string) ([][]breaker.Status, error) {
	read, err := s.breakers().Read(ctx, s.rdb, breaker.Query{Keys: true}, destinations...)
	out := make([][]breaker.Status, len(read))
	for i := range read {
		out[i] = read[i].Breakers()
	}
	return out, err
}

// Incidents returns the last incidents of a breaker, the oldest first; limit 0: all that are kept.
func (s *System) Incidents(ctx context.Context, name string, limit int) (List[breaker.Incident], error) {
	r, err := s.breakers().ReadOne(ctx, s.rdb, breaker.Query{Incidents: cmp.Or(limit, breaker.All)}, name)
	return listOf(r.Incidents, err)
}

// Transitions returns the last transitions of a breaker, the oldest first; limit 0: all that are kept.
func (s *System) Transitions(ctx context.Context, name string, limit int) (List[breaker.Event], error) {
	r, err := s.breakers().ReadOne(ctx, s.rdb, breaker.Query{History: cmp.Or(limit, breaker.All)}, name)
	return listOf(r.History, err)
}

// KeyTransitions reads the last limit transitions of a destination and its keys, and returns the keys', the latest first:
// also of keys whose breakers are CLOSED again. Redis keeps 1,000.
func (s *System) KeyTransitions(ctx context.Context, destination string, limit int) ([]breaker.Event, error) {
	all, _, _, err := s.breakers().ReadTransitions(ctx, s.rdb, destination, 0, limit)
	slices.Reverse(all)
	return slices.DeleteFunc(all, func(e breaker.Event) bool { return e.Key == "" }), err
}

// BreakerAct is what an operator does to a breaker.
type BreakerAct string

// The acts on breakers.
const (
	Trip  BreakerAct = "trip"  // no call is made
	Force BreakerAct = "force" // calls go out whatever the API sends
	Reset BreakerAct = "reset" // it is closed, and neither tripped nor forced any more
)

// ActOnBreaker does an act to a breaker, a trip or force for a time or, for 0, until it is reset. It returns the
// breaker after that.
func (s *System) ActOnBreaker(ctx context.Context, act BreakerAct, name string, length time.Duration, why Why) (b breaker.Status, err error) {
	span := slog.String("for", "until it is reset")
	if length > 0 {
		span = slog.String("for", "for "+explain.Duration(length))
	}
	attrs := []slog.Attr{span}
	//exhaustive:enforce
	switch act {
	case Trip:
		b, err = s.breakers().Trip(ctx, s.rdb, name, breaker.TripOptions{For: length, Reason: why.Reason, By: why.By})
	case Force:
		attrs = []slog.Attr{slog.String("state", "closed"), span}
		b, err = s.breakers().ForceClosed(ctx, s.rdb, name, breaker.TripOptions{For: length, Reason: why.Reason, By: why.By})
	case Reset:
		attrs = nil
		b, err = s.breakers().Reset(ctx, s.rdb, name, why.By)
	}
	s.acted(ctx, string(act)+" breaker", name, err, why, attrs...)
	return b, err
}

// NeedIt counts the jobs that wait for a breaker, and the jobs that expire within soon. expiring is -1, not known,
// for the breaker of a key.
func (s *System) NeedIt(ctx context.Context, destination, key string, soon time.Duration) (waiting, expiring int, err error) {
	if key != "" {
		waiting, err = s.client.HeldCount(ctx, destination, key)
		return waiting, -1, err
	}
	survey, err := s.client.Survey(ctx, destination, soon)
	return survey.Counts[jobs.Pending] + survey.Counts[jobs.RetryPending], survey.Expiring, err
}
