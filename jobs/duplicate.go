package jobs

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// findElsewhere looks up given ids in queues other than their own, and among themselves; the
// enqueue script checks their own queue.
func (c *Client) findElsewhere(ctx context.Context, given []*prepared) (map[*prepared]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	all := given
	queues, err := c.ourQueues(ctx, true)
	if err != nil {
		return nil, err
	}
	found := map[*prepared]string{}
	for chunk := range slices.Chunk(given, 500) {
		if err := c.findIn(ctx, queues, chunk, found); err != nil {
			return nil, err
		}
	}
	first := map[string]*prepared{}
	for _, p := range all {
		earlier := first[p.job.ID]
		switch {
		case earlier == nil:
			first[p.job.ID] = p
		case found[earlier] == "" && found[p] == "" && (earlier.queue != p.queue || len(earlier.job.After) > 0 && len(p.job.After) == 0):
			found[p] = earlier.queue // a job with parents is sent after those without
		}
	}
	return found, nil
}

// findIn looks up a chunk of jobs in queues other than their own. Mostly there are none,
// which one command to each queue shows.
func (c *Client) findIn(ctx context.Context, queues []string, chunk []*prepared, found map[*prepared]string) error {
	some := make([]*redis.IntCmd, len(queues))
	elsewhere := func(q string) iter.Seq[*prepared] {
		return func(yield func(*prepared) bool) {
			for _, p := range chunk {
				if p.queue != q && !yield(p) {
					return
				}
			}
		}
	}
	_, err := redispipe.Run(ctx, c.rdb, func(pipe redis.Pipeliner) error {
		for i, q := range queues {
			var keys []string
			for p := range elsewhere(q) {
				keys = append(keys, store.TaskKey(q, p.job.ID))
			}
			if len(keys) > 0 {
				some[i] = pipe.Exists(ctx, keys...)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	type probe struct {
		p     *prepared
		queue string
		cmd   *redis.IntCmd
	}
	var probes []probe
	_, err = redispipe.Run(ctx, c.rdb, func(pipe redis.Pipeliner) error {
		for i, q := range queues {
			if some[i] == nil || some[i].Val() == 0 {
				continue
			}
			for p := range elsewhere(q) {
				probes = append(probes, probe{p, q, pipe.Exists(ctx, store.TaskKey(q, p.job.ID))})
			}
		}
		return nil
	})
	for _, pr := range probes {
		if pr.cmd.Val() == 1 {
			found[pr.p] = pr.queue
		}
	}
	return err
}

// duplicate is a job whose id exists in queue already.
type duplicate struct {
	p     *prepared
	queue string
}

// answerDuplicates fills in the results with the existing jobs.
func (c *Client) answerDuplicates(ctx context.Context, ds []duplicate, results []Result) error {
	const perRequest = 500
	for chunk := range slices.Chunk(ds, perRequest) {
		cmds, err := redispipe.Each(ctx, c.rdb, chunk, func(pipe redis.Pipeliner, d duplicate) *redis.MapStringStringCmd {
			return pipe.HGetAll(ctx, store.TaskKey(d.queue, d.p.job.ID))
		})
		if err != nil {
			return err
		}
		for i, d := range chunk {
			result := &results[d.p.index]
			fields := cmds[i].Val()
			if fields[store.FieldMsg] == "" {
				// It was deleted between the check and this read.
				result.Err = fmt.Errorf("jobs: enqueue: id %s was just deleted; try again", d.p.job.ID)
				continue
			}
			existing, err := fromRecord(fields)
			if err != nil {
				result.Err = fmt.Errorf("jobs: enqueue: id %s exists: %w", d.p.job.ID, err)
				continue
			}
			existing.Duplicate = true
			result.Job = existing
		}
	}
	return nil
}
