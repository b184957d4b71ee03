package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tidegate/tidegate/internal/store"
)

// sendTo enqueues the jobs of one queue, and adds it to asynq's set. If an unknown
// destination gets no queue, each result has that error.
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

// send enqueues the jobs of one queue and fills in the results of the accepted ones; it
// returns the duplicates.
func (c *Client) send(ctx context.Context, queue string, ps []*prepared, elsewhere map[*prepared]string, results []Result) ([]duplicate, error) {
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
		sent := make([]store.NewJob, n)
		for i, p := range fresh[:n] {
			sent[i] = p.encoded
		}
		replies, err := store.Enqueue(ctx, c.rdb, queue, c.now(), sent)
		for i, e := range replies {
			p := fresh[i]
			switch {
			case e.Added:
				p.enqueued(e)
				results[p.index].Job = p.job
			case e.Exists && !p.given:
				// An earlier try has stored a new UUID that exists, and its reply was lost.
				results[p.index].Job = p.job
			case e.Exists:
				duplicates = append(duplicates, duplicate{p, queue})
			default: // may have been sent
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

// enqueued sets the times of Redis's clock.
func (p *prepared) enqueued(e store.Enqueued) {
	if !e.AvailableAt.IsZero() {
		p.job.AvailableAt = e.AvailableAt
	}
	if !e.ExpiresAt.IsZero() {
		p.job.ExpiresAt = &e.ExpiresAt
	}
	if !e.ExpiredAt.IsZero() {
		p.job.Status, p.job.MarkedExpiredAt, p.job.EndedAt = Expired, &e.ExpiredAt, &e.ExpiredAt
	}
}
