// Package fakelimit has more kinds of limits for the fake API.
package fakelimit

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
)

// SlidingWindow accepts a call if fewer than Quota were accepted in the Window
// before it.
type SlidingWindow struct {
	Quota  int
	Window time.Duration
}

// NewBudget is of [fakeapi.Limiter].
func (l SlidingWindow) NewBudget() fakeapi.Budget { return &slidingWindow{limit: l} }

// Validate is of [fakeapi.Limiter].
func (l SlidingWindow) Validate() error {
	return fakeapi.FixedWindow{Quota: l.Quota, Window: l.Window}.Validate()
}

type slidingWindow struct {
	limit    SlidingWindow
	accepted []time.Time // the window's, oldest first
}

// Take is of [fakeapi.Budget].
func (b *slidingWindow) Take(now time.Time) fakeapi.Verdict {
	gone := 0
	for gone < len(b.accepted) && now.Sub(b.accepted[gone]) >= b.limit.Window {
		gone++
	}
	b.accepted = append(b.accepted[:0], b.accepted[gone:]...)
	ok := len(b.accepted) < b.limit.Quota
	if ok {
		b.accepted = append(b.accepted, now)
	}
	v := fakeapi.Verdict{
		OK: ok, Limit: b.limit.Quota, Window: b.limit.Window,
		Remaining: b.limit.Quota - len(b.accepted),
	}
	next := b.accepted[0]
	if v.Remaining > 0 {
		next = b.accepted[len(b.accepted)-1]
	}
	v.Reset = next.Add(b.limit.Window).Sub(now)
	return v
}

// TokenBucket accepts a call for each token: Burst of them at first, then Rate new
// ones a second up to Burst.
type TokenBucket struct {
	Rate  float64
	Burst int
}

// NewBudget is of [fakeapi.Limiter].
func (l TokenBucket) NewBudget() fakeapi.Budget { return &tokenBucket{limit: l, every: l.every()} }

// Validate is of [fakeapi.Limiter].
func (l TokenBucket) Validate() error {
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

// Take is of [fakeapi.Budget].
func (b *tokenBucket) Take(now time.Time) fakeapi.Verdict {
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
	v := fakeapi.Verdict{OK: ok, Limit: b.limit.Burst, Window: time.Duration(b.limit.Burst) * b.every, Reset: missing}
	if missing <= room {
		v.Remaining = int((room-missing)/b.every) + 1
	} else {
		v.Reset = missing - room
	}
	return v
}

// Penalty accepts Quota calls in a window as [fakeapi.FixedWindow] does. The first call
// above Quota is refused until the window's end; each further call before the limit
// ends moves that end by Extend.
type Penalty struct {
	Quota  int
	Window time.Duration
	Extend time.Duration
}

// NewBudget is of [fakeapi.Limiter].
func (l Penalty) NewBudget() fakeapi.Budget {
	return &penalty{limit: l}
}

// Validate is of [fakeapi.Limiter].
func (l Penalty) Validate() error {
	err := fakeapi.FixedWindow{Quota: l.Quota, Window: l.Window}.Validate()
	if l.Extend <= 0 {
		err = errors.Join(err, fmt.Errorf("extend is %s: it must be above 0", l.Extend))
	}
	return err
}

type penalty struct {
	limit   Penalty
	end     time.Time
	used    int
	limited bool
}

// Take is of [fakeapi.Budget].
func (b *penalty) Take(now time.Time) fakeapi.Verdict {
	switch {
	case !now.Before(b.end):
		b.end, b.used, b.limited = now.Add(b.limit.Window), 0, false
	case b.limited:
		b.end = b.end.Add(b.limit.Extend)
	}
	if b.limited = b.used == b.limit.Quota; !b.limited {
		b.used++
	}
	return fakeapi.Verdict{
		OK: !b.limited, Limit: b.limit.Quota, Window: b.limit.Window, Remaining: b.limit.Quota - b.used, Reset: b.end.Sub(now),
	}
}

// Everyone is a limit of all callers together, and says so in its hints.
type Everyone struct{ fakeapi.Limiter }

// NewBudget is of [fakeapi.Limiter].
func (l Everyone) NewBudget() fakeapi.Budget { return everyone{l.Limiter.NewBudget()} }

type everyone struct{ fakeapi.Budget }

// Take is of [fakeapi.Budget].
func (b everyone) Take(now time.Time) fakeapi.Verdict {
	v := b.Budget.Take(now)
	v.Global = true
	return v
}
