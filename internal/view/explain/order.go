package explain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"

	"github.com/redis/go-redis/v9"
)

// mostOrders bounds the orders of keys that one page reads. Further jobs are explained without the job that is first.
const mostOrders = 20

// InOrder reports whether the job waits behind another job of its key.
func InOrder(j *jobs.Job) bool { return store.Reason(j.ReasonCode).Code() == store.ReasonOrder }

// inOrder explains a job that waits behind another job of its key.
func (e *Explainer) inOrder(ctx context.Context, job *jobs.Job) (*Waiting, error) {
	w := &Waiting{Reason: Order, Text: "waiting behind another job of key " + job.Key}
	queue := e.ns().Queue(job.Destination, store.Priority(job.Priority))
	order := store.LineKey(queue, job.Key)
	first, read := e.orders[order]
	if !read {
		if len(e.orders) == mostOrders {
			return w, nil
		}
		var err error
		if first, err = e.firstInOrder(ctx, queue, job.Key); err != nil {
			return nil, err
		}
		e.orders[order] = first
	}
	switch {
	case first == nil || first.Status == jobs.Waiting && first.ID != job.ID:
		return w, nil // the next one takes its place just now
	case first.ID == job.ID:
		w.Text = "the next of key " + job.Key + "; a worker takes it up"
		return w, nil
	case first.Status == jobs.Failed:
		w.brief = "waiting behind " + first.ID + ", which failed: retry or cancel that job"
		w.Text = fmt.Sprintf("waiting behind %s of the same key, which failed: retry or cancel that job, and the jobs of key %s go on", first.ID, job.Key)
		return w, nil
	}
	why, err := e.Waiting(ctx, first)
	if err != nil {
		return nil, err
	}
	brief, text := does(first, why, e.now)
	w.brief = "waiting behind " + first.ID + ", " + brief
	w.Text = "waiting behind " + first.ID + " of the same key, " + text
	return w, nil
}

// firstInOrder reads the job that all others of a key wait behind; nil if there is none.
func (e *Explainer) firstInOrder(ctx context.Context, queue, key string) (*jobs.Job, error) {
	id, err := store.HeadOfLine(ctx, e.rdb, queue, key)
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	if id == "" {
		return nil, nil
	}
	// Not by the client: another destination may have a job of the same id.
	fields, err := e.rdb.HGetAll(ctx, store.TaskKey(queue, id)).Result()
	if err != nil {
		return nil, fmt.Errorf("explain: read the first job of key %s: %w", key, err)
	}
	if len(fields) == 0 {
		return nil, nil
	}
	first, err := store.JobOf[jobs.Job](nil, fields)
	if err != nil {
		return nil, fmt.Errorf("explain: read the first job of key %s: %w", key, err)
	}
	return first, nil
}

// does words what the first job of a key does, and why it waits: for a page that shows no times, and as a whole.
func does(first *jobs.Job, why *Waiting, now time.Time) (brief, text string) {
	switch {
	case first.Status == jobs.Running && (why == nil || why.Reason == Accepted):
		brief = "which is running"
	case why == nil:
		brief = "which has just ended"
	case why.Reason == Paused:
		return "which is paused", "which is " + why.Text
	case why.Reason == Queued:
		brief = "which waits for a call"
	case why.Reason == Retry && why.Until != nil:
		return "which waits for its retry", "which retries " + inAt(*why.Until, now)
	default:
		return "which waits", "which waits: " + why.Text
	}
	return brief, brief
}

// placeInOrder sets how many jobs of its key are before a job.
func (e *Explainer) placeInOrder(ctx context.Context, job *jobs.Job, w *Waiting) error {
	order := store.LineKey(e.ns().Queue(job.Destination, store.Priority(job.Priority)), job.Key)
	rank, err := e.rdb.ZRank(ctx, order, job.ID).Result()
	if errors.Is(err, redis.Nil) { // it has left since it was read
		return nil
	}
	if err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	n := int(rank)
	if w.KeyAhead = &n; n > 1 {
		w.Text += "; " + Count(n, "job", "jobs") + " of its key are ahead"
	}
	return nil
}
