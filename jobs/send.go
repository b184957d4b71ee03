package jobs

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/enqueue.lua
var enqueueSource string

var enqueueScript = store.NewScript(enqueueSource)

// sendTo enqueues the jobs of one queue, which asynq then knows of. Where no queue is made
// for a destination that is not known, that is the result of each.
func (c *Client) sendTo(ctx context.Context, queue string, ps []*prepared, elsewhere map[*prepared]string, results []Result) ([]duplicate, error) {
	if err := c.publish(ctx, queue); errors.Is(err, ErrUnknownDestination) {
		for _, p := range ps {
			results[p.index].Err = fmt.Errorf("jobs: enqueue: %w", err)
		}
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return c.send(ctx, queue, ps, elsewhere, results)
}

var errAnswer = errors.New("the answer is not one of enqueue.lua")

// send enqueues the jobs of one queue and fills in the results of those that
// were accepted; the others are returned.
func (c *Client) send(ctx context.Context, queue string, ps []*prepared, elsewhere map[*prepared]string, results []Result) ([]duplicate, error) {
	keys := []string{store.PendingKey(queue)}
	var fresh []*prepared
	var duplicates []duplicate
	for _, p := range ps {
		if q, ok := elsewhere[p]; ok {
			duplicates = append(duplicates, duplicate{p, q})
			continue
		}
		fresh = append(fresh, p)
	}
	for len(fresh) > 0 {
		n := min(len(fresh), jobsPerRequest)
		verdicts, err := c.run(ctx, keys, queue, fresh[:n])
		for i, v := range verdicts {
			p := fresh[i]
			switch {
			case v == 1 || (v == 0 && !p.given):
				// A new UUID that exists is our own: an earlier try was
				// stored and its reply lost.
				results[p.index].Job = p.job
			case v == 0:
				duplicates = append(duplicates, duplicate{p, queue})
			default: // sent, perhaps
				results[p.index].Err = fmt.Errorf("jobs: enqueue: write to Redis: %w", cmp.Or(err, errAnswer))
			}
		}
		if err != nil {
			return duplicates, fmt.Errorf("write to Redis: %w", err)
		}
		fresh = fresh[n:]
	}
	return duplicates, nil
}

// run sends prepared jobs in one round trip and returns a verdict for each: 1
// enqueued, 0 exists, -1 not sent. On an error the verdicts tell what came
// through before it.
func (c *Client) run(ctx context.Context, keys []string, queue string, ps []*prepared) ([]int64, error) {
	verdicts := make([]int64, len(ps))
	for i := range verdicts {
		verdicts[i] = -1
	}
	type call struct {
		from int
		args []any
		cmd  *redis.Cmd
	}
	var calls []*call
	nowNS := c.now().UnixNano()
	for from := 0; from < len(ps); {
		to, size, parents := from, 0, 0
		for ; to < len(ps) && to-from < jobsPerScript; to++ {
			size += len(ps[to].job.Payload)
			parents += len(ps[to].job.After)
			if (size > bytesPerScript || parents > parentsPerScript) && to > from {
				break
			}
		}
		chunk := ps[from:to]
		args := make([]any, 0, 2+3*len(chunk))
		args = append(args, queue, nowNS)
		for _, p := range chunk {
			args = append(args, p.args[0], p.args[1], p.args[2])
		}
		calls = append(calls, &call{from: from, args: args})
		from = to
	}
	if len(calls) > 1 {
		// A pipeline cannot fall back to EVAL by itself.
		if err := enqueueScript.Load(ctx, c.rdb).Err(); err != nil {
			return verdicts, err
		}
		_, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, cl := range calls {
				cl.cmd = enqueueScript.EvalSha(ctx, pipe, keys, cl.args...)
			}
			return nil
		})
		if err != nil && calls[0].cmd == nil {
			return verdicts, err
		}
	} else {
		calls[0].cmd = enqueueScript.Run(ctx, c.rdb, keys, calls[0].args...)
	}
	var firstErr error
	for _, cl := range calls {
		got, err := cl.cmd.Slice()
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			got, err = enqueueScript.Run(ctx, c.rdb, keys, cl.args...).Slice()
		}
		if err != nil {
			firstErr = errors.Join(firstErr, err)
			continue
		}
		for i, answer := range got {
			verdicts[cl.from+i] = ps[cl.from+i].answered(answer)
		}
	}
	return verdicts, firstErr
}

// answered takes the answer of enqueue.lua for one job.
func (p *prepared) answered(answer any) int64 {
	values, ok := answer.([]any)
	if !ok {
		n, _ := answer.(int64)
		return n
	}
	if len(values) != 4 {
		return -1
	}
	instant := func(i int) (t time.Time, ok bool) {
		text, _ := values[i].(string)
		ms, err := strconv.ParseInt(text, 10, 64)
		return time.UnixMilli(ms).UTC(), err == nil
	}
	if t, ok := instant(1); ok {
		p.job.AvailableAt = t
	}
	if t, ok := instant(2); ok {
		p.job.ExpiresAt = &t
	}
	if t, ok := instant(3); ok {
		p.job.Status, p.job.MarkedExpiredAt, p.job.EndedAt = Expired, &t, &t
	}
	return 1
}
