package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	enqueueScript  = script("enqueue")
	addQueueScript = redis.NewScript(source("add_queue"))
)

// Bounds of one call of enqueue.lua: 200 jobs keep Redis busy for about a millisecond.
const (
	// enqueueAtOnce bounds the jobs; those with options count twice.
	enqueueAtOnce = 200
	// enqueueBytes bounds the payloads; a larger one goes alone.
	enqueueBytes = 1 << 20
	// enqueueParents bounds the parents; a job with more goes alone.
	enqueueParents = 1000
)

// NewJob is a job to enqueue.
type NewJob struct {
	ID      string
	Message []byte // encoded; see Message
	More    string // a JSON object; see enqueue.lua
	// Bytes of the payload, and number of parents.
	Bytes, Parents int
	Replaces       bool // has a replace-key
}

// Enqueued is the result of a NewJob. The zero value is a job that may not have been sent.
type Enqueued struct {
	Added  bool
	Exists bool // a job with the id exists
	// AvailableAt, ExpiresAt and ExpiredAt are set for a delay or a ttl, and for a job that
	// expired at once; zero otherwise.
	AvailableAt, ExpiresAt, ExpiredAt time.Time
	// Replaced is the job that it replaced, and State its own state then; "" for none.
	Replaced, State string
}

// NewJobs are jobs for one queue.
type NewJobs struct {
	Queue string
	Jobs  []NewJob
}

// Enqueue adds jobs to their queues, in their order in each, in one round trip. now is by the
// client's clock. After an error the results hold the jobs that were added all the same.
// Errors: Redis's.
func Enqueue(ctx context.Context, rdb redis.UniversalClient, now time.Time, all []NewJobs) ([][]Enqueued, error) {
	var calls []enqueueCall
	out := make([][]Enqueued, len(all))
	for i, n := range all {
		out[i] = make([]Enqueued, len(n.Jobs))
		calls = append(calls, n.calls(now, out[i])...)
	}
	run := func(i int) *redis.Cmd { return calls[i].eval(ctx, rdb, (*Script).Run) }
	var cmds []*redis.Cmd
	if len(calls) == 1 {
		cmds = []*redis.Cmd{run(0)}
	} else {
		cmds = evalAll(ctx, rdb, len(calls), func(c redis.Scripter, i int) *redis.Cmd {
			return calls[i].eval(ctx, c, (*Script).EvalSha)
		}, run)
	}
	var errs error
	for i, cmd := range cmds {
		v, err := valuesOf(cmd)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		for k := range calls[i].results {
			calls[i].results[k] = enqueuedOf(v.next())
		}
	}
	return out, errs
}

// enqueueCall is one call of enqueue.lua, and the results that it fills in.
type enqueueCall struct {
	queue   string
	args    []any
	results []Enqueued
}

func (e enqueueCall) eval(ctx context.Context, c redis.Scripter, eval evaluation) *redis.Cmd {
	return eval(enqueueScript, ctx, c, []string{PendingKey(e.queue)}, e.args...)
}

// calls splits jobs into calls within the bounds.
func (n NewJobs) calls(now time.Time, results []Enqueued) (calls []enqueueCall) {
	for from := 0; from < len(n.Jobs); {
		to, work, bytes, parents := from, 0, 0, 0
		args := []any{n.Queue, now.UnixNano()}
		for ; to < len(n.Jobs) && work < enqueueAtOnce; to++ {
			job := n.Jobs[to]
			work++
			if job.More != "" { // its places in sets of a million cost as much again
				work++
			}
			if job.Replaces { // up to 40 commands
				work += 3
			}
			bytes, parents = bytes+job.Bytes, parents+job.Parents
			if (bytes > enqueueBytes || parents > enqueueParents) && to > from {
				break
			}
			args = append(args, job.ID, job.Message, job.More)
		}
		calls = append(calls, enqueueCall{n.Queue, args, results[from:to]})
		from = to
	}
	return calls
}

func enqueuedOf(reply any) Enqueued {
	switch reply := reply.(type) {
	case int64:
		return Enqueued{Added: reply == 1, Exists: reply == 0}
	case []any:
		v := values{left: reply}
		e := Enqueued{Added: v.integer() == 1, AvailableAt: v.instant(), ExpiresAt: v.instant(), ExpiredAt: v.instant(), Replaced: v.text(), State: v.text()}
		if v.err == nil {
			return e
		}
	}
	return Enqueued{}
}

// AddQueue adds the queue of an unknown destination to asynq's set of queues, unless that
// holds most queues of the namespace already. Errors: Redis's.
func AddQueue(ctx context.Context, rdb redis.Scripter, queue string, most int) (added bool, err error) {
	n, err := addQueueScript.Run(ctx, rdb, []string{QueuesKey}, queue, most).Int()
	if err != nil {
		return false, fmt.Errorf("register queue %s: %w", queue, err)
	}
	return n == 1, nil
}
