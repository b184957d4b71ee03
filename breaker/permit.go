package breaker

import (
	"context"
	"time"
)

// Permit is the leave for one call. It is a value: copies are the same permit.
// The zero Permit is valid and does nothing.
type Permit struct {
	b          *Breaker
	id         uint64
	generation uint64
	probe      bool
	until      time.Time
}

// Probe says that the call tests recovery: it is the only one of the fleet.
func (p Permit) Probe() bool { return p.probe }

// Generation is what fences the permit: a report counts only if the breaker has
// made no transition since.
func (p Permit) Generation() uint64 { return p.generation }

// Until is when the lease of a probe ends on this process's clock: the call
// must be over by then. Zero for other permits.
func (p Permit) Until() time.Time { return p.until }

// Outcome is how a call ended, as far as the breaker cares. The zero Outcome is
// neutral: the call told nothing, for it was cancelled or never made.
type Outcome struct {
	kind outcomeKind
	hint time.Duration
}

type outcomeKind uint8

const (
	neutral outcomeKind = iota
	success
	failure
	limited
)

var outcomeNames = [...]string{neutral: "neutral", success: "success", failure: "failure", limited: "limited"}

// Success says that the API accepted the call. It resets the count of failures
// and, from the probe, closes the breaker.
func Success() Outcome { return Outcome{kind: success} }

// RateLimited says that the API refused the call because of its limit (429). A
// hint above 0 is how long the API asked to wait: it opens the breaker at once
// for that long, at most for MaxCooldown.
func RateLimited(hint time.Duration) Outcome {
	return Outcome{kind: limited, hint: max(0, hint)}
}

// Failure says that the call failed otherwise (500, timeout). It neither counts
// nor resets; after a failed probe the next one waits, longer each time.
func Failure() Outcome { return Outcome{kind: failure} }

// String names the outcome.
func (o Outcome) String() string {
	if o.hint > 0 {
		return outcomeNames[o.kind] + " " + o.hint.String()
	}
	return outcomeNames[o.kind]
}

// Report tells how the call ended and returns the breaker's status after it, so
// that the caller learns of an opening at once. A success costs no Redis command
// while there are no failures to reset, a failure or a neutral outcome none
// outside of a probe. Reporting the same permit again counts nothing.
//
// An error says that Redis could not be told (it wraps [ErrUnavailable]), never
// that the call failed: a call that succeeded has succeeded. Rate-limited
// answers are then counted by this instance alone, and open its view, until
// Redis is back.
func (p Permit) Report(ctx context.Context, o Outcome) (Status, error) {
	b := p.b
	if b == nil {
		return Status{}, nil
	}
	v := b.view.Load()
	if !p.probe {
		switch {
		case o.kind == success && v.state == Closed && v.record.Failures == 0:
			return v.status, nil
		case o.kind != limited && !(o.kind == success && v.state == Closed):
			return v.statusAt(b.clock.now()), nil
		case o.kind == success && b.down.Load():
			return b.countLocally(o, false), nil
		}
	}
	if o.kind == neutral {
		return b.tell(ctx, o, releaseScript, token(p.id))
	}
	hint := o.hint
	if b.options.IgnoreHints {
		hint = 0
	}
	return b.tell(ctx, o, reportScript, token(p.id), p.generation, outcomeNames[o.kind], millis(hint), b.options.FailureThreshold)
}

// Release gives the permit back unused, or after a call that was cancelled. The
// lease of a probe is given back, so that another may start at once; other
// permits cost nothing.
func (p Permit) Release(ctx context.Context) error {
	_, err := p.Report(ctx, Outcome{})
	return err
}

// tell runs a script about a permit.
func (b *Breaker) tell(ctx context.Context, o Outcome, s *script, args ...any) (Status, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, v, err := b.run(ctx, s, nil, args...)
	now := b.clock.now()
	switch {
	case err != nil:
		return b.countLocally(o, refused(err)), unavailable(s.operation, b.place.name, err)
	case v.closed:
		return r.status(now), nil
	default:
		return v.statusAt(now), nil
	}
}

// countLocally counts for this instance alone what Redis could not be told.
func (b *Breaker) countLocally(o Outcome, refused bool) Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.now()
	v := b.view.Load()
	next := v
	switch {
	case v.closed || v.state != Closed:
	case o.kind == limited:
		hint := min(o.hint, b.options.MaxCooldown)
		if b.options.IgnoreHints {
			hint = 0
		}
		next = v.countLocally(now, b.options.FailureThreshold, b.options.Cooldown, hint, refused)
	case o.kind == success && v.record.Failures > 0:
		next = v.clearLocally(now)
	}
	b.replace(v, next)
	return next.statusAt(now)
}
