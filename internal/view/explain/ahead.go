package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// farthest bounds how many jobs are searched for one.
const farthest = 10_000

// Place sets in w how many jobs are before job in its queue. Jobs that wait for a time,
// for parents or for an operator are in none; of a job that waits behind another one of its key, its place among the
// jobs of the key is set. It costs up to four round trips and, in a long
// queue, Redis up to 10,000 steps: it is for single jobs. A nil w stays nil. Errors are
// Redis's.
func (e *Explainer) Place(ctx context.Context, job *jobs.Job, w *Waiting) error {
	if w != nil && w.Reason == Order {
		return e.placeInOrder(ctx, job, w)
	}
	if w == nil || job.Status != jobs.Pending {
		return nil
	}
	queue := e.ns().Queue(job.Destination, store.Priority(job.Priority))
	if Held(job) || inTurn(job) {
		return e.placeInKey(ctx, job, queue, w)
	}
	deferred := store.Reason(job.ReasonCode).Code() == store.ReasonBreakerOpen
	if !deferred && dueAt(job).After(e.now) {
		return nil
	}
	if found, err := e.placeInQueue(ctx, job, queue, w, deferred); err != nil || !found {
		return err
	}
	w.addPlace()
	if rate := e.breakers[job.Destination].Rate; !deferred && w.Reason == ByRate && rate != nil && !w.reserved && !strings.HasPrefix(w.Text, "limit ") {
		known, cost := 0, w.ahead()
		if w.Ahead != nil {
			var err error
			if known, cost, err = e.costAhead(ctx, queue, w.ahead()); err != nil {
				return err
			}
		}
		w.addTurn(*forCost(e.breakers[job.Destination], job.Cost).Rate, cost, known, w.others, e.now)
	}
	return nil
}

