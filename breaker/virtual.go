package breaker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// NewVirtual is [New] for a simulation: now is the clock of this process and of Redis, random, from 0 to 1, is the source
// of jitter, and nothing runs in the background. The Breaker, with its o.MaxInFlight calls, is the only instance, until
// the clock has advanced by ten years. Methods that wait do so in real time: use Allow and Report.
func NewVirtual(ctx context.Context, rdb redis.UniversalClient, o Options, now func() time.Time, random func() float64) (*Breaker, error) {
	if now == nil || random == nil {
		return nil, errors.New("breaker: start in virtual time: now or random is nil")
	}
	o.Timeout, o.MaxInFlight = time.Minute, max(1, o.MaxInFlight)
	c, err := newCore(rdb, o, clock{now: now, redis: func() string { return strconv.FormatInt(now().UnixMicro(), 10) }, random: random})
	if err != nil {
		return nil, err
	}
	if err = c.register(ctx, 10*maxRatePer); err == nil {
		err = c.readSnapshot(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("breaker: start in virtual time: %w", err)
	}
	return &Breaker{core: c}, nil
}
