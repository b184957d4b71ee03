package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// index is a set of a queue and how its entries are checked.
type index struct {
	queue, key string
	where      string // its name in findings
	check, of  string // as in entries.lua
}

// part is the call for the entries of an index from cursor on.
func (i index) part(cursor string) call {
	return call{entriesScript, i.queue, []any{i.key, i.check, i.of, cursor, perSet}}
}

// leases is the index of the jobs in flight.
func leases(queue string) index {
	return index{queue, store.LeaseKey(queue), "lease", "lease", fmt.Sprint(store.Lease.Milliseconds())}
}

// indexesOf returns the indexes of a queue, except the pending list, the indexes of jobs in flight, and the sets of
// single batches, keys and breakers, which the scan of the keys finds.
func indexesOf(queue string) []index {
	var out []index
	add := func(key, where, check string) { out = append(out, index{queue, key, where, check, ""}) }
	jobs := func(key, where string, states ...string) {
		out = append(out, index{queue, key, where, "jobs", strings.Join(states, " ")})
	}
	add("asynq:{"+queue+"}:archived", "archived", "archived")
	jobs(store.ScheduledKey(queue), "scheduled", store.StateScheduled)
	jobs(store.RetryKey(queue), "retry", store.StateRetry)
	jobs(store.DueKey(queue), "due", store.StateScheduled, store.StateRetry)
	jobs(store.FirstDueKey(queue), "first_due",
		store.StatePending, store.StateScheduled, store.StateRetry, store.StateHeld, store.StateActive)
	jobs(store.CompletedKey(queue), "completed", store.StateCompleted)
	for _, state := range []string{
		store.StateFailed, store.StateCancelled, store.StateExpired, store.StatePaused, store.StateWaiting,
		store.StateHeld, store.StateAccepted,
	} {
		jobs(store.ParkedKey(queue, state), state, state)
	}
	jobs(store.ExpiryKey(queue), "expiry")
	add(store.HeldIndexKey(queue), "heldkeys", "held_keys")
	add(store.TurnsKey(queue), "turns", "turns")
	add(store.ActionsKey(queue), "marked", "actions")
	add(store.ReplaceKey(queue), "replace", "replace")
	add(store.OutboxKey(queue), "outbox", "outbox")
	add(store.BatchesKey(queue), "batches", "batches")
	return out
}

// indexes goes through those indexes of a queue that exist.
func (p *pass) indexes(queue string) step {
	return func(ctx context.Context) error {
		all := indexesOf(queue)
		exist, err := redispipe.Each(ctx, p.rdb, all, func(pipe redis.Pipeliner, one index) *redis.IntCmd {
			return pipe.Exists(ctx, one.key)
		})
		if err != nil {
			return fmt.Errorf("look for indexes of %s: %w", queue, err)
		}
		var some []index
		for i, one := range all {
			if exist[i].Val() == 1 {
				some = append(some, one)
			}
		}
		p.pushEntries(some)
		return nil
	}
}

// pushEntries goes through indexes, the first parts of a few in one round trip.
func (p *pass) pushEntries(all []index) {
	var steps []step
	for some := range slices.Chunk(all, perTrip) {
		steps = append(steps, func(ctx context.Context) error {
			calls := make([]call, len(some))
			for i, one := range some {
				calls[i] = one.part("0")
			}
			replies, err := p.runAll(ctx, calls)
			if err != nil {
				return fmt.Errorf("check %s: %w", some[0].where, err)
			}
			for i, one := range some {
				if err := p.entries(one, replies[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	p.push(steps...)
}

// entries takes the reply for a part of an index, and pushes the next part.
func (p *pass) entries(one index, values []any) error {
	r := reply{values: values}
	next := r.text(0)
	p.take(one.queue, one.where, r.texts(2))
	if next != "0" && !r.bad {
		p.push(func(ctx context.Context) error {
			c := one.part(next)
			values, err := p.run(ctx, c.script, c.queue, c.args...)
			if err != nil {
				return fmt.Errorf("check %s of %s: %w", one.where, one.queue, err)
			}
			return p.entries(one, values)
		})
	}
	return r.err("check "+one.where, one.queue)
}

// inFlight checks the jobs in flight of queues.
func (p *pass) inFlight(ctx context.Context, queues []string) error {
	todo := p.todo
	p.todo = nil // what follows is done at once
	for chunk := range slices.Chunk(queues, perTrip) {
		var calls []call
		for _, q := range chunk {
			calls = append(calls, call{activeScript, q, []any{0, perSet}}, leases(q).part("0"))
		}
		replies, err := p.runAll(ctx, calls)
		if err != nil {
			return fmt.Errorf("check jobs in flight: %w", err)
		}
		for i, q := range chunk {
			if err := p.active(ctx, q, replies[2*i]); err != nil {
				return err
			}
			if err := p.entries(leases(q), replies[2*i+1]); err != nil {
				return err
			}
		}
		for len(p.todo) > 0 {
			if err := p.next(ctx); err != nil {
				return err
			}
		}
	}
	p.todo = todo
	return nil
}

// active takes the reply for the first part of the list of jobs in flight, and checks the rest.
func (p *pass) active(ctx context.Context, queue string, values []any) error {
	for {
		r := reply{values: values}
		at := r.int(0)
		p.take(queue, "active", r.texts(2))
		if err := r.err("check jobs in flight", queue); err != nil || at < 0 {
			return err
		}
		var err error
		if values, err = p.run(ctx, activeScript, queue, at, perSet); err != nil {
			return fmt.Errorf("check jobs in flight of %s: %w", queue, err)
		}
	}
}
