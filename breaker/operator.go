package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// maxReason is how long an operator's reason may be, in characters.
const maxReason = 500

// TripOptions say how an operator opens a breaker ([Namespace.Trip]) or keeps it CLOSED ([Namespace.ForceClosed]).
type TripOptions struct {
	// For is how long it stays so, in whole milliseconds; then an OPEN one is probed
	// as after any cooldown. 0: until it is reset.
	For time.Duration
	// Reason is shown with the breaker; at most 500 characters.
	Reason string
	// By is the operator's name. "" means host:pid of this process.
	By string
}

// Forget deletes what Redis has of a destination's breaker: its record, history, incidents and limits. What it
// has of keys ends by itself. No process may use the breaker any more. Errors: Redis's, and
// [ErrClient].
func (n Namespace) Forget(ctx context.Context, rdb redis.UniversalClient, destination string) error {
	if err := validClient(rdb); err != nil {
		return fmt.Errorf("breaker: forget %s: %w", destination, err)
	}
	if err := rdb.Del(ctx, n.placeOf(destination, "").keys...).Err(); err != nil {
		return fmt.Errorf("breaker: forget %s: %w", destination, err)
	}
	return nil
}

// Trip opens a breaker ("destination" or "destination/key") for all instances,
// whatever state it is in. Later hints do not shorten that. An OPEN breaker's
// incident goes on under the same id. A tripped destination holds all of its keys.
func (n Namespace) Trip(ctx context.Context, rdb redis.UniversalClient, name string, o TripOptions) (Status, error) {
	if err := validByHand(o.For, o.Reason); err != nil {
		return Status{}, fmt.Errorf("breaker: trip %s: %w", name, err)
	}
	return n.change(ctx, rdb, name, "trip", caller{who: o.By}, policy.Event{Kind: policy.Tripped, Length: millis(o.For), Reason: o.Reason})
}

// ForceClosed closes a breaker for all instances and keeps it CLOSED whatever the
// API answers, for a time or until it is reset or tripped.
func (n Namespace) ForceClosed(ctx context.Context, rdb redis.UniversalClient, name string, o TripOptions) (Status, error) {
	if err := validByHand(o.For, o.Reason); err != nil {
		return Status{}, fmt.Errorf("breaker: force %s: %w", name, err)
	}
	return n.change(ctx, rdb, name, "force", caller{who: o.By}, policy.Event{Kind: policy.Forcing, Length: millis(o.For), Reason: o.Reason})
}

func validByHand(length time.Duration, reason string) error {
	var errs []error
	if length < 0 {
		errs = append(errs, fmt.Errorf("the time is %v: want more than 0, or 0 for \"until it is reset\"", length))
	}
	if n := utf8.RuneCountInString(reason); n > maxReason {
		errs = append(errs, fmt.Errorf("the reason has %d characters: want at most %d", n, maxReason))
	}
	return errors.Join(errs...)
}

// Reset closes a breaker for all instances, whatever state it is in, and clears its failures,
// an operator's trip or force, and the growth of its cooldown. Calls start slowly after an
// incident; a second Reset ends that. by is the operator's name; "" means host:pid of this
// process.
func (n Namespace) Reset(ctx context.Context, rdb redis.UniversalClient, name, by string) (Status, error) {
	return n.change(ctx, rdb, name, "reset", caller{who: by}, policy.Event{Kind: policy.Reset})
}

// CredentialsRenewed is [Breaker.CredentialsRenewed] of a breaker by its name, from a process that has no
// Breaker. by is as in [Namespace.Reset].
func (n Namespace) CredentialsRenewed(ctx context.Context, rdb redis.UniversalClient, name, by string) (Status, error) {
	return n.change(ctx, rdb, name, "renewed", caller{who: by}, policy.Event{Kind: policy.Renewed})
}

