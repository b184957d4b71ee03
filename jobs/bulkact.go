package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// ActSummary is the result of an action on the jobs of a filter.
type ActSummary struct {
	// Done and Asked count as in ActResult.
	Done  int `json:"done"`
	Asked int `json:"asked"`
	// Refused counts jobs that moved to a status which does not allow the action, that have
	// expired, or that cannot run because of a parent.
	Refused int `json:"refused"`
}

// actable lists the statuses to which each action applies.
var actable = map[Action][]Status{
	ActionCancel: {Waiting, Pending, Running, RetryPending, Paused},
	ActionPause:  {Waiting, Pending, Running, RetryPending},
	ActionResume: {Paused, Running},
	ActionRetry:  {Failed, Cancelled},
	ActionExpire: {Waiting, Pending, RetryPending, Paused},
}

// allows reports whether an action of a filter applies to jobs in a status that the filter names. A failed job that
// blocks the later jobs of its key can be cancelled.
func allows(a Action, s Status) bool {
	return slices.Contains(actable[a], s) || a == ActionCancel && s == Failed
}

// cancellable leaves out the failed jobs that keep no place in the order of their key.
func (c *Client) cancellable(ctx context.Context, queue string, ids []string) ([]string, error) {
	cmds, err := redispipe.Each(ctx, c.rdb, ids, func(pipe redis.Pipeliner, id string) *redis.SliceCmd {
		return pipe.HMGet(ctx, store.TaskKey(queue, id), store.FieldState, store.FieldLine)
	})
	if err != nil {
		return nil, fmt.Errorf("read failed jobs: %w", err)
	}
	var out []string
	for i, cmd := range cmds {
		if f := cmd.Val(); f[0] != store.StateFailed || f[1] != nil {
			out = append(out, ids[i])
		}
	}
	return out, nil
}

// statesOf returns the states of records with one of the statuses.
func statesOf(statuses []Status) []string {
	var out []string
	for state, s := range statusOf {
		if slices.Contains(statuses, s) {
			out = append(out, state)
		}
	}
	slices.Sort(out)
	return out
}

// actAtOnce is how many jobs one round of ActWhere processes.
const actAtOnce = 1000

// mostPasses bounds the passes of ActWhere while jobs are enqueued faster than it acts.
const mostPasses = 10

// ActWhere applies an action to all jobs that a filter selects, whatever their number. A
// filter with statuses applies it only to jobs in one of them, even if they move meanwhile. A cancel applies to failed
// jobs only if the filter names that status, and then to the ones with [Job.Blocks].
// Jobs that are enqueued meanwhile may be left out. Errors: ErrInvalid, for a filter that
// selects everything for instance, or Redis's, with the counts of what was done before it.
func (c *Client) ActWhere(ctx context.Context, a Action, f Filter, opts ...ActOption) (ActSummary, error) {
	o, err := orderOf(a, opts)
	if err != nil {
		return ActSummary{}, err
	}
	b := bulk{c: c, order: o, counted: map[string]bool{}, queues: map[string]bool{}}
	err = b.run(ctx, a, f)
	if err == nil && b.sum.Done == 0 {
		err = b.invalid
	}
	// Last, so that children which the filter selects too are counted.
	for queue := range b.queues {
		err = errors.Join(err, c.releaseChildren(ctx, queue))
	}
	if err != nil {
		return b.sum, fmt.Errorf("jobs: %s: %w", a, err)
	}
	return b.sum, nil
}

// bulk is one ActWhere.
type bulk struct {
	c       *Client
	order   actOrder
	sum     ActSummary
	changed int             // since the start of the pass
	counted map[string]bool // ids that were counted as asked or refused
	queues  map[string]bool // with jobs that were acted on
	orphans []store.Ref     // retried, and cancelled again by a parent
	invalid error           // why a job could not be changed
}

func (b *bulk) run(ctx context.Context, a Action, f Filter) error {
	// Jobs move meanwhile: the next pass finds a job that has moved to a place already read.
	for range mostPasses {
		b.changed = 0
		err := b.c.walk(ctx, a, f, func(s source, states, ids []string) error {
			b.order.States = states
			return b.act(ctx, s.queue, ids)
		})
		if err != nil {
			return err
		}
		if a == ActionRetry { // another pass would retry jobs that have failed again
			return b.retryOrphans(ctx)
		}
		if b.changed == 0 {
			return nil
		}
	}
	return nil
}

func (b *bulk) act(ctx context.Context, queue string, ids []string) error {
	b.queues[queue] = true
	verdicts, err := b.c.act(ctx, b.order, queue, ids)
	for i, v := range verdicts {
		b.invalid = cmp.Or(b.invalid, v.Err)
		switch v.Effect {
		case store.Done, store.Orphan:
			b.sum.Done++
			b.changed++
		case store.Asked, store.Stuck:
			b.once(ids[i], &b.sum.Asked)
		case store.Refused, store.TooLate, store.Replaced:
			b.once(ids[i], &b.sum.Refused)
		case store.ParentDead:
			b.orphans = append(b.orphans, store.Ref{Queue: queue, ID: ids[i]})
		case store.Skipped, store.NotFound, store.Unreached, store.Changed:
		}
	}
	return err
}

// once counts a job that a later pass may find again.
func (b *bulk) once(id string, n *int) {
	if !b.counted[id] {
		b.counted[id] = true
		*n++
	}
}

