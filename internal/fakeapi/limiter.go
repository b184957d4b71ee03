package fakeapi

import (
	"errors"
	"fmt"
	"time"
)

// Limiter is one kind of limit with its figures: [FixedWindow], [SlidingWindow],
// [TokenBucket] or [Penalty]; nil limits nothing. It holds no state: the API keeps
// a budget of its own for each bearer token, or one for all.
type Limiter interface {
	// newBudget returns the state of an unused budget.
	newBudget() budget
	// validate returns the validation errors of the figures.
	validate() error
}

// budget is what is left of a limit. It is not safe for concurrent use.
type budget interface {
	// take takes one call at an instant, which must not go back.
	take(now time.Time) verdict
}

// verdict is the answer to one call, and the budget after it.
type verdict struct {
	ok        bool
	limit     int           // calls per window
	window    time.Duration // of the limit
	remaining int           // calls left
	global    bool          // the limit is of all callers together
	// reset is the time until the budget is whole again while calls remain, and
	// until one more call is accepted when none does.
	reset time.Duration
}

// FixedWindow accepts Quota calls in a window, which starts with the first call
// after the last window's end.
type FixedWindow struct {
	Quota  int
	Window time.Duration
}

func (l FixedWindow) newBudget() budget { return &fixedWindow{limit: l} }
func (l FixedWindow) validate() error   { return validateWindow(l.Quota, l.Window) }

type fixedWindow struct {
	limit FixedWindow
	end   time.Time
	used  int
}

func (b *fixedWindow) take(now time.Time) verdict {
	if !now.Before(b.end) {
		b.end, b.used = now.Add(b.limit.Window), 0
	}
	ok := b.used < b.limit.Quota
	if ok {
		b.used++
	}
	return verdict{
		ok: ok, limit: b.limit.Quota, window: b.limit.Window,
		remaining: b.limit.Quota - b.used, reset: b.end.Sub(now),
	}
}

// SlidingWindow accepts a call if fewer than Quota were accepted in the Window
// before it.
type SlidingWindow struct {
	Quota  int
	Window time.Duration
}

func (l SlidingWindow) newBudget() budget { return &slidingWindow{limit: l} }
func (l SlidingWindow) validate() error   { return validateWindow(l.Quota, l.Window) }

type slidingWindow struct {
	limit    SlidingWindow
	accepted []time.Time // the window's, oldest first
}

func (b *slidingWindow) take(now time.Time) verdict {
	gone := 0
	for gone < len(b.accepted) && now.Sub(b.accepted[gone]) >= b.limit.Window {
		gone++
	}
	b.accepted = append(b.accepted[:0], b.accepted[gone:]...)
	ok := len(b.accepted) < b.limit.Quota
	if ok {
		b.accepted = append(b.accepted, now)
	}
	v := verdict{
		ok: ok, limit: b.limit.Quota, window: b.limit.Window,
		remaining: b.limit.Quota - len(b.accepted),
	}
	next := b.accepted[0]
	if v.remaining > 0 {
		next = b.accepted[len(b.accepted)-1]
	}
	v.reset = next.Add(b.limit.Window).Sub(now)
	return v
}

// TokenBucket accepts a call for each token: Burst of them at first, then Rate new
// ones a second up to Burst.
type TokenBucket struct {
	Rate  float64
	Burst int
}

func (l TokenBucket) newBudget() budget { return &tokenBucket{limit: l, every: l.every()} }

func (l TokenBucket) validate() error {
	var errs []error
	if !(l.Rate > 0 && l.Rate <= float64(time.Second)) {
		errs = append(errs, fmt.Errorf("rate is %v: it must be above 0 and at most 1e9 a second", l.Rate))
	}
	if l.Burst < 1 {
		errs = append(errs, fmt.Errorf("burst is %d: it must be at least 1", l.Burst))
	}
	return errors.Join(errs...)
}

// every is the time in which one token comes.
func (l TokenBucket) every() time.Duration {
	return time.Duration(float64(time.Second) / l.Rate)
}

// tokenBucket counts in time instead of tokens, which is exact: full is the instant
// when the bucket would be full again.
type tokenBucket struct {
	limit TokenBucket
	every time.Duration
	full  time.Time
}

func (b *tokenBucket) take(now time.Time) verdict {
	if b.full.Before(now) {
		b.full = now
	}
	// The last moment that full may have for one token to be there.
	room := time.Duration(b.limit.Burst-1) * b.every
	ok := b.full.Sub(now) <= room
	if ok {
		b.full = b.full.Add(b.every)
	}
	missing := b.full.Sub(now)
	v := verdict{ok: ok, limit: b.limit.Burst, window: time.Duration(b.limit.Burst) * b.every, reset: missing}
	if missing <= room {
		v.remaining = int((room-missing)/b.every) + 1
	} else {
		v.reset = missing - room
	}
	return v
}

// Penalty accepts Quota calls in a window as [FixedWindow] does. The first call
// above Quota is refused until the window's end; each further call before the limit
// ends puts that end off by Extend.
type Penalty struct {
	Quota  int
	Window time.Duration
	Extend time.Duration
}

func (l Penalty) newBudget() budget {
	return &penalty{extend: l.Extend, window: fixedWindow{limit: FixedWindow{Quota: l.Quota, Window: l.Window}}}
}

func (l Penalty) validate() error {
	err := validateWindow(l.Quota, l.Window)
	if l.Extend <= 0 {
		err = errors.Join(err, fmt.Errorf("extend is %s: it must be above 0", l.Extend))
	}
	return err
}

type penalty struct {
	extend  time.Duration
	window  fixedWindow
	limited bool
}

func (b *penalty) take(now time.Time) verdict {
	if b.limited = b.limited && now.Before(b.window.end); b.limited {
		b.window.end = b.window.end.Add(b.extend)
	}
	v := b.window.take(now)
	b.limited = !v.ok
	return v
}

func validateWindow(quota int, window time.Duration) error {
	var errs []error
	if quota < 1 {
		errs = append(errs, fmt.Errorf("quota is %d: it must be at least 1", quota))
	}
	if window <= 0 {
		errs = append(errs, fmt.Errorf("window is %s: it must be above 0", window))
	}
	return errors.Join(errs...)
}

func validateLimiter(l Limiter) error {
	if l == nil {
		return nil
	}
	return l.validate()
}
