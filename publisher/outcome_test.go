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
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
	if _, err := breaker.DefaultNamespace.Reset(context.Background(), b.rdb, b.dest, "a person"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if e := b.event(); e.Result != publisher.Completed {
			t.Fatalf("event %+v", e)
		}
	}
}
