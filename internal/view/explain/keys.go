package explain

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Urgency orders breakers for lists: 0 for one that is not CLOSED, 1 for one whose limits hold calls back
// now, 2 for one that is kept CLOSED by hand, 3 for one that can be called.
func Urgency(b breaker.Status, now time.Time) int {
	switch {
	case b.State != breaker.Closed:
		return 0
	case b.Budget != nil && b.Budget.Remaining == 0 || RateHolds(b, now) || ConcurrencyHolds(b):
		return atLimit
	case b.Forced != "":
		return 2
	}
	return Callable
}

const (
	// Callable is the Urgency of a breaker that permits calls; atLimit of a breaker whose limits hold calls back.
	Callable = 3
	atLimit  = 1
)

// LimitedFirst sorts breakers by their Urgency, and keeps their order otherwise.
func LimitedFirst(list []breaker.Status, now time.Time) {
	slices.SortStableFunc(list, func(a, b breaker.Status) int { return cmp.Compare(Urgency(a, now), Urgency(b, now)) })
}

// ErrInvalidCursor is returned for a cursor that no page had.
var ErrInvalidCursor = errors.New("is not a cursor that a list has returned; start without one")

// PageOfBreakers returns the breakers after a cursor, "" for the first page, at most limit, and the cursor of the
// next page, "" after the last one. First come the destinations, each followed by its limited keys, then all other
// keys, by name. A breaker that changes while pages are read may be missed or repeated. The error is
// ErrInvalidCursor.
func PageOfBreakers(all []breaker.Status, cursor string, limit int, now time.Time) (page []breaker.Status, next string, err error) {
	const limited, other = "limited:", "other:" // in this order
	after := ""
	if cursor != "" {
		class, name, _ := strings.Cut(cursor, ":")
		if _, _, err := breaker.ParseName(name); err != nil || class+":" != limited && class+":" != other {
			return nil, "", ErrInvalidCursor
		}
		after = place(class+":", name)
	}
	class := func(b breaker.Status) string {
		if strings.Contains(b.Name, "/") && Urgency(b, now) == Callable {
			return other
		}
		return limited
	}
	page = []breaker.Status{}
	for _, b := range all {
		if place(class(b), b.Name) > after {
			page = append(page, b)
		}
	}
	slices.SortFunc(page, func(a, b breaker.Status) int {
		return strings.Compare(place(class(a), a.Name), place(class(b), b.Name))
	})
	if len(page) > limit {
		page = page[:limit]
		next = class(page[limit-1]) + page[limit-1].Name
	}
	return page, next, nil
}

// place orders the names of breakers of a class: the keys of a destination directly behind it.
func place(class, name string) string { return class + strings.Replace(name, "/", "\x00", 1) }
