package fakeapi

import (
	"errors"
	"fmt"
	"time"
)

// Limiter is one kind of limit with its figures, such as [FixedWindow]; nil limits nothing.
// It holds no state: the API keeps a budget for each bearer token, or one for all.
type Limiter interface {
	// NewBudget returns the state of an unused budget.
	NewBudget() Budget
	// Validate returns the validation errors of the figures.
	Validate() error
}

// Budget is what is left of a limit. It is not safe for concurrent use.
type Budget interface {
	// Take takes one call at an instant, which must not go back.
	Take(now time.Time) Verdict
}

// Verdict is the response to one call, and the budget after it.
type Verdict struct {
	OK        bool
	Limit     int           // calls per window
	Window    time.Duration // of the limit
	Remaining int           // calls left
	Global    bool          // the limit is of all callers together
	// Reset is the time until the budget is whole again while calls remain, and
	// until one more call is accepted when none does.
	Reset time.Duration
}

// FixedWindow accepts Quota calls in a window, which starts with the first call
// after the last window's end.
type FixedWindow struct {
	Quota  int
	Window time.Duration
}

// NewBudget is of [Limiter].
func (l FixedWindow) NewBudget() Budget { return &fixedWindow{limit: l} }

// Validate is of [Limiter].
func (l FixedWindow) Validate() error {
	var errs []error
	if l.Quota < 1 {
		errs = append(errs, fmt.Errorf("quota is %d: it must be at least 1", l.Quota))
	}
	if l.Window <= 0 {
		errs = append(errs, fmt.Errorf("window is %s: it must be above 0", l.Window))
	}
	return errors.Join(errs...)
}

type fixedWindow struct {
	limit FixedWindow
	end   time.Time
	used  int
}

// Take is of [Budget].
func (b *fixedWindow) Take(now time.Time) Verdict {
	if !now.Before(b.end) {
		b.end, b.used = now.Add(b.limit.Window), 0
	}
	ok := b.used < b.limit.Quota
	if ok {
		b.used++
	}
	return Verdict{
		OK: ok, Limit: b.limit.Quota, Window: b.limit.Window,
		Remaining: b.limit.Quota - b.used, Reset: b.end.Sub(now),
	}
}

func validateLimiter(l Limiter) error {
	if l == nil {
		return nil
	}
	return l.Validate()
}
