package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// familyAge is how long a job waits for its parents before they are asked again:
// longer than it takes to enqueue it.
const familyAge = time.Minute

// families has the parents of the jobs of a queue asked again that have waited for
// long.
func (p *pass) families(queue string) step {
	return func(ctx context.Context) error {
		if p.familiesEnd {
			return nil
		}
		now, err := p.serverTime(ctx)
		if err != nil {
			return err
		}
		p.push(p.familyPart(queue, "-inf", now.Add(-familyAge).UnixMilli(), 0))
		return nil
	}
}

// familyPart goes on at a score, passing over those of that score that were asked
// about.
func (p *pass) familyPart(queue, from string, until int64, passed int64) step {
	return func(ctx context.Context) error {
		waiting, err := p.rdb.ZRangeByScoreWithScores(ctx, record.Parked(queue, record.StateWaiting), &redis.ZRangeBy{
			Min: from, Max: strconv.FormatInt(until, 10), Offset: passed, Count: familyAtOnce,
		}).Result()
		if err != nil {
			return fmt.Errorf("read waiting jobs of %s: %w", queue, err)
		}
		for _, z := range waiting {
			id, _ := z.Member.(string)
			if err := p.o.Family(ctx, queue, id); err != nil {
				return p.noFamily(ctx, fmt.Errorf("ask the parents of job %s: %w", id, err))
			}
			score := strconv.FormatFloat(z.Score, 'f', -1, 64)
			if score != from {
				from, passed = score, 0
			}
			passed++
		}
		if len(waiting) == familyAtOnce {
			p.push(p.familyPart(queue, from, until, passed))
		}
		return nil
	}
}

// noFamily remembers the first error, which ends the asking but not the pass.
func (p *pass) noFamily(ctx context.Context, err error) error {
	p.familiesEnd, p.familyErr = true, err
	return ctx.Err()
}
