package jobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// findElsewhere looks given ids up in the queues that they are not for, and among
// themselves; the enqueue script itself checks the one that they are for.
func (c *Client) findElsewhere(ctx context.Context, given []*prepared) (map[*prepared]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	all := given
	queues, err := c.ourQueues(ctx, true)
	if err != nil {
		return nil, err
	}
	type probe struct {
		p     *prepared
		queue string
		cmd   *redis.IntCmd
	}
	found := map[*prepared]string{}
	for len(given) > 0 {
		n := min(len(given), 500)
		chunk := given[:n]
		given = given[n:]
		var probes []probe
		_, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, p := range chunk {
				for _, q := range queues {
					if q != p.queue {
						probes = append(probes, probe{p, q, pipe.Exists(ctx, record.Task(q, p.job.ID))})
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, pr := range probes {
			if pr.cmd.Val() == 1 {
				found[pr.p] = pr.queue
			}
		}
	}
	first := map[string]*prepared{}
	for _, p := range all {
		earlier := first[p.job.ID]
		switch {
		case earlier == nil:
			first[p.job.ID] = p
		case found[earlier] == "" && found[p] == "" && (earlier.queue != p.queue || len(earlier.job.After) > 0 && len(p.job.After) == 0):
			found[p] = earlier.queue // one with parents is sent after those without
		}
	}
	return found, nil
}

// duplicate is a job whose id exists in queue already.
type duplicate struct {
	p     *prepared
	queue string
}

// answerDuplicates returns the jobs that have the ids already.
func (c *Client) answerDuplicates(ctx context.Context, ds []duplicate, results []Result) error {
	const perRequest = 500
	for chunk := range slices.Chunk(ds, perRequest) {
		cmds := make([]*redis.MapStringStringCmd, len(chunk))
		if _, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, d := range chunk {
				cmds[i] = pipe.HGetAll(ctx, record.Task(d.queue, d.p.job.ID))
			}
			return nil
		}); err != nil {
			return err
		}
		for i, d := range chunk {
			result := &results[d.p.index]
			fields := cmds[i].Val()
			if fields[record.FieldMsg] == "" {
				// It was deleted between the check and this read.
				result.Err = fmt.Errorf("jobs: enqueue: id %s was just deleted; try again", d.p.job.ID)
				continue
			}
			existing, err := FromRecord(fields)
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
