package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// maxReason is how long an operator's reason may be, in characters.
const maxReason = 500

// TripOptions say how an operator opens a breaker ([Trip]) or keeps it CLOSED ([ForceClosed]).
type TripOptions struct {
	// For is how long it stays so, in whole milliseconds; then an OPEN one is probed
	// as after any cooldown. 0: until it is reset.
	For time.Duration
	// Reason is shown with the breaker; at most 500 characters.
	Reason string
	// By is the operator's name. "" means host:pid of this process.
	By string
}

// Get reads the breaker of a destination by its name, or of a key by "destination/key". A breaker that has not been
// used is CLOSED. The error says that the name is not valid, or wraps [ErrUnavailable].
func Get(ctx context.Context, rdb redis.UniversalClient, name string) (Status, error) {
	return DefaultNamespace.Get(ctx, rdb, name)
}

// Get is the function Get in n.
func (n Namespace) Get(ctx context.Context, rdb redis.UniversalClient, name string) (Status, error) {
	r, p, err := n.status(ctx, rdb, name, caller{})
	if err != nil {
		return Status{}, err
	}
	return statusOfReply(&r, p), nil
}

// List reads the breaker of a destination, followed by the breakers of its keys that are not plainly CLOSED, by name.
func List(ctx context.Context, rdb redis.UniversalClient, destination string) ([]Status, error) {
	return DefaultNamespace.List(ctx, rdb, destination)
}

// List is the function List in n.
func (n Namespace) List(ctx context.Context, rdb redis.UniversalClient, destination string) ([]Status, error) {
	first, err := n.Get(ctx, rdb, destination)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	p := n.placeOf(first.Name, "")
	var keys []Status
	for since := uint64(0); ; {
		s, err := p.snapshot(snapshotScript.Run(ctx, rdb, p.keys, p.args(caller{}, []any{since, "1", snapshotPage})...))
		if err != nil {
			return nil, err
		}
		keys = append(keys, s.openKeys(first.Name)...)
		if len(s.changes) < snapshotPage {
			break
		}
		since = s.changes[len(s.changes)-1].revision
	}
	return listed(first, keys), nil
}

