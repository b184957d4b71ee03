package publisher_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	policy := jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second, BackoffMultiplier: 1, MaxDelay: time.Second})
	answered := func(j *jobs.Job, status int) { j.Response = &jobs.Response{Status: status, Body: "said\x1b[31m so"} }
	for _, tc := range []struct {
		name    string
		opts    []jobs.Option
		timeout time.Duration // default 30 s
		handler func(context.Context, *jobs.Job) error
		events  []string // results; that of a second call may come before that of the first one
		want    jobs.Status
		check   func(*testing.T, *jobs.Job)
	}{
		{
			name: "nil completes, with response and worker",
			handler: func(_ context.Context, j *jobs.Job) error {
				answered(j, 201)
				return nil
			},
			events: []string{publisher.Completed}, want: jobs.Completed,
			check: func(t *testing.T, j *jobs.Job) {
				if j.Response == nil || j.Response.Status != 201 || j.Response.Body != "said[31m so" {
					t.Errorf("response %+v", j.Response)
				}
				if j.CompletedAt == nil || j.Worker != "the-worker" || j.Attempt != 0 || j.RescheduleCount != 0 {
					t.Errorf("job %+v", j)
				}
			},
		},
		{
			name:    "an error without a policy fails",
			handler: func(context.Context, *jobs.Job) error { return errors.New("boom") },
			events:  []string{publisher.FailedFinal}, want: jobs.Failed,
			check: func(t *testing.T, j *jobs.Job) {
				if j.LastError != "boom" || j.Attempt != 0 || j.EndedAt == nil {
					t.Errorf("last error %q, attempt %d, ended %v", j.LastError, j.Attempt, j.EndedAt)
				}
			},
		},
		{
			name:    "an error with a policy is retried, then fails",
			opts:    []jobs.Option{policy},
			handler: func(context.Context, *jobs.Job) error { return errors.New("boom") },
			events:  []string{publisher.Retried, publisher.FailedFinal}, want: jobs.Failed,
			check: func(t *testing.T, j *jobs.Job) {
				if j.Attempt != 1 || j.RescheduleCount != 0 {
					t.Errorf("attempt %d, reschedules %d", j.Attempt, j.RescheduleCount)
				}
			},
		},
		{
			name:    "Discard is not retried",
			opts:    []jobs.Option{policy},
			handler: func(context.Context, *jobs.Job) error { return jobs.Discard(errors.New("never")) },
			events:  []string{publisher.FailedFinal}, want: jobs.Failed,
		},
		{
			name:    "Fail is retried as explicit",
			opts:    []jobs.Option{jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second, MaxDelay: time.Second, RetryOn: []jobs.Trigger{jobs.OnExplicit}})},
			handler: func(context.Context, *jobs.Job) error { return jobs.Fail(errors.New("not good")) },
			events:  []string{publisher.Retried, publisher.FailedFinal}, want: jobs.Failed,
		},
		{
			name:    "a trigger that is not named is not retried",
			opts:    []jobs.Option{jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second, MaxDelay: time.Second, RetryOn: []jobs.Trigger{jobs.OnTimeout}})},
			handler: func(context.Context, *jobs.Job) error { return errors.New("refused") },
			events:  []string{publisher.FailedFinal}, want: jobs.Failed,
		},
		{
			name: "the timeout is a trigger of its own", timeout: 200 * time.Millisecond,
			opts: []jobs.Option{jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second, MaxDelay: time.Second, RetryOn: []jobs.Trigger{jobs.OnTimeout}})},
			handler: func(ctx context.Context, _ *jobs.Job) error {
				<-ctx.Done()
				return ctx.Err()
			},
			events: []string{publisher.Retried, publisher.FailedFinal}, want: jobs.Failed,
		},
		{
			name:    "a panic is a failure",
			handler: func(context.Context, *jobs.Job) error { panic("ouch") },
			events:  []string{publisher.FailedFinal}, want: jobs.Failed,
			check: func(t *testing.T, j *jobs.Job) {
				if !strings.Contains(j.LastError, "ouch") {
					t.Errorf("last error %q", j.LastError)
				}
			},
		},
		{
			name:    "reschedules are bounded and no failures",
			opts:    []jobs.Option{jobs.MaxReschedules(2), policy},
			handler: func(context.Context, *jobs.Job) error { return jobs.Reschedule(0) },
			events:  []string{publisher.Rescheduled, publisher.Rescheduled, publisher.FailedFinal}, want: jobs.Failed,
			check: func(t *testing.T, j *jobs.Job) {
				if j.LastError != "max reschedules (2) exceeded" || j.RescheduleCount != 2 || j.Attempt != 0 {
					t.Errorf("last error %q, reschedules %d, attempt %d", j.LastError, j.RescheduleCount, j.Attempt)
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			o := b.options()
			o.Worker = "the-worker"
			job := b.enqueue(tc.opts...)
			b.run(o, tc.handler, publisher.Timeout(cmp.Or(tc.timeout, 30*time.Second)))
			var results []string
			for range tc.events {
				results = append(results, b.result(job.ID).Result)
			}
			if diff := gocmp.Diff(slices.Sorted(slices.Values(tc.events)), slices.Sorted(slices.Values(results))); diff != "" {
				t.Fatalf("events (-want +got):\n%s", diff)
			}
			got := b.get(job.ID)
			if got.Status != tc.want {
				t.Errorf("status %s, want %s", got.Status, tc.want)
			}
			if tc.check != nil {
				tc.check(t, got)
			}
		})
	}
}