// LastTransitions returns the generation of the last transition of each destination's breakers,
// 0 if there was none, in one round trip: what [Namespace.ReadTransitions] reads after it is new. errs[i] is of
// destinations[i], and wraps [ErrUnavailable].
func (n Namespace) LastTransitions(ctx context.Context, rdb redis.UniversalClient, destinations []string) (last []uint64, errs []error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	last, errs = make([]uint64, len(destinations)), make([]error, len(destinations))
	if err := validClient(rdb); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return last, errs
	}
	cmds, _ := redispipe.Each(ctx, rdb, destinations, func(pipe redis.Pipeliner, d string) *redis.StringCmd { // each command has its own error
		return pipe.HGet(ctx, n.placeOf(d, "").keys[1], ":transition")
	})
	for i, cmd := range cmds {
		newest, err := cmd.Uint64()
		if err != nil && !errors.Is(err, redis.Nil) {
			errs[i] = unavailable("read transitions of", destinations[i], err) //nolint:gosec // a command for each
		}
		last[i] = newest
	}
	return last, errs
}

// ReadTransitions returns the transitions of the breakers of a destination and of its keys after a
// generation, oldest first: the last limit ones, of 1,000 that are kept; and the generation to read on
// from. missed says that there were more, which were not read or are not kept any more, or that Redis has
// lost some. It costs one command if there are none. The error is of an invalid name or limit, or wraps
// [ErrUnavailable].
func (n Namespace) ReadTransitions(ctx context.Context, rdb redis.UniversalClient, destination string, after uint64, limit int) (events []Event, last uint64, missed bool, err error) {
	if err := errors.Join(validDestination(destination), n.Validate(), validClient(rdb)); err != nil {
		return nil, 0, false, fmt.Errorf("breaker: transitions: %w", err)
	}
	if limit < 1 {
		return nil, 0, false, fmt.Errorf("breaker: transitions of %s: the limit is %d: want at least 1", destination, limit)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	p := n.placeOf(destination, "")
	newest, err := rdb.HGet(ctx, p.keys[1], ":transition").Uint64()
	switch {
	case errors.Is(err, redis.Nil) || err == nil && newest == after:
		return nil, after, false, nil
	case err != nil:
		return nil, 0, false, unavailable("read transitions of", destination, err)
	case newest < after: // Redis has lost the last ones
		return nil, newest, true, nil
	}
	found, err := readAfter(ctx, rdb, p, after, int64(limit))
	if err != nil {
		return nil, 0, false, err
	}
	missed, last = len(found) == 0 || found[0].Previous != after, after
	for i := range found {
		if found[i].Generation > last {
			events = append(events, found[i].event())
			last = found[i].Generation
		}
	}
	return events, max(last, newest), missed, nil
}

// change applies what an operator does, and returns the status after it.
func (n Namespace) change(ctx context.Context, rdb redis.UniversalClient, name, operation string, c caller, e policy.Event) (Status, error) {
	d, p, err := n.decide(ctx, rdb, name, operation, c, e)
	if err != nil {
		return Status{}, err
	}
	return d.reply.of(p.key).statusAt(d.reply.now, time.Now()), nil
}

// decide is change, and returns the decision.
func (n Namespace) decide(ctx context.Context, rdb redis.UniversalClient, name, operation string, c caller, e policy.Event) (decision, place, error) {
	p, err := n.operated(rdb, name, &c)
	if err != nil {
		return decision{}, place{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	e.Reason = strings.ToValidUTF8(e.Reason, "\uFFFD")
	d := decision{key: p.key, options: c.options(false, false), parse: parseRecord, ask: func(s *script, own []any) (reply, error) { return s.run(ctx, rdb, p, c, own...) }}
	d.add(&happened{Event: e})
	if err := d.make(ctx); err != nil {
		return decision{}, place{}, unavailable(operation, name, err)
	}
	return d, p, nil
}

// operated is the place of a breaker that an operator names.
func (n Namespace) operated(rdb redis.UniversalClient, name string, c *caller) (place, error) {
	p, err := n.parse(name)
	if err == nil {
		err = validClient(rdb)
	}
	c.who = cmp.Or(c.who, ProcessName())
	c.who = strings.ToValidUTF8(c.who, "\uFFFD")
	return p, err
}

// statusOfReply is what statusScript replied.
func statusOfReply(r *reply, p place) Status {
	s := r.of(p.key).statusAt(r.now, time.Now())
	s.Rate = rateStatus(parseWindows(r.more), r.now)
	return s
}
