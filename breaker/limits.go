package breaker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// Limits are what the fleet knows of the limits of a destination, or of a key of it, at one
// moment.
type Limits struct {
	// Name of the breaker: "destination" or "destination/key".
	Name string `json:"name"`
	// Declared are the limits that instances have configured, or by which calls were made of late.
	Declared []LimitWindow `json:"declared"`
	// Announced are the limits that the API announced in its responses, until their windows end.
	Announced []LimitWindow `json:"announced"`
	// Concurrency is how many calls may be in flight, as configured or learned; nil for any number.
	Concurrency *ConcurrencyLimit `json:"concurrency"`
	// Learned is what refusals without a hint have taught, nil for nothing.
	Learned *LearnedLimit `json:"learned"`
	// Named are the named limits that the destination draws on, as instances have them configured.
	Named []NamedUse `json:"named"`
}

// ConcurrencyLimit is a limit of calls in flight in the whole fleet.
type ConcurrencyLimit struct {
	Limit int `json:"limit" doc:"How many calls may be in flight in the whole fleet." example:"5"`
	Used  int `json:"used" doc:"How many are." example:"3"`
}

// LimitWindow is a limit of calls per time. What is not known is 0, as JSON null.
type LimitWindow struct {
	// Name of an announced one, if the API or a rule names it.
	Name string
	// Limit is how many calls are allowed per Window, and Burst, of a declared one, how many of
	// them at once.
	Limit  int
	Window time.Duration
	Burst  int
	// Zone of the calendar by which the window begins, of a declared one; "" if it slides.
	Zone string
	// Used is how many are used now: of a declared one, of its burst.
	Used int
	// Remaining is how many calls may still be made now. -1 if it is not known: then Used is
	// not either.
	Remaining int
	// ResetsAt is when none is used any more if no further call is made, on Redis's clock.
	ResetsAt time.Time
}

// LearnedLimit is a limit that refusals without a hint have taught. What is not known is 0, as
// JSON null.
type LearnedLimit struct {
	// Calls per Window.
	Calls  int
	Window time.Duration
	// RatePerSec is how fast calls may follow each other, in calls a second.
	RatePerSec float64
	// Concurrency is how many calls may be in flight.
	Concurrency int
	// Confidence in it, from 0 to 1.
	Confidence float64
	// Windows in a row that have shown it, at most 3.
	Windows int
	// Used is how many calls the API has accepted since the present window began, which ends at ResetsAt; the zero time if
	// the calls are spaced.
	Used     int
	ResetsAt time.Time
	// Since when it is known, on Redis's clock.
	Since time.Time
}

type limitWindowJSON struct {
	Name      *string    `json:"name"`
	Limit     *int       `json:"limit"`
	Window    *float64   `json:"window_secs"`
	Burst     *int       `json:"burst"`
	Zone      *string    `json:"zone"`
	Used      *int       `json:"used"`
	Remaining *int       `json:"remaining"`
	ResetsAt  *time.Time `json:"resets_at"`
}

