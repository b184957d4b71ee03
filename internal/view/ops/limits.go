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
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

// Override is a limit that an operator has set.
type Override = store.Override

// Limits are the limits of a destination or key, and the operator's limit that stands above the configured ones.
type Limits struct {
	breaker.Limits

	Override *Override `json:"override"` // nil: none
	// NamedOverrides are the operators' overrides of named limits, by name.
	NamedOverrides map[string]Override `json:"named_overrides,omitempty"`
}

// Limits reads the limits of a destination or key.
func (s *System) Limits(ctx context.Context, name string) (Limits, error) {
	found, err := s.breakers().ReadOne(ctx, s.rdb, breaker.Query{Limits: true}, name)
	if err != nil {
		return Limits{}, err
	}
	all, err := s.withOverrides(ctx, []breaker.Limits{found.Limits})
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
		for _, n := range l.Named {
			if o, set := overrides[store.LimitField(n.Name)]; set {
				if out[i].NamedOverrides == nil {
					out[i].NamedOverrides = map[string]Override{}
				}
				out[i].NamedOverrides[n.Name] = o
			}
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

// limit finds what an operator may limit by a name, and its field among their limits: a destination, or else a limit that destinations share. The error may be a *jobs.UnknownDestinationError.
func (s *System) limit(ctx context.Context, name string) (field string, l Limits, err error) {
	if err := mayWhole(ctx, name); err != nil {
		return "", l, err
	}
	names, err := s.Names(ctx)
	if err != nil {
		return "", l, err
	}
	if slices.Contains(names, name) {
		l, err = s.Limits(ctx, name)
		return name, l, err
	}
	if id, _ := access.From(ctx); id.Confined() { // a limit that destinations share is not a tenant's
		return "", l, &jobs.UnknownDestinationError{Name: name}
	}
	all, err := s.breakers().Read(ctx, s.rdb, breaker.Query{Limits: true}, names...)
	if err != nil {
		return "", l, err
	}
	of := breaker.Limits{Name: name, Declared: []breaker.LimitWindow{}, Announced: []breaker.LimitWindow{}}
	for _, one := range all {
		for _, n := range one.Limits.Named {
			names = append(names, n.Name)
			if n.Name == name && !slices.ContainsFunc(of.Named, func(o breaker.NamedUse) bool { return o.Key == n.Key }) {
				of.Named = append(of.Named, n)
			}
		}
	}
	overrides, err := s.namespace().Overrides(ctx, s.rdb)
	if err != nil {
		return "", l, err
	}
	o, set := overrides[store.LimitField(name)]
	if len(of.Named) == 0 && !set { // one without a limit of any kind is not registered
		return "", l, &jobs.UnknownDestinationError{Name: name, Known: slices.Compact(slices.Sorted(slices.Values(names)))}
	}
	l.Limits = of
	if set {
		l.Override = &o
	}
	return store.LimitField(name), l, nil
}

// CheckRate returns an error if a rate is neither windows of calls nor off.
func CheckRate(rate string) error {
	if rate == store.NoRate {
		return nil
	}
	if _, err := breaker.ParseRates(rate); err != nil {
		return fmt.Errorf("%s; off: no limit", strings.TrimPrefix(err.Error(), "breaker: "))
	}
	return nil
}

// SetLimit sets an operator's limit, for a length, for 0 until that time, or, if that is nil, until it is unset.
func (s *System) SetLimit(ctx context.Context, name, rate string, length time.Duration, until *time.Time, why Why) (Limits, error) {
	if err := CheckRate(rate); err != nil {
		return Limits{}, err
	}
	field, l, err := s.limit(ctx, name)
	if err != nil {
		return Limits{}, err
	}
	o := store.Override{Rate: rate, Until: until, By: cut(why.By, mostAuditName), Reason: why.Reason}
	o, err = s.namespace().SetOverride(ctx, s.rdb, field, o, length)
	span := "until it is unset"
	switch {
	case length > 0:
		span = "for " + explain.Duration(length)
	case until != nil:
		span = "until " + until.UTC().Format(time.RFC3339)
	}
	s.acted(ctx, "set limit", l.Name, err, why, slog.String("rate", rate), slog.String("for", span))
	l.Override = &o
	return l, err
}

// UnsetLimit ends an operator's limit. The changed limits have none any more; found is false if there was none.
func (s *System) UnsetLimit(ctx context.Context, name string, why Why) (l Limits, found bool, err error) {
	if err := mayWhole(ctx, name); err != nil {
		return l, false, err
	}
	field, l, unknown := s.limit(ctx, name)
	if unknown != nil && !errors.Is(unknown, jobs.ErrUnknownDestination) {
		return l, false, unknown
	}
	found, err = s.namespace().UnsetOverride(ctx, s.rdb, cmp.Or(field, name))
	if found || err != nil {
		s.acted(ctx, "unset limit", cmp.Or(l.Name, name), err, why)
	} else {
		err = unknown
	}
	if found && unknown != nil {
		l, err = s.Limits(ctx, name)
	}
	l.Override = nil
	return l, found, err
}
