package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/tidegate/tidegate/jobs"
)

const (
	// countTimeout bounds one count of a batch. It continues after lookTimeout, the timeout of
	// the request, so that a repeated request finds the result.
	countTimeout = time.Minute
	// largeBatch is the number of jobs above which a batch counts as large.
	largeBatch = 20_000
	// countsAtOnce is the number of concurrent counts, of large and of other batches each.
	countsAtOnce = 2
	// mostCounts bounds the cached counts.
	mostCounts = 1000
)

// batchCounts counts the jobs of batches, for which Redis reads each job: requests for the same
// batch share a count, which is cached for ten times its duration, at least a second.
type batchCounts struct {
	size  func(context.Context, string) (int, error)
	count func(context.Context, string) (*jobs.BatchStatus, error)
	now   func() time.Time

	flight       singleflight.Group
	small, large chan struct{} // semaphores

	mu   sync.Mutex
	kept map[string]batchCount
}

// batchCount is a count, or its timeout.
type batchCount struct {
	status *jobs.BatchStatus
	err    error
	at     time.Time
	until  time.Time
}

func newBatchCounts(client *jobs.Client) *batchCounts {
	return &batchCounts{
		size: client.BatchSize, count: client.Batch, now: time.Now, kept: map[string]batchCount{},
		small: make(chan struct{}, countsAtOnce), large: make(chan struct{}, countsAtOnce),
	}
}

// of returns a batch's count, and when it was made.
func (c *batchCounts) of(ctx context.Context, name string) (batchCount, error) {
	if k, ok := c.cached(name); ok {
		return k, k.err
	}
	done := c.flight.DoChan(name, func() (any, error) {
		if k, ok := c.cached(name); ok { // of a count that has just ended
			return k, k.err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTimeout)
		defer cancel()
		return c.make(ctx, name)
	})
	select {
	case r := <-done:
		if r.Err != nil {
			return batchCount{}, r.Err
		}
		return r.Val.(batchCount), nil
	case <-ctx.Done():
		return batchCount{}, ctx.Err()
	}
}

// make counts a batch once a slot is free.
func (c *batchCounts) make(ctx context.Context, name string) (batchCount, error) {
	n, err := c.size(ctx, name)
	if err != nil {
		return batchCount{}, err
	}
	turns := c.small
	if n > largeBatch {
		turns = c.large
	}
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-ctx.Done():
		return batchCount{}, ctx.Err()
	}
	began := c.now()
	k := batchCount{}
	k.status, k.err = c.count(ctx, name)
	k.at = c.now()
	k.until = k.at.Add(max(time.Second, 10*k.at.Sub(began)))
	// Other errors come quickly: not cached.
	if k.err == nil || errors.Is(k.err, context.DeadlineExceeded) {
		c.keep(name, k)
	}
	return k, k.err
}

// cached returns a count that has not expired.
func (c *batchCounts) cached(name string) (batchCount, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.kept[name]
	return k, ok && c.now().Before(k.until)
}

func (c *batchCounts) keep(name string, k batchCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.kept[name]; !ok && len(c.kept) >= mostCounts {
		c.drop()
	}
	c.kept[name] = k
}

// drop removes expired counts, or else the one that expires first.
func (c *batchCounts) drop() {
	now, first, until := c.now(), "", time.Time{}
	for name, k := range c.kept {
		switch {
		case !now.Before(k.until):
			delete(c.kept, name)
		case first == "" || k.until.Before(until):
			first, until = name, k.until
		}
	}
	if len(c.kept) >= mostCounts {
		delete(c.kept, first)
	}
}
