package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// movedFor is how long a queue keeps the ids that a move has removed.
const movedFor = 7 * 24 * time.Hour

// moves finishes interrupted moves to a queue. Of a running one it does the next step.
func (p *pass) moves(queue string) step {
	return func(ctx context.Context) error {
		key := store.MovingKey(queue)
		n, err := p.rdb.ZCard(ctx, key).Result()
		if err != nil {
			return fmt.Errorf("find moves to %s: %w", queue, err)
		}
		found := int(n)
		if !p.o.DryRun {
			if found, err = store.FinishMoves(ctx, p.rdb, queue); err != nil {
				return fmt.Errorf("finish moves: %w", err)
			}
		}
		if found > 0 {
			p.found.addDetailed(KindMoveUnfinished, queue, details[KindMoveUnfinished], found)
		}
		p.push(p.setStep(indexScript, queue, "moving", "0", perScript, key, store.StateMoving))
		return nil
	}
}

// moved deletes, once all moves are finished, the ids that a move removed long ago.
func (p *pass) moved(queue string) step {
	return func(context.Context) error {
		if p.o.DryRun {
			return nil
		}
		p.todo = slices.Insert(p.todo, 0, func(ctx context.Context) error {
			until := strconv.FormatInt(p.since.Add(-movedFor).UnixMilli(), 10)
			if err := p.rdb.ZRemRangeByScore(ctx, store.MovedKey(queue), "-inf", until).Err(); err != nil {
				return fmt.Errorf("delete finished moves from %s: %w", queue, err)
			}
			return nil
		})
		return nil
	}
}
