// Package naive is the shared breaker that people write first: three keys in Redis,
// read and written one after the other. The comparisons measure against it.
package naive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Breaker is a breaker shared through the keys <name>:state, <name>:failures and
// <name>:open_until. Nothing in it is atomic: that is the point.
type Breaker struct {
	rdb       redis.UniversalClient
	threshold int64
	cooldown  time.Duration

	state, failures, openUntil string // keys
}

// The values of the key of the state.
const (
	closed   = "CLOSED"
	open     = "OPEN"
	halfOpen = "HALF_OPEN"
)

// New returns a breaker that opens for the cooldown after so many rate-limited
// answers in a row.
func New(rdb redis.UniversalClient, name string, threshold int, cooldown time.Duration) *Breaker {
	return &Breaker{
		rdb: rdb, threshold: int64(threshold), cooldown: cooldown,
		state: name + ":state", failures: name + ":failures", openUntil: name + ":open_until",
	}
}

// Allow reports whether a call may be made and, if not, until when the breaker is
// open. Once that time has come every caller may try.
func (b *Breaker) Allow(ctx context.Context) (ok bool, until time.Time, err error) {
	state, err := b.rdb.Get(ctx, b.state).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, time.Time{}, fmt.Errorf("naive: read state: %w", err)
	}
	if state != open {
		return true, time.Time{}, nil
	}
	ms, err := b.rdb.Get(ctx, b.openUntil).Int64()
	if err != nil {
		return false, time.Time{}, fmt.Errorf("naive: read open_until: %w", err)
	}
	if until = time.UnixMilli(ms); time.Now().Before(until) {
		return false, until, nil
	}
	return true, time.Time{}, b.set(ctx, b.state, halfOpen)
}

// Succeeded tells that a call was accepted.
func (b *Breaker) Succeeded(ctx context.Context) error {
	if err := b.set(ctx, b.failures, 0); err != nil {
		return err
	}
	return b.set(ctx, b.state, closed)
}

// RateLimited tells that a call was refused. A hint above 0 is how long the API asked
// to wait: it opens the breaker at once for that long.
func (b *Breaker) RateLimited(ctx context.Context, hint time.Duration) error {
	n, err := b.rdb.Incr(ctx, b.failures).Result()
	if err != nil {
		return fmt.Errorf("naive: count failure: %w", err)
	}
	wait := b.cooldown
	switch {
	case hint > 0:
		wait = hint
	case n < b.threshold:
		return nil
	}
	if err := b.set(ctx, b.openUntil, time.Now().Add(wait).UnixMilli()); err != nil {
		return err
	}
	return b.set(ctx, b.state, open)
}

func (b *Breaker) set(ctx context.Context, key string, value any) error {
	if err := b.rdb.Set(ctx, key, value, 0).Err(); err != nil {
		return fmt.Errorf("naive: write %s: %w", key, err)
	}
	return nil
}
