package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

var completeScript = script("complete")

// Response is the stored answer of the destination.
type Response struct {
	Status int
	Body   string
}

// Completion is one job that has completed.
type Completion struct {
	ID       string
	Response *Response     // nil without one
	Output   string        // "" without one
	Reason   Reason        // "" if no rule decided
	Took     time.Duration // of the call
}

// CompleteArgs are jobs of one queue that have completed.
type CompleteArgs struct {
	Queue, Worker string
	// Retention of the jobs, in whole seconds.
	Retention time.Duration
	Jobs      []Completion
}

// Completed is the effect of a completion on a job.
type Completed int64

// The effects of a completion.
const (
	CompletedGone   Completed = 0 // the job does not exist any more
	CompletedNow    Completed = 1
	CompletedBefore Completed = 2 // a repeated call
	CompletedParent Completed = 3 // now, and it has children to release
)

// processedFor is how long the count of a day is kept, as asynq does.
const processedFor = 90 * 24 * time.Hour

func (a CompleteArgs) eval(ctx context.Context, c redis.Scripter, eval evaluation) *redis.Cmd {
	now, processed := time.Now().UTC(), ProcessedKey(a.Queue)
	keys := []string{
		ActiveKey(a.Queue), LeaseKey(a.Queue), CompletedKey(a.Queue),
		processed + ":" + now.Format(time.DateOnly), processed,
	}
	args := make([]any, 0, 5+4*len(a.Jobs))
	args = append(args, a.Queue, now.Add(processedFor).Unix(), int64(a.Retention/time.Second), a.Worker, 0)
	extras := 0
	for _, job := range a.Jobs {
		if job.Output != "" || job.Reason != "" {
			extras++
			args = append(args, job.ID, job.Output, string(job.Reason))
		}
	}
	args[4] = extras
	for _, job := range a.Jobs {
		status, body := job.Response.args()
		args = append(args, job.ID, status, body, Millis(job.Took))
	}
	return eval(completeScript, ctx, c, keys, args...)
}

// args are the status and the body, "" without an answer.
func (r *Response) args() (status, body string) {
	if r == nil {
		return "", ""
	}
	return strconv.Itoa(r.Status), r.Body
}

func (a CompleteArgs) reply(cmd *redis.Cmd) ([]Completed, error) {
	results, err := cmd.Int64Slice()
	if err == nil && len(results) != len(a.Jobs) {
		err = fmt.Errorf("%d results for %d jobs", len(results), len(a.Jobs))
	}
	if err != nil {
		return nil, fmt.Errorf("complete jobs of %s: %w", a.Queue, err)
	}
	out := make([]Completed, len(results))
	for i, n := range results {
		out[i] = Completed(n)
	}
	return out, nil
}

// Complete completes jobs and returns the result for each job. A second call changes nothing.
// Errors: Redis's.
func Complete(ctx context.Context, rdb redis.Scripter, a CompleteArgs) ([]Completed, error) {
	return a.reply(a.eval(ctx, rdb, (*Script).Run))
}

// CompleteAndFetch completes jobs and fetches others in one round trip, on Cluster in two. fetched is called
// with the reply of the fetch, even where the completion failed.
func CompleteAndFetch(ctx context.Context, rdb redis.UniversalClient, a CompleteArgs, f FetchArgs, fetched func(FetchReply, error)) ([]Completed, error) {
	if _, cluster := rdb.(*redis.ClusterClient); cluster {
		// While a slot moves, go-redis v9.23.0 may send a command of a pipeline to two nodes at once.
		completed, err := Complete(ctx, rdb, a)
		fetched(Fetch(ctx, rdb, f))
		return completed, err
	}
	var completion, fetch *redis.Cmd
	_, _ = redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error { // each command has its own error
		completion = a.eval(ctx, pipe, (*Script).EvalSha)
		fetch = f.eval(ctx, pipe, (*Script).EvalSha)
		return nil
	})
	fetched(f.reply(fetch))
	if redis.HasErrorPrefix(completion.Err(), "NOSCRIPT") {
		return Complete(ctx, rdb, a)
	}
	return a.reply(completion)
}
