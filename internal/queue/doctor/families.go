package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// familyAge is how long a job waits before it is registered with its parents again: longer
// than its enqueue takes.
const familyAge = time.Minute

// families registers jobs of a queue that have waited for long with their parents again.
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

// familyPart continues at a score, and skips the jobs of that score that are done.
func (p *pass) familyPart(queue, from string, until int64, passed int64) step {
	return func(ctx context.Context) error {
		waiting, err := p.rdb.ZRangeByScoreWithScores(ctx, store.ParkedKey(queue, store.StateWaiting), &redis.ZRangeBy{
			Min: from, Max: strconv.FormatInt(until, 10), Offset: passed, Count: familyAtOnce,
		}).Result()
		if err != nil {
			return fmt.Errorf("read waiting jobs of %s: %w", queue, err)
		}
		lines, err := redispipe.Each(ctx, p.rdb, waiting, func(pipe redis.Pipeliner, z redis.Z) *redis.BoolCmd {
			id, _ := z.Member.(string)
			return pipe.HExists(ctx, store.TaskKey(queue, id), store.FieldLine)
		})
		if err != nil {
			return fmt.Errorf("read waiting jobs of %s: %w", queue, err)
		}
		for i, z := range waiting {
			id, _ := z.Member.(string)
			var err error
			if !lines[i].Val() { // a job that waits behind another one of its key has no parents any more
				err = p.o.Family(ctx, queue, id)
			}
			if err != nil {
				if err := p.noFamily(ctx, fmt.Errorf("register job %s with its parents: %w", id, err)); err != nil {
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

// noFamily keeps the first error; the other jobs are still registered.
func (p *pass) noFamily(ctx context.Context, err error) error {
	p.familyErr = cmp.Or(p.familyErr, err)
	return ctx.Err()
}
