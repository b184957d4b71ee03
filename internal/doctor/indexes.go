package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/redispipe"
	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// inFlight checks the jobs in flight of queues.
func (p *pass) inFlight(ctx context.Context, queues []string) error {
	for chunk := range slices.Chunk(queues, perTrip) {
		var calls []call
		for _, q := range chunk {
			calls = append(calls, call{activeScript, q, []any{0, perSet}}, call{leaseScript, q, []any{store.Lease.Milliseconds(), "0", perSet}})
		}
		replies, err := p.runAll(ctx, calls)
		if err != nil {
			return fmt.Errorf("check jobs in flight: %w", err)
		}
		for i, q := range chunk {
			if err := p.restInFlight(ctx, q, replies[2*i], replies[2*i+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// restInFlight continues after the first part of the list and of the leases.
func (p *pass) restInFlight(ctx context.Context, queue string, active, lease []any) error {
	for {
		r := reply{values: active}
		at := r.int(0)
		p.take(queue, "active", r.texts(2))
		if err := r.err("check jobs in flight", queue); err != nil {
			return err
		}
		if at < 0 {
			break
		}
		var err error
		if active, err = p.run(ctx, activeScript, queue, at, perSet); err != nil {
			return fmt.Errorf("check jobs in flight of %s: %w", queue, err)
		}
	}
	cursor, err := p.scanned(queue, "lease", lease)
	for err == nil && cursor != "0" {
		cursor, err = p.scanSet(ctx, leaseScript, queue, "lease", cursor, perSet, store.Lease.Milliseconds())
	}
	return err
}

// scanned takes the reply of a script that checks a part of a set, and returns the next
// cursor.
func (p *pass) scanned(queue, where string, values []any) (string, error) {
	r := reply{values: values}
	next := r.text(0)
	p.take(queue, where, r.texts(2))
	return next, r.err("check "+where, queue)
}

// scanSet calls a script that checks a part of a set; cursor is its last argument but one.
func (p *pass) scanSet(ctx context.Context, s *store.Script, queue, where, cursor string, n int, args ...any) (string, error) {
	values, err := p.run(ctx, s, queue, append(args, cursor, n)...)
	if err != nil {
		return "", fmt.Errorf("check %s of %s: %w", where, queue, err)
	}
	return p.scanned(queue, where, values)
}

// setStep goes through a set from cursor on, one part a step.
func (p *pass) setStep(s *store.Script, queue, where, cursor string, n int, args ...any) step {
	return func(ctx context.Context) error {
		next, err := p.scanSet(ctx, s, queue, where, cursor, n, args...)
		if err != nil {
			return err
		}
		if next != "0" {
			p.push(p.setStep(s, queue, where, next, n, args...))
		}
		return nil
	}
}

// archived is asynq's archive, which Tidegate does not use.
func archived(queue string) string { return "asynq:{" + queue + "}:archived" }

// index is a set of a queue and the step that goes through it.
type index struct {
	key  string
	look step
}

// indexesOf are all indexes of a queue but the pending list.
func (p *pass) indexesOf(queue string) []index {
	var out []index
	add := func(key string, look step) { out = append(out, index{key, look}) }
	jobs := func(key, where, state string) {
		add(key, p.setStep(indexScript, queue, where, "0", perScript, key, state))
	}
	add(archived(queue), p.setStep(archivedScript, queue, "archived", "0", perSet))
	jobs(store.ScheduledKey(queue), "scheduled", store.StateScheduled)
	jobs(store.RetryKey(queue), "retry", store.StateRetry)
	jobs(store.DueKey(queue), "due", store.StateScheduled+" "+store.StateRetry)
	jobs(store.FirstDueKey(queue), "first_due", strings.Join([]string{
		store.StatePending, store.StateScheduled, store.StateRetry, store.StateHeld, store.StateActive,
	}, " "))
	jobs(store.CompletedKey(queue), "completed", store.StateCompleted)
	for _, state := range []string{
		store.StateFailed, store.StateCancelled, store.StateExpired, store.StatePaused, store.StateWaiting,
		store.StateHeld,
	} {
		jobs(store.ParkedKey(queue, state), state, state)
	}
	jobs(store.ExpiryKey(queue), "expiry", "")
	add(store.HeldIndexKey(queue), p.setStep(heldKeysScript, queue, "heldkeys", "0", perSet))
	add(store.ActionsKey(queue), p.setStep(actionsScript, queue, "marked", "0", perSet))
	add(store.OutboxKey(queue), p.setStep(outboxScript, queue, "outbox", "0", perSet))
	add(store.BatchesKey(queue), p.setStep(batchesScript, queue, "batches", "0", perSet))
	return out
}

// indexes goes through those indexes of a queue that exist.
func (p *pass) indexes(queue string) step {
	return func(ctx context.Context) error {
		all := p.indexesOf(queue)
		exist := make([]*redis.IntCmd, len(all))
		if _, err := redispipe.Run(ctx, p.rdb, func(pipe redis.Pipeliner) error {
			for i, one := range all {
				exist[i] = pipe.Exists(ctx, one.key)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("look for indexes of %s: %w", queue, err)
		}
		var steps []step
		for i, one := range all {
			if exist[i].Val() == 1 {
				steps = append(steps, one.look)
			}
		}
		p.push(steps...)
		return nil
	}
}
