package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tidegate/tidegate/internal/queue/store"
)

var errAnswer = errors.New("the answer is not one of enqueue.lua")

// send enqueues jobs by queue, at most jobsPerRequest, adds their queues to asynq's set, and
// fills in the results of the accepted ones; it returns the duplicates. If an unknown
// destination gets no queue, its results have that error.
func (c *Client) send(ctx context.Context, order []string, byQueue map[string][]*prepared, elsewhere map[*prepared]string, results []Result) ([]duplicate, error) {
	var duplicates []duplicate
	var all []store.NewJobs
	var sent [][]*prepared
	for _, queue := range order {
		if err := c.publish(ctx, queue); errors.Is(err, ErrUnknownDestination) {
			for _, p := range byQueue[queue] {
				results[p.index].Err = fmt.Errorf("jobs: enqueue: %w", err)
			}
			continue
		} else if err != nil {
			return nil, err
		}
		n, fresh := store.NewJobs{Queue: queue}, []*prepared{}
		for _, p := range byQueue[queue] {
			if q, ok := elsewhere[p]; ok {
				duplicates = append(duplicates, duplicate{p, q})
				continue
			}
			n.Jobs, fresh = append(n.Jobs, p.encoded), append(fresh, p)
		}
		if len(fresh) > 0 {
			all, sent = append(all, n), append(sent, fresh)
		}
	}
	if len(all) == 0 {
		return duplicates, nil
	}
	replies, err := store.Enqueue(ctx, c.rdb, c.now(), all)
	for i, n := range all {
		for k, p := range sent[i] {
			switch e := replies[i][k]; {
			case e.Added:
				p.enqueued(e)
				results[p.index].Job = p.job
			case e.Exists && !p.given:
				// An earlier try has stored a new UUID that exists, and its reply was lost.
				results[p.index].Job = p.job
			case e.Exists:
				duplicates = append(duplicates, duplicate{p, n.Queue})
			default: // may have been sent
				results[p.index].Err = fmt.Errorf("jobs: enqueue: write to Redis: %w", cmp.Or(err, errAnswer))
			}
		}
	}
	if err != nil {
		return duplicates, fmt.Errorf("write to Redis: %w", err)
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
	p.job.Replaced = e.Replaced
	if status := statusOf[e.State]; status != "" {
		p.job.Status = status
	}
	if !e.ExpiredAt.IsZero() {
		p.job.Status, p.job.MarkedExpiredAt, p.job.EndedAt = Expired, &e.ExpiredAt, &e.ExpiredAt
	}
}
