package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/redispipe"
	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// farthest bounds how many jobs are searched for one.
const farthest = 10_000

// Place sets in w how many jobs are before job in its queue. Jobs that wait for a time,
// for parents or for an operator are in none. It costs up to three round trips and, in a long
// queue, Redis up to 10,000 steps: it is for single jobs. A nil w stays nil. Errors are
// Redis's.
func (e *Explainer) Place(ctx context.Context, job *jobs.Job, w *Waiting) error {
	if w == nil || job.Status != jobs.Pending {
		return nil
	}
	queue := e.ns().Queue(job.Destination, store.Priority(job.Priority))
	if Held(job) || inTurn(job) {
		_, key := holder(job)
		rank, err := e.rdb.ZRank(ctx, store.HeldJobsKey(queue, key), job.ID).Result()
		if err == nil && w.Reason == Turn {
			keys, err := e.rdb.ZRank(ctx, store.TurnsKey(queue), key).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return fmt.Errorf("explain: %w", err)
			}
			w.Text += "; " + keysBefore(keys)
		}
		switch {
		case errors.Is(err, redis.Nil):
			return nil
		case err != nil:
			return fmt.Errorf("explain: %w", err)
		}
		n := int(rank)
		w.Ahead = &n
		w.addPlace()
		return nil
	}
	if store.Reason(job.ReasonCode).Code() == store.ReasonBreakerOpen {
		return e.placeOfDeferred(ctx, job, queue, w)
	}
	if dueAt(job).After(e.now) {
		return nil
	}
	var length *redis.IntCmd
	var index *redis.IntCmd
	var others []*redis.IntCmd
	// No transaction: a full Redis queues none, and a job more or less matters little.
	_, err := redispipe.Run(ctx, e.rdb, func(pipe redis.Pipeliner) error {
		length = pipe.LLen(ctx, store.PendingKey(queue))
		// Jobs are taken from the list's end.
		index = pipe.LPos(ctx, store.PendingKey(queue), job.ID, redis.LPosArgs{Rank: -1, MaxLen: farthest})
		for _, q := range e.ns().Queues(job.Destination) {
			if q != queue {
				others = append(others, pipe.LLen(ctx, store.PendingKey(q)))
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("explain: %w", err)
	}
	switch n := max(0, int(length.Val()-1-index.Val())); {
	case index.Err() == nil:
		w.Ahead = &n
	case length.Val() > farthest:
		least := farthest
		w.AheadAtLeast = &least
	default: // it has left the queue since it was read
		return nil
	}
	w.addPlace()
	if rate := e.breakers[e.workers.ServedBy(job.Destination)].Rate; w.Reason == ByRate && rate != nil && !w.reserved && !strings.HasPrefix(w.Text, "limit ") {
		waiting := slices.ContainsFunc(others, func(n *redis.IntCmd) bool { return n.Val() > 0 })
		known, cost, err := e.costAhead(ctx, queue, w.ahead())
		if err != nil {
			return err
		}
		w.addTurn(*forCost(e.breakers[e.workers.ServedBy(job.Destination)], job.Cost).Rate, cost, known, waiting, e.now)
	}
	return nil
}

// mostCosts bounds the jobs whose costs are read.
const mostCosts = 100

// costAhead is what the first jobs of a queue cost, and of how many it knows that: the others are
// taken to cost 1.
func (e *Explainer) costAhead(ctx context.Context, queue string, ahead int) (known, cost int, err error) {
	if ahead == 0 {
		return 0, 0, nil
	}
	ids, err := e.rdb.LRange(ctx, store.PendingKey(queue), -int64(min(ahead, mostCosts)), -1).Result()
	if err != nil {
		return 0, 0, fmt.Errorf("explain: %w", err)
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = store.TaskKey(queue, id)
	}
	outlines, _, err := store.Outlines(ctx, e.rdb, keys, nil)
	if err != nil {
		return 0, 0, fmt.Errorf("explain: %w", err)
	}
	for _, o := range outlines {
		cost += store.CostOf(o[store.FieldMsg])
	}
	return len(ids), cost + max(0, ahead-len(ids)), nil
}

// ahead is how many jobs are ahead at least.
func (w *Waiting) ahead() int {
	if w.Ahead == nil {
		return *w.AheadAtLeast
	}
	return *w.Ahead
}

// keysBefore words how many keys have their turn before a job's.
func keysBefore(n int64) string {
	switch n {
	case 0:
		return "its key is the next"
	case 1:
		return "1 key is before its own"
	}
	return fmt.Sprintf("%d keys are before its own", n)
}

// placeOfDeferred is Place for a job that a breaker deferred. When the breaker closes,
// these go behind the jobs in the queue, in the order in which they are due.
func (e *Explainer) placeOfDeferred(ctx context.Context, job *jobs.Job, queue string, w *Waiting) error {
	var length, rank *redis.IntCmd
	_, err := redispipe.Run(ctx, e.rdb, func(pipe redis.Pipeliner) error {
		length = pipe.LLen(ctx, store.PendingKey(queue))
		rank = pipe.ZRank(ctx, store.DeferredKey(queue, store.Reason(job.ReasonCode).About()), job.ID)
		return nil
	})
	switch {
	case errors.Is(err, redis.Nil): // it has left since it was read
		return nil
	case err != nil:
		return fmt.Errorf("explain: %w", err)
	}
	n := int(length.Val() + rank.Val())
	w.Ahead = &n
	w.addPlace()
	return nil
}

// place words how many jobs are ahead.
func (w *Waiting) place() string {
	switch {
	case w.Ahead == nil:
		return fmt.Sprintf("more than %d jobs are ahead", *w.AheadAtLeast)
	case *w.Ahead == 0:
		return "next in line"
	case *w.Ahead == 1:
		return "1 job is ahead"
	}
	return fmt.Sprintf("%d jobs are ahead", *w.Ahead)
}

// addPlace adds its place in the queue to the text.
func (w *Waiting) addPlace() {
	switch w.Reason {
	case Turn:
		if *w.Ahead > 0 {
			w.Text += "; " + w.place() + " in its own"
		}
	case BreakerOpen, BreakerTripped, BreakerProbing:
		w.Text += "; " + w.place()
	case Queued:
		switch first := w.Ahead != nil && *w.Ahead == 0; {
		case w.Text == inLine && first:
			w.Text = nextInLine
		case w.Text == inLine:
			w.Text = "waiting for its turn: " + w.place()
		case first:
			w.Text = "next " + w.Text
		}
	}
}
