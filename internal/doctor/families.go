package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// familyAge is how long a job waits for its parents before they are asked again:
// longer than it takes to enqueue it.
const familyAge = time.Minute

// families has the parents of the jobs of a queue asked again that have waited for
// long.
func (p *pass) families(queue string) step {
	return func(ctx context.Context) error {
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
		waiting, err := p.rdb.ZRangeByScoreWithScores(ctx, store.ParkedKey(queue, store.StateWaiting), &redis.ZRangeBy{
			Min: from, Max: strconv.FormatInt(until, 10), Offset: passed, Count: familyAtOnce,
		}).Result()
		if err != nil {
			return fmt.Errorf("read waiting jobs of %s: %w", queue, err)
		}
		for _, z := range waiting {
			id, _ := z.Member.(string)
			if err := p.o.Family(ctx, queue, id); err != nil {
				if err := p.noFamily(ctx, fmt.Errorf("ask the parents of job %s: %w", id, err)); err != nil {
					return err
				}
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

// noFamily remembers the first error; the others are asked all the same.
func (p *pass) noFamily(ctx context.Context, err error) error {
	p.familyErr = cmp.Or(p.familyErr, err)
	return ctx.Err()
}