// retryOrphans retries jobs again whose parents may have been retried after them, the oldest
// first because parents are older than their children.
func (b *bulk) retryOrphans(ctx context.Context) error {
	for b.changed > 0 && len(b.orphans) > 0 {
		again := b.orphans
		slices.Reverse(again)
		b.orphans, b.changed = nil, 0
		for len(again) > 0 {
			n := 1
			for n < len(again) && n < actAtOnce && again[n].Queue == again[0].Queue {
				n++
			}
			ids := make([]string, n)
			for i, ref := range again[:n] {
				ids[i] = ref.ID
			}
			if err := b.act(ctx, again[0].Queue, ids); err != nil {
				return err
			}
			again = again[n:]
		}
		slices.Reverse(b.orphans)
	}
	b.sum.Refused += len(b.orphans)
	return nil
}

// CountWhere counts the jobs that ActWhere would act on now. For a retry it includes jobs
// whose parents will cancel them again.
func (c *Client) CountWhere(ctx context.Context, a Action, f Filter) (int, error) {
	if _, err := orderOf(a, nil); err != nil {
		return 0, err
	}
	now, err := c.Now(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	err = c.walk(ctx, a, f, func(s source, states, ids []string) error {
		found, err := store.ReadStates(ctx, c.rdb, s.queue, ids)
		for _, st := range found {
			elsewhere := s.kind == list && st.Tombstone
			if !elsewhere && slices.Contains(states, st.State) && possible(a, st, now) {
				n++
			}
		}
		return err
	})
	if err != nil {
		return n, fmt.Errorf("jobs: count: %w", err)
	}
	return n, nil
}

// possible reports whether the action applies to a job in its present state.
func possible(a Action, st store.JobState, now time.Time) bool {
	overdue := !st.ExpiresAt.IsZero() && !now.Before(st.ExpiresAt)
	if st.State == store.StateActive || st.State == store.StateAccepted {
		return a == ActionCancel || a == ActionPause && st.Action != store.Cancel || a == ActionResume && st.Action == store.Pause
	}
	return !overdue || a == ActionExpire
}

// walk visits the ids that the filter selects, by source, with the states that allow the
// action.
func (c *Client) walk(ctx context.Context, a Action, f Filter, visit func(s source, states, ids []string) error) error {
	o := ListOptions{Filter: f, Limit: MaxPage}
	if err := o.validate(); err != nil {
		return err
	}
	named := f
	named.Keys = nil
	if len(f.Statuses) == 0 && f.Destination == "" && f.Batch == "" && !named.byRecord() {
		return &ValidationError{Fields: []FieldError{{"filter", "selects every job there is; give a status, a destination, a key, a batch, a label, a time, an error or a cause"}}}
	}
	statuses := actable[a]
	if len(f.Statuses) > 0 {
		// Skip statuses that do not allow the action.
		statuses = slices.DeleteFunc(slices.Clone(f.Statuses), func(s Status) bool { return !allows(a, s) })
		if len(statuses) == 0 {
			return nil
		}
	}
	states := statesOf(statuses)
	if act := visit; a == ActionCancel && slices.Contains(statuses, Failed) {
		visit = func(s source, states, ids []string) error {
			ids, err := c.cancellable(ctx, s.queue, ids)
			if err != nil || len(ids) == 0 {
				return err
			}
			return act(s, states, ids)
		}
	}
	f.Statuses = statuses
	sources, err := c.sources(ctx, f)
	if err != nil {
		return err
	}
	for _, s := range sources {
		walk := c.walkSource
		if a == ActionRetry {
			walk = c.walkBack
		}
		if err := walk(ctx, s, f, states, visit); err != nil {
			return err
		}
	}
	return nil
}

// mostBack is how many ids walkBack keeps.
const mostBack = 100_000

// walkBack is walkSource from the oldest job to the newest, so that failed jobs are retried in the order in which they
// failed, which is also their order within a key. It keeps up to mostBack ids; where a source has more, the newest mostBack
// are visited before the others.
func (c *Client) walkBack(ctx context.Context, s source, f Filter, states []string, visit func(s source, states, ids []string) error) error {
	var kept []string
	back := func() error {
		slices.Reverse(kept)
		for ids := range slices.Chunk(kept, actAtOnce) {
			if err := visit(s, states, ids); err != nil {
				return err
			}
		}
		kept = kept[:0]
		return nil
	}
	err := c.walkSource(ctx, s, f, states, func(_ source, _, ids []string) error {
		if kept = append(kept, ids...); len(kept) < mostBack {
			return nil
		}
		return back()
	})
	if err != nil {
		return err
	}
	return back()
}

// walkSource visits the ids of one source. It reads records only to filter by them: the
// scripts check the states.
func (c *Client) walkSource(ctx context.Context, s source, f Filter, states []string, visit func(s source, states, ids []string) error) error {
	cur := cursor{}
	for {
		heads, err := c.nextHeads(ctx, []source{s}, cur, actAtOnce)
		if err != nil {
			return err
		}
		h := heads[0]
		if len(h.ids) == 0 {
			return nil
		}
		ids := h.ids
		if f.byRecord() {
			if err := c.fill(ctx, heads); err != nil {
				return err
			}
			ids = nil
			for i, j := range h.jobs {
				if j != nil && f.matchesRecord(j) {
					ids = append(ids, h.ids[i])
				}
			}
		}
		cur[s.name] = h.after(len(h.ids) - 1)
		if len(ids) == 0 {
			continue
		}
		if err := visit(s, states, ids); err != nil {
			return err
		}
	}
}