// ListAll is List of several destinations, in as many round trips as of one.
func (n Namespace) ListAll(ctx context.Context, rdb redis.UniversalClient, destinations []string) ([][]Status, error) {
	places := make([]place, len(destinations))
	for i, d := range destinations {
		if err := errors.Join(validDestination(d), n.Validate()); err != nil {
			return nil, fmt.Errorf("breaker: list: %w", err)
		}
		places[i] = n.placeOf(d, "")
	}
	if err := validClient(rdb); err != nil {
		return nil, err
	}
	within, cancel := bounded(ctx)
	defer cancel()
	calls := make([]scriptCall, 0, 2*len(places))
	for _, p := range places {
		calls = append(calls, scriptCall{statusScript, p, nil}, scriptCall{snapshotScript, p, []any{uint64(0), "1", snapshotPage}})
	}
	replies := runAll(within, rdb, calls)
	out := make([][]Status, len(places))
	for i, p := range places {
		r, err := p.reply(replies[2*i])
		if err != nil {
			return nil, err
		}
		s, err := p.snapshot(replies[2*i+1])
		if err != nil {
			return nil, err
		}
		if len(s.changes) < snapshotPage {
			out[i] = listed(statusOfReply(&r, p), s.openKeys(p.name))
		} else if out[i], err = n.List(ctx, rdb, p.name); err != nil {
			return nil, err
		}
	}
	return out, nil
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

// reply is what most scripts replied to a list.
func (p place) reply(cmd *redis.Cmd) (reply, error) {
	text, err := cmd.Text()
	if err != nil {
		return reply{}, unavailable("list", p.name, err)
	}
	r, err := parseReply(text, parseRecord)
	if err == nil {
		err = r.settle()
	}
	if err != nil {
		return reply{}, fmt.Errorf("breaker: list %s: %w", p.name, err)
	}
	return r, nil
}

func (p place) snapshot(cmd *redis.Cmd) (snapshot, error) {
	values, err := cmd.StringSlice()
	if err != nil {
		return snapshot{}, unavailable("list", p.name, err)
	}
	s, err := parseSnapshot(values)
	if err != nil {
		return snapshot{}, fmt.Errorf("breaker: list %s: %w", p.name, err)
	}
	return s, nil
}

// openKeys are the breakers of keys that are not plainly CLOSED.
func (s *snapshot) openKeys(destination string) (keys []Status) {
	received := time.Now()
	for _, c := range s.changes {
		if c.name != destination && !c.record.plain() {
			keys = append(keys, c.record.statusAt(s.now, received))
		}
	}
	return keys
}

func listed(first Status, keys []Status) []Status {
	slices.SortFunc(keys, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	keys = slices.CompactFunc(keys, func(a, b Status) bool { return a.Name == b.Name }) // changed while it was read
	return append([]Status{first}, keys...)
}

// Trip opens a breaker ("destination" or "destination/key") for all instances,
// whatever state it is in. Later hints do not shorten that. An OPEN breaker's
// incident goes on under the same id. A tripped destination holds all of its keys.
func Trip(ctx context.Context, rdb redis.UniversalClient, name string, o TripOptions) (Status, error) {
	return DefaultNamespace.Trip(ctx, rdb, name, o)
}

// Trip is the function Trip in n.
func (n Namespace) Trip(ctx context.Context, rdb redis.UniversalClient, name string, o TripOptions) (Status, error) {
	if err := validByHand(o.For, o.Reason); err != nil {
		return Status{}, fmt.Errorf("breaker: trip %s: %w", name, err)
	}
	return n.change(ctx, rdb, name, "trip", caller{who: o.By}, policy.Event{Kind: policy.Tripped, Length: millis(o.For), Reason: o.Reason})
}

// ForceClosed closes a breaker for all instances and keeps it CLOSED whatever the
// API answers, for a time or until it is reset or tripped.
func ForceClosed(ctx context.Context, rdb redis.UniversalClient, name string, o TripOptions) (Status, error) {
	return DefaultNamespace.ForceClosed(ctx, rdb, name, o)
}

// ForceClosed is the function ForceClosed in n.
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
func Reset(ctx context.Context, rdb redis.UniversalClient, name, by string) (Status, error) {
	return DefaultNamespace.Reset(ctx, rdb, name, by)
}

// Reset is the function Reset in n.
func (n Namespace) Reset(ctx context.Context, rdb redis.UniversalClient, name, by string) (Status, error) {
	return n.change(ctx, rdb, name, "reset", caller{who: by}, policy.Event{Kind: policy.Reset})
}

// CredentialsRenewed is [Breaker.CredentialsRenewed] of a breaker by its name, from a process that has no
// Breaker. by is as in [Reset].
func (n Namespace) CredentialsRenewed(ctx context.Context, rdb redis.UniversalClient, name, by string) (Status, error) {
	return n.change(ctx, rdb, name, "renewed", caller{who: by}, policy.Event{Kind: policy.Renewed})
}

// History returns the last limit transitions of a breaker, oldest first; all that
// are kept (1,000, of a key 20) if limit is not above 0.
func History(ctx context.Context, rdb redis.UniversalClient, name string, limit int) ([]Event, error) {
	return DefaultNamespace.History(ctx, rdb, name, limit)
}

// History is the function History in n.
func (n Namespace) History(ctx context.Context, rdb redis.UniversalClient, name string, limit int) ([]Event, error) {
	p, err := n.parse(name)
	if err != nil {
		return nil, fmt.Errorf("breaker: history: %w", err)
	}
	if err := validClient(rdb); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	last := int64(-1)
	if limit > 0 {
		last = int64(limit) - 1
	}
	history, err := readHistory(ctx, rdb, name, p.history, 0, last)
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
	d := decision{key: p.key, options: c.options(false, false), ask: func(s *script, own []any) (reply, error) { return s.run(ctx, rdb, p, c, own...) }}
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

// status reads a breaker.
func (n Namespace) status(ctx context.Context, rdb redis.UniversalClient, name string, c caller) (reply, place, error) {
	p, err := n.operated(rdb, name, &c)
	if err != nil {
		return reply{}, place{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := statusScript.run(ctx, rdb, p, c)
	if err == nil {
		err = r.settle()
	}
	if err != nil {
		return reply{}, place{}, unavailable("status", name, err)
	}
	return r, p, nil
}

// statusOfReply is what statusScript replied.
func statusOfReply(r *reply, p place) Status {
	s := r.of(p.key).statusAt(r.now, time.Now())
	s.Rate = rateStatus(parseWindows(r.more), r.now)
	return s
}
