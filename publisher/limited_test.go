package publisher_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

func (b *fixture) breakerHistory() []breaker.Event {
	b.t.Helper()
	read, err := breaker.DefaultNamespace.ReadOne(context.Background(), b.rdb, breaker.Query{History: breaker.All}, b.dest)
	if err != nil {
		b.t.Fatal(err)
	}
	return read.History
}

// A job that is in hand when the breaker opens is put off without a call, and that
// counts like any other reschedule.
func TestReschedulesByTheBreakerCount(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.enqueue() // fetches come along with completions from the second one on
	limited := b.enqueue(jobs.MaxReschedules(1))
	healthy := b.enqueue()
	var calls tally
	opened := make(chan struct{}, 1)
	o := b.options()
	o.Observers = []publisher.Observer{{OnJob: func(e publisher.JobEvent) {
		if e.Job.ID == healthy.ID {
			// The next job came along with the completion. Before its turn the
			// breaker opens.
			if _, err := breaker.DefaultNamespace.Trip(context.Background(), b.rdb, b.dest, breaker.TripOptions{For: time.Hour, By: "test"}); err != nil {
				t.Error(err)
			}
			signal(t, "this process knows that the breaker is open", opened)
		}
		b.events <- e
	}}}
	b.run(o, func(_ context.Context, j *jobs.Job) error {
		calls.add(j.ID)
		if j.ID == limited.ID {
			return jobs.Reschedule(0)
		}
		return nil
	}, publisher.Concurrency(1), publisher.Breaker(breaker.Options{
		OnEvent: func(e breaker.Event) {
			if e.To == breaker.Open {
				opened <- struct{}{}
			}
		},
	}))
	b.want(publisher.Completed)
	if e := b.want(publisher.Rescheduled); e.Reason != publisher.ReasonPublisher {
		t.Errorf("the first reschedule is by %q", e.Reason)
	}
	b.want(publisher.Completed)
	if e := b.want(publisher.FailedFinal); e.Called {
		t.Error("the job was called while the breaker was open")
	}
	got := b.get(limited.ID)
	if got.Status != jobs.Failed || got.LastError != "max reschedules (1) exceeded" || got.RescheduleCount != 1 {
		t.Errorf("%s after %d reschedules, last error %q", got.Status, got.RescheduleCount, got.LastError)
	}
	if n := calls.of(limited.ID); n != 1 {
		t.Errorf("%d calls, want the one before the opening", n)
	}
}

// Reschedules cost no retries, and retries no reschedules; nor does either change
// when the other comes.
func TestRetriesAndReschedulesCountApart(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	boom := errors.New("boom")
	steps := []struct {
		outcome               error
		result                string
		attempt, reschedules  int
		atLeast, atMost       time.Duration // until the next call
		nextStatus            jobs.Status
		lastError, lastReason string
	}{
		{jobs.Reschedule(time.Hour), publisher.Rescheduled, 0, 1, time.Hour, time.Hour, jobs.Pending, "", "rescheduled by its handler"},
		{boom, publisher.Retried, 1, 1, 9 * time.Second, 11 * time.Second, jobs.RetryPending, "boom", "retry 1 of 2 after failure"},
		{jobs.Reschedule(48 * time.Hour), publisher.Rescheduled, 1, 2, 48 * time.Hour, 48 * time.Hour, jobs.Pending, "boom", "rescheduled by its handler"},
		{jobs.RateLimited(40 * time.Second), publisher.Rescheduled, 1, 3, 40 * time.Second, 40 * time.Second, jobs.Pending, "rate limited, retry after 40s", "rate limited by " + b.dest},
		{jobs.Fail(boom), publisher.Retried, 2, 3, 18 * time.Second, 22 * time.Second, jobs.RetryPending, "boom", "retry 2 of 2 after explicit"},
		{jobs.Reschedule(time.Minute), publisher.Rescheduled, 2, 4, time.Minute, time.Minute, jobs.Pending, "boom", "rescheduled by its handler"},
		{boom, publisher.FailedFinal, 2, 4, 0, 0, jobs.Failed, "boom", ""},
	}
	outcomes := make(chan error, len(steps))
	job := b.enqueue(jobs.MaxReschedules(4), jobs.Retry(jobs.RetryPolicy{MaxRetries: 2, InitialDelay: 10 * time.Second, BackoffMultiplier: 2}))
	var mu atomic.Pointer[time.Time]
	b.run(b.options(), func(context.Context, *jobs.Job) error {
		now := b.redisNow()
		mu.Store(&now)
		return <-outcomes
	}, publisher.Breaker(breaker.Options{Disabled: true}))
	for i, step := range steps {
		outcomes <- step.outcome
		b.want(step.result)
		ended := b.redisNow()
		got := b.record(job.ID)
		if got.Status != step.nextStatus || got.Attempt != step.attempt || got.RescheduleCount != step.reschedules {
			t.Fatalf("step %d: %s, attempt %d, %d reschedules; want %s, %d, %d", i,
				got.Status, got.Attempt, got.RescheduleCount, step.nextStatus, step.attempt, step.reschedules)
		}
		if got.LastError != step.lastError || got.Reason != step.lastReason {
			t.Errorf("step %d: last error %q, reason %q; want %q, %q", i, got.LastError, got.Reason, step.lastError, step.lastReason)
		}
		if step.nextStatus == jobs.Failed {
			break
		}
		if (got.NextRetryAt != nil) != (step.nextStatus == jobs.RetryPending) {
			t.Errorf("step %d: next_retry_at is %v while %s", i, got.NextRetryAt, got.Status)
		}
		if from, to := mu.Load().Add(step.atLeast-time.Millisecond), ended.Add(step.atMost+time.Millisecond); got.AvailableAt.Before(from) || got.AvailableAt.After(to) {
			t.Errorf("step %d: available at %s, want from %s to %s", i, got.AvailableAt, from, to)
		}
		b.makeDue(job.ID)
	}
}