// MarshalJSON gives times in seconds and as RFC 3339, and null for what is not known.
func (w LimitWindow) MarshalJSON() ([]byte, error) {
	j := limitWindowJSON{Name: orNull(w.Name), Limit: orNull(w.Limit), Window: orNull(w.Window.Seconds()), Burst: orNull(w.Burst), Zone: orNull(w.Zone), ResetsAt: utc(w.ResetsAt)}
	if w.Remaining >= 0 {
		j.Remaining = &w.Remaining
		if w.Limit > 0 {
			j.Used = &w.Used
		}
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON gives.
func (w *LimitWindow) UnmarshalJSON(data []byte) error {
	var j limitWindowJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("breaker: limit: %w", err)
	}
	*w = LimitWindow{Name: value(j.Name), Limit: value(j.Limit), Window: seconds(value(j.Window)), Burst: value(j.Burst), Zone: value(j.Zone), Used: value(j.Used), Remaining: -1, ResetsAt: value(j.ResetsAt)}
	if j.Remaining != nil {
		w.Remaining = *j.Remaining
	}
	return nil
}

type learnedLimitJSON struct {
	Calls       *int       `json:"calls"`
	Window      *float64   `json:"window_secs"`
	RatePerSec  *float64   `json:"rate_per_sec"`
	Concurrency *int       `json:"concurrency"`
	Confidence  float64    `json:"confidence"`
	Windows     int        `json:"windows"`
	Used        *int       `json:"used"`
	ResetsAt    *time.Time `json:"resets_at"`
	Since       *time.Time `json:"since"`
}

// MarshalJSON gives times in seconds and as RFC 3339, and null for what is not known.
func (l LearnedLimit) MarshalJSON() ([]byte, error) {
	j := learnedLimitJSON{
		orNull(l.Calls), orNull(l.Window.Seconds()), orNull(l.RatePerSec), orNull(l.Concurrency), l.Confidence, l.Windows, nil, utc(l.ResetsAt), utc(l.Since),
	}
	if j.ResetsAt != nil {
		j.Used = &l.Used
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON gives.
func (l *LearnedLimit) UnmarshalJSON(data []byte) error {
	var j learnedLimitJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("breaker: learned limit: %w", err)
	}
	*l = LearnedLimit{value(j.Calls), seconds(value(j.Window)), value(j.RatePerSec), value(j.Concurrency), j.Confidence, j.Windows, value(j.Used), value(j.ResetsAt), value(j.Since)}
	return nil
}

func orNull[T int | float64 | string](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// ForgetLimits forgets what was learned of the limits of a destination or key, and what the API
// announced, and returns that; without a change if there is none. The state of the breaker stays,
// and so do declared limits. by is as in [Namespace.Reset]; the breaker's history has it.
func (n Namespace) ForgetLimits(ctx context.Context, rdb redis.UniversalClient, name, by string) (Limits, error) {
	d, p, err := n.decide(ctx, rdb, name, "forget", caller{who: by}, policy.Event{Kind: policy.Forgotten})
	if err != nil {
		return Limits{}, err
	}
	of := d.pair.Destination
	if p.key != "" {
		of = d.pair.Key
	}
	before := record{}
	if d.reply.result == resultStored { // else there was nothing to forget
		before.State = of.At(d.reply.now)
	}
	return before.limits(p, d.reply.now), nil
}

// ListLimits returns a page of the limits of destinations, and of their keys with announced or learned limits: at
// most limit items, and the cursor of the next page, "" after the last one. A page may have fewer. Keys that change
// while pages are read may be repeated; none is missed. The error may wrap [ErrInvalidCursor].
func (n Namespace) ListLimits(ctx context.Context, rdb redis.UniversalClient, destinations []string, cursor string, limit int) (page []Limits, next string, err error) {
	if err := errors.Join(n.Validate(), validClient(rdb)); err != nil {
		return nil, "", fmt.Errorf("breaker: limits: %w", err)
	}
	first, after, err := parseLimitsCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	if limit < 1 {
		return nil, "", fmt.Errorf("breaker: limits: the page has %d items: want at least 1", limit)
	}
	rest := slices.Compact(slices.Sorted(slices.Values(destinations)))
	from, _ := slices.BinarySearch(rest, first)
	rest = rest[from:]
	ctx, cancel := bounded(ctx)
	defer cancel()
	places, next, err := n.limitedPlaces(ctx, rdb, rest, first, after, limit)
	if err != nil {
		return nil, "", err
	}
	all, err := n.read(ctx, rdb, Query{Limits: true}, places)
	for _, r := range all {
		if l := r.Limits; !strings.Contains(l.Name, "/") || len(l.Announced) > 0 || l.Learned != nil {
			page = append(page, l)
		}
	}
	return page, next, err
}

// limitedPlaces returns the places of a page: destinations, each before its keys in the order of
// their last change. The first one's come after a revision if its name is first and after is set.
func (n Namespace) limitedPlaces(ctx context.Context, rdb redis.UniversalClient, destinations []string, first, after string, limit int) (places []place, next string, err error) {
	keys := make([]*redis.ZSliceCmd, min(limit, len(destinations)))
	goesOn := func(i int) bool { return i == 0 && after != "" && destinations[0] == first }
	_, _ = redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error { // each command has its own error
		for i := range keys {
			start := "-inf"
			if goesOn(i) {
				start = "(" + after
			}
			keys[i] = pipe.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
				Key: n.placeOf(destinations[i], "").keys[4], ByScore: true, Start: start, Stop: "+inf", Count: int64(limit),
			})
		}
		return nil
	})
	for i, cmd := range keys {
		d := destinations[i]
		found, err := cmd.Result()
		if err != nil {
			return nil, "", unavailable("read limits of", d, err)
		}
		if !goesOn(i) {
			if len(places) == limit {
				return places, d, nil
			}
			places = append(places, n.placeOf(d, ""))
		}
		last := after
		if !goesOn(i) {
			last = "0"
		}
		for j, z := range found {
			if len(places) == limit {
				return places, d + "/" + last, nil
			}
			last = strconv.FormatFloat(z.Score, 'f', -1, 64)
			if name, _ := z.Member.(string); name != d {
				_, key, _ := strings.Cut(name, "/")
				places = append(places, n.placeOf(d, key))
			}
			if j == limit-1 {
				return places, d + "/" + last, nil // there may be more
			}
		}
	}
	if len(keys) < len(destinations) {
		return places, destinations[len(keys)], nil
	}
	return places, "", nil
}