func TestRescheduleWaitsAndKeepsRetries(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var calls atomic.Int32
	var first, second time.Time
	seen := make(chan struct{})
	job := b.enqueue()
	b.run(b.options(), func(context.Context, *jobs.Job) error {
		if calls.Add(1) == 1 {
			first = b.redisNow()
			return jobs.Reschedule(700 * time.Millisecond)
		}
		second = b.redisNow()
		<-seen
		return nil
	})
	if e := b.event(); e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonPublisher {
		t.Fatalf("event %+v", e)
	}
	waiting := b.get(job.ID)
	close(seen)
	if waiting.RescheduleCount != 1 || waiting.AvailableAt.Before(first.Add(700*time.Millisecond).Truncate(time.Millisecond)) {
		t.Errorf("while it waits: %s, count %d, available %s after %s", waiting.Status, waiting.RescheduleCount, waiting.AvailableAt, first)
	}
	if e := b.event(); e.Result != publisher.Completed {
		t.Fatalf("event %+v", e)
	}
	if wait := second.Sub(first); wait < 700*time.Millisecond || wait > 20*time.Second {
		t.Errorf("started again after %s, want 700 ms and little more", wait)
	}
}

// A job without retries that meets a rate limit is put off, never failed: asynq
// by itself would archive it.
func TestRateLimitOpensForAllAndFailsNothing(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	const n, slots, cooldown = 30, 8, 800 * time.Millisecond
	ids := map[string]bool{}
	enqueue := func(n int) {
		for range n {
			ids[b.enqueue().ID] = true
		}
	}
	// All slots call before any of them answers, and no job waits: whatever begins
	// during the cooldown was let through during the cooldown.
	enqueue(slots)
	var calls atomic.Int32
	calling := make(chan struct{})
	starts := make(chan time.Time, 1000)
	handler := func(ctx context.Context, _ *jobs.Job) error {
		c := calls.Add(1)
		if c > slots {
			starts <- b.redisNow()
			return nil
		}
		if c == slots {
			close(calling)
		}
		select {
		case <-calling:
			return jobs.RateLimited(0)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// Two instances that only share Redis.
	b.run(b.options(), handler, publisher.Concurrency(4), rules(cooldown))
	b.run(b.options(), handler, publisher.Concurrency(4), rules(cooldown))
	redistest.Eventually(t, "the breaker has opened", func() bool { return len(b.breakerHistory()) > 0 })
	enqueue(n - slots)
	done := 0
	for done < n {
		e := b.event()
		switch e.Result {
		case publisher.Completed:
			done++
			delete(ids, e.Job.ID)
		case publisher.Rescheduled:
		default:
			t.Fatalf("job %s: %s (%v)", e.Job.ID, e.Result, e.Err)
		}
	}
	if len(ids) != 0 {
		t.Errorf("%d jobs were not published", len(ids))
	}
	history, err := breaker.History(context.Background(), b.rdb, b.dest, 10)
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, e := range history {
		states = append(states, e.To.String())
	}
	if got := strings.Join(states, " "); got != "OPEN HALF_OPEN CLOSED" {
		t.Fatalf("history %s", got)
	}
	until := history[0].OpenUntil
	for _, e := range history {
		if e.To == breaker.HalfOpen && e.At.Before(until) {
			t.Errorf("HALF_OPEN at %s, before %s", e.At, until)
		}
	}
	close(starts)
	early := 0
	for s := range starts {
		if s.Before(until) {
			early++
		}
	}
	if early != 0 {
		t.Errorf("%d calls began before the end of the cooldown", early)
	}
}

func TestRateLimitBelowThreshold(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var calls atomic.Int32
	seen := make(chan struct{})
	job := b.enqueue()
	b.run(b.options(), func(context.Context, *jobs.Job) error {
		if calls.Add(1) == 1 {
			return jobs.RateLimited(0)
		}
		<-seen
		return nil
	}, rules(time.Minute))
	e := b.event()
	if e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonRateLimited {
		t.Fatalf("event %+v", e)
	}
	if s := b.breaker(); s.State != breaker.Closed || s.Failures != 1 {
		t.Errorf("breaker %s with %d failures after one 429", s.State, s.Failures)
	}
	close(seen)
	if e := b.event(); e.Result != publisher.Completed {
		t.Fatalf("event %+v", e)
	}
	if got := b.get(job.ID); got.RescheduleCount != 1 || got.Attempt != 0 {
		t.Errorf("reschedules %d, attempt %d", got.RescheduleCount, got.Attempt)
	}
	redistest.Eventually(t, "the success resets the count", func() bool { return b.breaker().Failures == 0 })
}

// What was put off until the end of a cooldown comes back when somebody ends
// the cooldown early.
func TestResetReleasesDeferredJobs(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var limited atomic.Bool
	limited.Store(true)
	for range 3 {
		b.enqueue()
	}
	b.run(b.options(), func(context.Context, *jobs.Job) error {
		if limited.Load() {
			return jobs.RateLimited(0)
		}
		return nil
	}, publisher.Concurrency(3), rules(time.Hour))
	redistest.Eventually(t, "open", func() bool { return b.breaker().State == breaker.Open })
	for range 3 {
		b.event()
	}
	limited.Store(false)
	if _, err := breaker.Reset(context.Background(), b.rdb, b.dest, "a person"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if e := b.event(); e.Result != publisher.Completed {
			t.Fatalf("event %+v", e)
		}
	}
}