// placeInKey is Place for a job that waits for the turn or the limits of its key.
func (e *Explainer) placeInKey(ctx context.Context, job *jobs.Job, queue string, w *Waiting) error {
	_, key := holder(job)
	var rank, keys *redis.IntCmd
	_, err := redispipe.Run(ctx, e.rdb, func(pipe redis.Pipeliner) error {
		rank = pipe.ZRank(ctx, store.HeldJobsKey(queue, key), job.ID)
		keys = pipe.ZRank(ctx, store.TurnsKey(queue), key)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("explain: %w", err)
	}
	if w.Reason == Turn {
		w.Text += "; " + keysBefore(keys.Val())
	}
	if errors.Is(rank.Err(), redis.Nil) { // it has left since it was read
		return nil
	}
	n := int(rank.Val())
	w.Rank, w.KeyAhead = &n, &n
	if least := n + int(keys.Val()); w.Reason == Turn && least > 0 {
		w.AheadAtLeast = &least // one of each key before it, and a key may have several turns
	} else {
		w.Ahead = &n
	}
	w.addPlace()
	return nil
}

// placeInQueue finds the job in its queue, or among the jobs that its breaker deferred. When the breaker closes,
// deferred jobs go behind the jobs in the queue, in the order in which they are due. Its place is not exact where
// keys may take turns, and far behind jobs that have left the queue.
func (e *Explainer) placeInQueue(ctx context.Context, job *jobs.Job, queue string, w *Waiting, deferred bool) (found bool, err error) {
	var length, index, keyed, turns, held *redis.IntCmd
	var gone *redis.StringCmd
	var urgent, others []*redis.IntCmd
	by := store.DeferredKey(queue, store.Reason(job.ReasonCode).About())
	// No transaction: a full Redis queues none, and a job more or less matters little.
	_, err = redispipe.Run(ctx, e.rdb, func(pipe redis.Pipeliner) error {
		length = pipe.LLen(ctx, store.PendingKey(queue))
		if deferred {
			index = pipe.ZRank(ctx, by, job.ID)
		} else { // jobs are taken from the list's end
			index = pipe.LPos(ctx, store.PendingKey(queue), job.ID, redis.LPosArgs{Rank: -1, MaxLen: farthest})
		}
		keyed, turns = pipe.Exists(ctx, store.KeyedKey(queue)), pipe.ZCard(ctx, store.TurnsKey(queue))
		gone, held = pipe.Get(ctx, store.TombstonesKey(queue)), pipe.ZCard(ctx, store.HeldJobsKey(queue, job.Key))
		for i, q := range e.ns().Queues(job.Destination) {
			if n := pipe.LLen(ctx, store.PendingKey(q)); q != queue {
				others = append(others, n)
			}
			if i < slices.Index(store.Priorities, store.Priority(job.Priority)) {
				urgent = append(urgent, others[len(others)-1], pipe.ZCard(ctx, store.HeldKey(q)))
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("explain: %w", err)
	}
	w.MoreUrgent = new(int)
	for _, n := range urgent {
		*w.MoreUrgent += int(n.Val())
	}
	w.others = slices.ContainsFunc(others, func(n *redis.IntCmd) bool { return n.Val() > 0 })
	n := max(0, int(length.Val()-1-index.Val()))
	if deferred {
		n = int(length.Val() + index.Val())
	}
	tombstones, _ := strconv.Atoi(gone.Val())
	unsorted := keyed.Val() == 0 && turns.Val() == 0
	switch {
	case index.Err() != nil && (deferred || length.Val() <= farthest):
		return false, nil // it has left the queue since it was read
	case index.Err() != nil && unsorted:
		least := max(0, farthest-tombstones)
		w.AheadAtLeast = &least
		return true, nil
	case index.Err() != nil:
		n = farthest
	default:
		w.Rank = &n
	}
	if n == 0 && turns.Val() == 0 || unsorted && tombstones == 0 {
		w.Ahead = &n
		return true, nil
	}
	inLine, same, err := e.count(ctx, job, queue, min(n, int(length.Val())))
	if err != nil {
		return false, err
	}
	exact := max(0, n-tombstones)
	if !deferred && n <= mostRead {
		exact = inLine
	}
	least := max(inLine, exact)
	switch {
	case unsorted:
	case keyed.Val() == 0: // KEY_BY gives them keys
		least = 0
	default:
		least = same + int(held.Val())
	}
	if unsorted && (deferred || n <= mostRead) {
		w.Ahead = &exact
	} else {
		w.AheadAtLeast = &least
	}
	return true, nil
}

// count counts the jobs among the first ones of a queue that have not left it, and those with the key of a job: keys
// take turns, and each keeps its order.
func (e *Explainer) count(ctx context.Context, job *jobs.Job, queue string, n int) (inLine, same int, err error) {
	first, err := e.first(ctx, queue, n)
	for _, f := range first {
		if f[store.FieldState] != store.StatePending {
			continue
		}
		inLine++
		if f[store.FieldKey] == job.Key {
			same++
		}
	}
	return inLine, same, err
}

// costAhead is what the first jobs of a queue cost, and of how many it knows that: the others are
// taken to cost 1.
func (e *Explainer) costAhead(ctx context.Context, queue string, ahead int) (known, cost int, err error) {
	first, err := e.first(ctx, queue, ahead)
	for _, f := range first {
		cost += store.CostOf(f[store.FieldMsg])
	}
	return len(first), cost + max(0, ahead-len(first)), err
}

// mostRead bounds the jobs ahead that are read.
const mostRead = 100

// first reads the outlines, states and keys of the first n jobs of a queue, at most mostRead.
func (e *Explainer) first(ctx context.Context, queue string, n int) ([]map[string]string, error) {
	if n == 0 {
		return nil, nil
	}
	keys, err := e.rdb.LRange(ctx, store.PendingKey(queue), -int64(min(n, mostRead)), -1).Result()
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	for i, id := range keys {
		keys[i] = store.TaskKey(queue, id)
	}
	out, _, err := store.Outlines(ctx, e.rdb, keys, []string{store.FieldState, store.FieldKey})
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	return out, nil
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

// place words how many jobs are ahead.
func (w *Waiting) place() string {
	words := Count(w.ahead(), "job is", "jobs are") + " ahead"
	switch {
	case w.Ahead != nil && *w.Ahead == 0:
		words = "next in line"
	case w.Ahead == nil && *w.AheadAtLeast == 0:
		words = "keys may take turns"
	case w.Ahead == nil:
		words = "at least " + words
	}
	if w.MoreUrgent != nil && *w.MoreUrgent > 0 {
		words += ", and " + Count(*w.MoreUrgent, "more urgent job waits", "more urgent jobs wait")
	}
	return words
}

// addPlace adds its place in the queue to the text.
func (w *Waiting) addPlace() {
	switch w.Reason {
	case Turn:
		if *w.KeyAhead > 0 {
			w.Text += "; " + Count(*w.KeyAhead, "job is", "jobs are") + " ahead in its own"
		}
	case BreakerOpen, BreakerTripped, BreakerProbing:
		w.Text += "; " + w.place()
	case Queued:
		switch first := w.Ahead != nil && *w.Ahead == 0; {
		case w.pace != "":
			w.Text = "waiting for its turn: " + w.place() + "; " + w.pace
		case w.Text == inLine && first && *w.MoreUrgent == 0:
			w.Text, w.brief = nextInLine, nextInLine
		case w.Text == inLine:
			w.Text = "waiting for its turn: " + w.place()
		case first:
			w.Text = "next " + w.Text
		}
	}
}
