package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// BatchStatus is how far a batch is. Jobs whose retention has ended are not
// counted any more.
type BatchStatus struct {
	Batch string `json:"batch"`
	Total int    `json:"total"`
	// Counts by status; statuses without jobs are left out.
	Counts map[Status]int `json:"counts"`
	// Progress is the part that has ended, however it did: 0 to 1.
	Progress float64 `json:"progress"`
	// Done is true when all jobs have ended. More can be added all the same.
	Done bool `json:"done"`
}

// Batch counts the jobs of a batch. It looks at each of them, a thousand at a time:
// about 0.1 s for 100,000. Errors: ErrNotFound, or Redis's.
func (c *Client) Batch(ctx context.Context, name string) (*BatchStatus, error) {
	if !ValidName(name) {
		return nil, fmt.Errorf("jobs: batch %q: %w", clip(name), ErrNotFound)
	}
	queues, err := c.queuesOfBatch(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("jobs: batch %s: %w", name, err)
	}
	for _, q := range queues {
		// Those whose time is over count as what they are, and so do their children.
		if err := c.sweep(ctx, q, math.MaxInt); err != nil {
			return nil, fmt.Errorf("jobs: batch %s: %w", name, err)
		}
	}
	b := &BatchStatus{Batch: name, Counts: map[Status]int{}}
	ended := 0
	for _, q := range queues {
		counts, err := store.CountBatch(ctx, c.rdb, q, name)
		if err != nil {
			return nil, fmt.Errorf("jobs: batch %s: %w", name, err)
		}
		for state, n := range counts {
			s, ok := statusOf[state]
			if !ok {
				continue
			}
			b.Counts[s] += n
			b.Total += n
			if s.Final() {
				ended += n
			}
		}
	}
	if b.Total == 0 {
		return nil, fmt.Errorf("jobs: batch %s: %w", name, ErrNotFound)
	}
	b.Progress = float64(ended) / float64(b.Total)
	b.Done = ended == b.Total
	return b, nil
}

// BatchSize is how many jobs the batch has, ended ones included until their retention
// ends; 0 for an unknown batch. It costs two round trips whatever their number.
// Errors: Redis's.
func (c *Client) BatchSize(ctx context.Context, name string) (int, error) {
	if !ValidName(name) {
		return 0, nil
	}
	queues, err := c.listedQueues(ctx)
	if err != nil {
		return 0, fmt.Errorf("jobs: size of batch %s: %w", name, err)
	}
	cmds := make([]*redis.IntCmd, len(queues))
	if _, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, q := range queues {
			cmds[i] = pipe.ZCard(ctx, store.BatchKey(q, name))
		}
		return nil
	}); err != nil {
		return 0, fmt.Errorf("jobs: size of batch %s: %w", name, err)
	}
	return sum(cmds), nil
}

// queuesOfBatch lists the queues that have jobs of the batch; Tidegate's own jobs are
// in none.
func (c *Client) queuesOfBatch(ctx context.Context, name string) ([]string, error) {
	queues, err := c.listedQueues(ctx)
	if err != nil {
		return nil, err
	}
	cmds := make([]*redis.IntCmd, len(queues))
	if _, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, q := range queues {
			cmds[i] = pipe.Exists(ctx, store.BatchKey(q, name))
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look for its jobs: %w", err)
	}
	var out []string
	for i, q := range queues {
		if cmds[i].Val() == 1 {
			out = append(out, q)
		}
	}
	return out, nil
}

// Bounds of the pause between two looks of WaitBatch.
const (
	waitBatchMin = 100 * time.Millisecond
	waitBatchMax = 2 * time.Second
)

// WaitBatch waits until all jobs of the batch have ended and returns the counts.
// onChange, unless nil, is told of each change on the way. Errors as of Batch, or
// the context's; then the status is the last one seen.
func (c *Client) WaitBatch(ctx context.Context, name string, onChange func(*BatchStatus)) (*BatchStatus, error) {
	var last *BatchStatus
	pause := waitBatchMin
	for {
		started := time.Now()
		b, err := c.Batch(ctx, name)
		if errors.Is(err, ErrNotFound) && last != nil {
			// The last ones ended, and so did their retention.
			last.Progress, last.Done = 1, true
			return last, nil
		}
		if err != nil {
			return last, err
		}
		if last == nil || !maps.Equal(b.Counts, last.Counts) {
			pause = waitBatchMin
			if onChange != nil {
				onChange(b)
			}
		}
		last = b
		if b.Done {
			return b, nil
		}
		// Counting a large batch must not keep Redis busy.
		t := time.NewTimer(max(pause, 10*time.Since(started)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return last, fmt.Errorf("jobs: wait for batch %s: %w", name, ctx.Err())
		}
		pause = min(2*pause, waitBatchMax)
	}
}
