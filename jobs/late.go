package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// LatePolicy says what becomes of a job that would expire before it can start.
type LatePolicy string

// The policies. Without an expiry, or if it cannot be said when the job starts, a job is enqueued by each.
const (
	// LateEnqueue, the default, enqueues it.
	LateEnqueue LatePolicy = "enqueue"
	// LateReject refuses it with a [LateError].
	LateReject LatePolicy = "reject"
)

// IfLate says what becomes of a job whose start, by the forecast of its destination, lies after its expiry.
// [LateReject] costs a few commands of Redis a second for each destination, and one more for each job with a key. A refused
// job with an ID costs as much as [Client.Get].
func IfLate(p LatePolicy) Option { return func(s *Spec) { s.IfLate = p } }

// LateError is the error of a job that [LateReject] refuses. Nothing was enqueued.
type LateError struct {
	ETA       ETA
	ExpiresAt time.Time
}

// Error has the times in the zone of the process.
func (e *LateError) Error() string {
	clock := func(t time.Time) string {
		switch t = t.Local(); {
		case e.ExpiresAt.Sub(t).Abs() > 12*time.Hour:
			return t.Format("2006-01-02 15:04")
		case e.ETA.From.Sub(e.ExpiresAt) < 2*time.Minute:
			return t.Format(time.TimeOnly)
		}
		return t.Format("15:04")
	}
	return fmt.Sprintf("would start at %s (%s to %s), expires at %s", clock(*e.ETA.At), clock(*e.ETA.From), clock(*e.ETA.To), clock(e.ExpiresAt))
}

// behind counts the due jobs of an enqueue that were before another one, by queue, and by queue and key. It is nil
// for jobs that must not be refused.
type behind struct {
	at time.Time // of the latest forecast, which includes the jobs before it
	n  map[string]int
}

func newBehind(specs []*Spec) *behind {
	if !slices.ContainsFunc(specs, func(s *Spec) bool { return s != nil && s.IfLate == LateReject }) {
		return nil
	}
	return &behind{n: map[string]int{}}
}

func (b *behind) add(p *prepared) {
	if b != nil && !p.job.AvailableAt.After(p.job.CreatedAt) && len(p.job.After) == 0 {
		b.n[p.queue]++
		b.n[p.queue+" "+p.job.Key]++
	}
}

// checkLate returns a *LateError for a job that is to be refused.
func (c *Client) checkLate(ctx context.Context, s *Spec, job *Job, b *behind) error {
	if s.IfLate != LateReject || s.ExpiresAt.IsZero() && s.TTL == nil || len(s.After) > 0 {
		return nil
	}
	f, err := c.forecasts.Forecast(ctx, job.Destination)
	if err != nil {
		return err //nolint:wrapcheck // it says what it is
	}
	if !b.at.IsZero() && f.At.After(b.at) {
		clear(b.n)
	}
	b.at = latest(b.at, f.At)
	expires, due := s.ExpiresAt, latest(s.At, f.At)
	if s.TTL != nil {
		expires = f.At.Add(*s.TTL)
	}
	due = latest(due, f.At.Add(s.Delay))
	class := slices.Index(store.Priorities, store.Priority(job.Priority))
	q, queue := &f.Queues[class], c.ns.Queue(job.Destination, store.Priority(job.Priority))
	var start time.Time
	switch {
	case due.After(f.At):
		start = latest(due, f.Start(class, q.PlaceAt(due)-1))
	case q.AllKeys > 0 && job.Key != "":
		held, err := c.rdb.ZCard(ctx, store.HeldJobsKey(queue, job.Key)).Result()
		if err != nil {
			return fmt.Errorf("read the jobs of a key: %w", err)
		}
		start = f.Start(class, q.PlaceInTurn(int(held)+b.n[queue+" "+job.Key]))
	default:
		start = f.Next(class, b.n[queue])
	}
	e := f.ETA(start, due)
	if e.At == nil || !e.From.After(expires) {
		return nil
	}
	if s.ID != "" && !s.Fresh { // it may be repeated, in whatever queue
		if _, err := c.Get(ctx, s.ID); !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return &LateError{e, expires}
}
