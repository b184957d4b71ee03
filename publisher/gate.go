package publisher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/asynqx"
)

// Times of the gate.
const (
	// keepProbe is how long an unused permit is kept before it is given back.
	keepProbe = time.Second
	// askAgain bounds the wait for somebody else's probe: giving a permit back
	// is no transition, so nobody is told of it.
	askAgain = time.Second
	// lookMin and lookMax bound the pause between looks at empty queues.
	lookMin, lookMax = 100 * time.Millisecond, time.Second
)

// gate lets a Server fetch as its destination's breaker allows: CLOSED always,
// OPEN never, HALF_OPEN one job with the probe's permit, which is taken before
// the fetch, so that the backlog is not touched. Only the Server's fetching
// goroutine uses it.
type gate struct {
	b *breaker.Breaker

	probe   breaker.Permit // held without a job
	probeAt time.Time
	holding bool
	waited  bool // since the last grant
}

// Wait implements asynqx.Gate.
func (g *gate) Wait(ctx context.Context, backlog func(context.Context) (bool, error)) (asynqx.Grant, error) {
	pause := lookMin
	for {
		if err := ctx.Err(); err != nil {
			return asynqx.Grant{}, err
		}
		changed := g.b.Changed() // before the view, so that no change is missed
		view := g.b.View()
		switch view.State {
		case breaker.Closed:
			if err := g.giveBack(ctx); err != nil {
				return asynqx.Grant{}, err
			}
			return g.grant(asynqx.Grant{}), nil
		case breaker.Open:
			g.waited = true
			if view.OpenUntil.IsZero() { // tripped until it is reset
				wait(ctx, time.Hour, changed)
			} else {
				wait(ctx, time.Until(view.OpenUntil), changed)
			}
			continue
		}
		g.waited = true
		if g.holding && time.Since(g.probeAt) < keepProbe {
			g.holding = false
			return g.grant(asynqx.Grant{Max: 1, Permit: g.probe}), nil
		}
		if err := g.giveBack(ctx); err != nil {
			return asynqx.Grant{}, err
		}
		more, err := backlog(ctx)
		if err != nil {
			return asynqx.Grant{}, err
		}
		if !more {
			// Nobody needs the permit, but people look at the state.
			if _, err := g.b.Advance(ctx); err != nil {
				return asynqx.Grant{}, fmt.Errorf("publisher: gate: %w", err)
			}
			wait(ctx, pause, changed)
			pause = min(2*pause, lookMax)
			continue
		}
		permit, err := g.b.Allow(ctx)
		var open *breaker.OpenError
		switch {
		case errors.As(err, &open):
			// Never less than a moment: the view may be about to change.
			wait(ctx, max(time.Millisecond, min(open.RetryAfter, askAgain)), changed)
			continue
		case err != nil:
			return asynqx.Grant{}, fmt.Errorf("publisher: gate: %w", err)
		}
		if !permit.Probe() {
			return g.grant(asynqx.Grant{}), nil
		}
		g.probe, g.probeAt = permit, time.Now()
		return g.grant(asynqx.Grant{Max: 1, Permit: permit}), nil
	}
}

func (g *gate) grant(r asynqx.Grant) asynqx.Grant {
	r.Opened = g.waited
	if r.Permit == nil {
		g.waited = false
	}
	return r
}

// Flowing implements asynqx.Gate.
func (g *gate) Flowing() bool { return g.b.View().State == breaker.Closed }

// Unused implements asynqx.Gate: the permit is kept for a moment.
func (g *gate) Unused(_ context.Context, r asynqx.Grant) {
	if r.Permit != nil {
		g.holding = true
	}
}

// Close implements asynqx.Gate.
func (g *gate) Close(ctx context.Context) error { return g.giveBack(ctx) }

func (g *gate) giveBack(ctx context.Context) error {
	if !g.holding {
		return nil
	}
	g.holding = false
	if err := g.probe.Release(ctx); err != nil {
		return fmt.Errorf("publisher: give the probe's permit back: %w", err)
	}
	return nil
}

// wait returns after d, at a change of the view, or when ctx ends.
func wait(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
	}
}
