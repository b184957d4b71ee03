package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/jobs"
)

// Override is a limit that an operator has set.
type Override = store.Override

// Limits are the limits of a destination or key, and the operator's limit that stands above the configured ones.
type Limits struct {
	breaker.Limits

	Override *Override `json:"override"` // nil: none
}

// Limits reads the limits of a destination or key.
func (s *System) Limits(ctx context.Context, name string) (Limits, error) {
	found, err := s.breakers().Limits(ctx, s.rdb, name)
	if err != nil {
		return Limits{}, err
	}
	all, err := s.withOverrides(ctx, []breaker.Limits{found})
	if err != nil {
		return Limits{}, err
	}
	return all[0], nil
}

func (s *System) withOverrides(ctx context.Context, found []breaker.Limits) ([]Limits, error) {
	overrides, err := s.namespace().Overrides(ctx, s.rdb)
	out := make([]Limits, len(found))
	for i, l := range found {
		out[i].Limits = l
		if o, set := overrides[l.Name]; set {
			out[i].Override = &o
		}
	}
	return out, err
}

// ListLimits returns a page of the limits of a destination and its keys, or of all known ones for "".
func (s *System) ListLimits(ctx context.Context, destination, cursor string, limit int) (page Page[Limits], err error) {
	names := []string{destination}
	if destination == "" {
		names, err = s.Names(ctx)
		names = ofCaller(ctx, names, func(name string) string { return name })
	} else {
		err = cmp.Or(mayWhole(ctx, destination), s.Known(ctx, destination))
	}
	if err != nil {
		return page, err
	}
	found, next, err := s.breakers().ListLimits(ctx, s.rdb, names, cursor, limit)
	if errors.Is(err, breaker.ErrInvalidCursor) {
		return page, ErrCursor
	}
	if err != nil {
		return page, err
	}
	page.Next = next
	page.Items, err = s.withOverrides(ctx, found)
	return page, err
}

// ForgetLimits forgets what was learned and announced of a limit, and returns that.
func (s *System) ForgetLimits(ctx context.Context, name string, why Why) (breaker.Limits, error) {
	forgotten, err := s.breakers().ForgetLimits(ctx, s.rdb, name, why.By)
	s.acted(ctx, "forget limits", name, err, why)
	return forgotten, err
}

// KnownLimit returns an error for a name that has no limit to set: a *jobs.UnknownDestinationError. Names of limits
// that destinations share would be looked up here, too.
func (s *System) KnownLimit(ctx context.Context, name string) error {
	if err := mayWhole(ctx, name); err != nil {
		return err
	}
	names, err := s.Names(ctx)
	if err == nil && !slices.Contains(names, name) {
		return &jobs.UnknownDestinationError{Name: name, Known: names}
	}
	return err
}

// CheckRate returns an error if a rate is neither windows of calls nor off.
func CheckRate(rate string) error {
	if rate == store.NoRate {
		return nil
	}
	if _, err := breaker.ParseRates(rate); err != nil {
		return fmt.Errorf("%w; off: no limit", err)
	}
	return nil
}

// SetLimit sets an operator's limit, for a length, for 0 until that time, or, if that is nil, until it is unset.
func (s *System) SetLimit(ctx context.Context, name, rate string, length time.Duration, until *time.Time, why Why) (Limits, error) {
	if err := CheckRate(rate); err != nil {
		return Limits{}, err
	}
	if err := s.KnownLimit(ctx, name); err != nil {
		return Limits{}, err
	}
	o := store.Override{Rate: rate, Until: until, By: cut(why.By, mostAuditName), Reason: why.Reason}
	_, err := s.namespace().SetOverride(ctx, s.rdb, name, o, length)
	span := "until it is unset"
	switch {
	case length > 0:
		span = "for " + length.String()
	case until != nil:
		span = "until " + until.UTC().Format(time.RFC3339)
	}
	s.acted(ctx, "set limit", name, err, why, slog.String("rate", rate), slog.String("for", span))
	if err != nil {
		return Limits{}, err
	}
	return s.Limits(ctx, name)
}

// UnsetLimit ends an operator's limit. The changed limits have none any more; found is false if there was none.
func (s *System) UnsetLimit(ctx context.Context, name string, why Why) (l Limits, found bool, err error) {
	if err := mayWhole(ctx, name); err != nil {
		return l, false, err
	}
	found, err = s.namespace().UnsetOverride(ctx, s.rdb, name)
	if found || err != nil {
		s.acted(ctx, "unset limit", name, err, why)
	}
	if err != nil {
		return l, false, err
	}
	if !found {
		if err := s.KnownLimit(ctx, name); err != nil {
			return l, false, err
		}
	}
	l, err = s.Limits(ctx, name)
	return l, found, err
}