// parseLimitsCursor splits a cursor: the destination to go on with, and the revision of the last
// key of it, "" for none of it.
func parseLimitsCursor(cursor string) (destination, after string, err error) {
	destination, after, keyed := strings.Cut(cursor, "/")
	if _, bad := strconv.ParseUint(after, 10, 64); cursor != "" && validDestination(destination) != nil || keyed && bad != nil {
		return "", "", fmt.Errorf("breaker: limits: %w", ErrInvalidCursor)
	}
	return destination, after, nil
}

// limitsOf is what statusScript replied.
func limitsOf(r *reply, p place) Limits {
	l := r.of(p.key).limits(p, r.now)
	for _, w := range parseWindows(r.more) {
		l.Declared = append(l.Declared, w.status(r.now))
	}
	return l
}

// namedOf are the named limits that statusScript replied; none of a key.
func namedOf(r *reply, p place) []NamedLimit {
	if _, text, _ := strings.Cut(r.more, "\t"); p.key == "" {
		return parseLimits(text)
	}
	return nil
}

// limits are the announced and learned limits of a record at now (µs).
func (r *record) limits(p place, now int64) Limits {
	l := Limits{Name: p.name, Declared: []LimitWindow{}, Announced: []LimitWindow{}, Learned: r.learned(), Named: []NamedUse{}}
	if r.Cap > 0 {
		l.Concurrency = &ConcurrencyLimit{Limit: r.Cap, Used: r.InFlight}
	}
	if p.key != "" {
		l.Name += "/" + p.key
	}
	w := LimitWindow{Limit: int(r.BudgetLimit), Remaining: -1}
	reached := r.state() != Closed && r.BudgetReset != 0
	if (r.Metered != 0 || reached) && (r.BudgetReset == 0 || r.left(r.BudgetReset, now) > 0) {
		w.Remaining, w.ResetsAt = int(r.BudgetLeft), instant(r.BudgetReset)
		w.Used = int(max(0, r.BudgetLimit-r.BudgetLeft))
	}
	if asked := instant(r.AskedUntil); r.state() != Closed && w.Limit == 0 && w.Remaining < 0 && r.left(r.AskedUntil, now) > 0 {
		w.Remaining, w.ResetsAt = 0, asked
	}
	all := policy.ReadWindows(r.Windows)
	if len(all) > 0 {
		w.Name = windowName(all[0].ID)
	}
	if w.Limit > 0 || w.Remaining >= 0 {
		l.Announced = append(l.Announced, w)
	}
	for i, other := range all {
		if i > 0 && (other.Reset == 0 || r.left(other.Reset, now) > 0) { // the first is in BudgetLeft
			l.Announced = append(l.Announced, LimitWindow{
				Name: windowName(other.ID), Limit: int(other.Limit), Used: int(max(0, other.Limit-other.Left)), Remaining: int(other.Left), ResetsAt: instant(other.Reset),
			})
		}
	}
	return l
}
