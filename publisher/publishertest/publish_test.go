package publishertest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/publishertest"
)

var errBoom = errors.New("boom")

// returns is a handler that only answers.
func returns(err error) publisher.Handler {
	return publisher.Func(func(context.Context, *jobs.Job) error { return err })
}

func TestPublish(t *testing.T) {
	t.Parallel()
	policy := jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 10 * time.Second, MaxDelay: 300 * time.Second})
	only := func(trigger jobs.Trigger) jobs.Option {
		return jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, RetryOn: []jobs.Trigger{trigger}})
	}
	const s = time.Second
	for _, tc := range []struct {
		name    string
		opts    []jobs.Option
		handle  []publisher.HandleOption
		change  func(*jobs.Job)
		handler publisher.Handler

		result, reason string
		status         jobs.Status
		delays         [3]time.Duration // shortest, without jitter, longest
		trigger        jobs.Trigger
		limited        bool
		lastError      string
		attempt, count int
	}{
		{
			name: "nil completes", handler: returns(nil),
			result: publisher.Completed, status: jobs.Completed,
		},
		{
			name: "put off", handler: returns(jobs.Reschedule(90 * s)),
			result: publisher.Rescheduled, reason: publisher.ReasonPublisher, status: jobs.Pending,
			delays: [3]time.Duration{90 * s, 90 * s, 90 * s}, count: 1,
		},
		{
			name: "put off to the back of the queue", handler: returns(jobs.Reschedule(0)),
			change: func(j *jobs.Job) { j.RescheduleCount, j.Attempt = 7, 2 },
			result: publisher.Rescheduled, reason: publisher.ReasonPublisher, status: jobs.Pending, count: 8, attempt: 2,
		},
		{
			name: "put off once too often", handler: returns(jobs.Reschedule(s)), opts: []jobs.Option{jobs.MaxReschedules(7)},
			change: func(j *jobs.Job) { j.RescheduleCount = 7 },
			result: publisher.FailedFinal, status: jobs.Failed, count: 7, lastError: "max reschedules (7) exceeded",
		},
		{
			name: "rate limited, once too often", handler: returns(jobs.RateLimited(s)), opts: []jobs.Option{jobs.MaxReschedules(0)},
			result: publisher.FailedFinal, status: jobs.Failed, limited: true, lastError: "max reschedules (0) exceeded",
		},
		{
			name: "rate limited without a hint", handler: returns(jobs.RateLimited(0)), opts: []jobs.Option{policy},
			result: publisher.Rescheduled, reason: publisher.ReasonRateLimited, status: jobs.Pending,
			delays: [3]time.Duration{s, s, s}, count: 1, limited: true, lastError: "rate limited",
		},
		{
			name: "rate limited with a hint", handler: returns(jobs.RateLimited(90 * s)),
			result: publisher.Rescheduled, reason: publisher.ReasonRateLimited, status: jobs.Pending,
			delays: [3]time.Duration{90 * s, 90 * s, 90 * s}, count: 1, limited: true, lastError: "rate limited, retry after 1m30s",
		},
		{
			name: "a hint beyond the longest cooldown", handler: returns(jobs.RateLimited(90 * s)),
			handle: []publisher.HandleOption{publisher.Breaker(breaker.Options{Cooldown: time.Second, MaxCooldown: time.Minute})},
			result: publisher.Rescheduled, reason: publisher.ReasonRateLimited, status: jobs.Pending,
			delays: [3]time.Duration{60 * s, 60 * s, 60 * s}, count: 1, limited: true, lastError: "rate limited, retry after 1m30s",
		},
		{
			name: "a failure without a policy", handler: returns(errBoom),
			result: publisher.FailedFinal, status: jobs.Failed, trigger: jobs.OnFailure, lastError: "boom",
		},
		{
			name: "a failure with a policy", handler: returns(errBoom), opts: []jobs.Option{policy},
			change: func(j *jobs.Job) { j.Attempt, j.RescheduleCount = 1, 5 },
			result: publisher.Retried, status: jobs.RetryPending, trigger: jobs.OnFailure, lastError: "boom",
			delays: [3]time.Duration{18 * s, 20 * s, 22 * s}, attempt: 2, count: 5,
		},
		{
			name: "a failure with the destination's policy", handler: returns(errBoom),
			handle: []publisher.HandleOption{publisher.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 10 * time.Second})},
			result: publisher.Retried, status: jobs.RetryPending, trigger: jobs.OnFailure, lastError: "boom",
			delays: [3]time.Duration{9 * s, 10 * s, 11 * s}, attempt: 1,
		},
		{
			name: "a delay at its cap", handler: returns(errBoom),
			opts:   []jobs.Option{jobs.Retry(jobs.RetryPolicy{MaxRetries: 9, InitialDelay: 30 * time.Second, MaxDelay: 60 * time.Second})},
			change: func(j *jobs.Job) { j.Attempt = 1 },
			result: publisher.Retried, status: jobs.RetryPending, trigger: jobs.OnFailure, lastError: "boom",
			delays: [3]time.Duration{54 * s, 60 * s, 60 * s}, attempt: 2,
		},
		{
			name: "no retry is left", handler: returns(errBoom), opts: []jobs.Option{policy},
			change: func(j *jobs.Job) { j.Attempt = 3 },
			result: publisher.FailedFinal, status: jobs.Failed, trigger: jobs.OnFailure, lastError: "boom", attempt: 3,
		},
		{
			name: "a failure that the policy does not name", handler: returns(errBoom), opts: []jobs.Option{only(jobs.OnTimeout)},
			result: publisher.FailedFinal, status: jobs.Failed, trigger: jobs.OnFailure, lastError: "boom",
		},
		{
			name: "an explicit failure", handler: returns(jobs.Fail(errBoom)), opts: []jobs.Option{only(jobs.OnExplicit)},
			result: publisher.Retried, status: jobs.RetryPending, trigger: jobs.OnExplicit, lastError: "boom",
			delays: [3]time.Duration{4500 * time.Millisecond, 5 * s, 5500 * time.Millisecond}, attempt: 1,
		},
		{
			name: "discarded", handler: returns(jobs.Discard(errBoom)), opts: []jobs.Option{policy},
			result: publisher.FailedFinal, status: jobs.Failed, lastError: "boom",
		},
		{
			name: "a panic", handler: publisher.Func(func(context.Context, *jobs.Job) error { panic("ouch") }), opts: []jobs.Option{policy},
			result: publisher.Retried, status: jobs.RetryPending, trigger: jobs.OnFailure, lastError: "the handler panicked: ouch",
			delays: [3]time.Duration{9 * s, 10 * s, 11 * s}, attempt: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			job := publishertest.NewJob(jobs.New("gallery", nil, tc.opts...))
			if tc.change != nil {
				tc.change(job)
			}
			got := publishertest.Publish(t.Context(), tc.handler, job, tc.handle...)
			if got.Result != tc.result || got.Reason != tc.reason || got.Job.Status != tc.status || !got.Called {
				t.Errorf("%q for %q, status %s, called %v; want %q for %q, status %s", got.Result, got.Reason, got.Job.Status, got.Called, tc.result, tc.reason, tc.status)
			}
			if delays := [3]time.Duration{got.MinDelay, got.Delay, got.MaxDelay}; delays != tc.delays {
				t.Errorf("delays %s, want %s", delays, tc.delays)
			}
			if got.Trigger != tc.trigger || got.RateLimited != tc.limited {
				t.Errorf("trigger %q, rate limited %v; want %q, %v", got.Trigger, got.RateLimited, tc.trigger, tc.limited)
			}
			if j := got.Job; j.LastError != tc.lastError || j.Attempt != tc.attempt || j.RescheduleCount != tc.count {
				t.Errorf("last error %q, attempt %d, reschedules %d; want %q, %d, %d", j.LastError, j.Attempt, j.RescheduleCount, tc.lastError, tc.attempt, tc.count)
			}
			if at := got.At.Add(got.Delay); !got.Job.Status.Final() && !got.Job.AvailableAt.Equal(at) {
				t.Errorf("available at %s, want %s", got.Job.AvailableAt, at)
			}
			if ended := got.Job.EndedAt != nil; ended != got.Job.Status.Final() {
				t.Errorf("status %s, ended at %v", got.Job.Status, got.Job.EndedAt)
			}
			if next := got.Job.NextRetryAt; (next != nil) != (got.Job.Status == jobs.RetryPending) {
				t.Errorf("status %s, next retry at %v", got.Job.Status, next)
			}
		})
	}
}

func TestPublishTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var within time.Duration
		h := publisher.Func(func(ctx context.Context, _ *jobs.Job) error {
			deadline, _ := ctx.Deadline()
			within = time.Until(deadline)
			<-ctx.Done()
			<-time.After(3 * time.Second) // it takes its time to notice
			return ctx.Err()
		})
		job := publishertest.NewJob(jobs.New("gallery", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, RetryOn: []jobs.Trigger{jobs.OnTimeout}})))
		got := publishertest.Publish(t.Context(), h, job)
		if within != 30*time.Second || got.Took != 33*time.Second {
			t.Errorf("timeout %s, took %s; want 30s, and the handler is waited for", within, got.Took)
		}
		if got.Result != publisher.Retried || got.Trigger != jobs.OnTimeout {
			t.Errorf("got %s", got)
		}
		got = publishertest.Publish(t.Context(), h, got.Job, publisher.Timeout(time.Minute))
		if within != time.Minute || got.Result != publisher.FailedFinal || got.Trigger != jobs.OnTimeout {
			t.Errorf("timeout %s, got %s", within, got)
		}
	})
}

func TestPublishShutdown(t *testing.T) {
	t.Parallel()
	waits := publisher.Func(func(ctx context.Context, _ *jobs.Job) error {
		<-ctx.Done()
		return ctx.Err()
	})
	job := publishertest.NewJob(jobs.New("gallery", nil, jobs.MaxReschedules(0)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := publishertest.Publish(ctx, waits, job)
	if got.Result != publisher.Requeued || got.Job.Status != jobs.Pending || got.Job.Attempt != 0 || got.Job.RescheduleCount != 0 || got.Job.LastError != "" {
		t.Errorf("cut: %s, %+v", got, got.Job)
	}
	// What the API has said stands.
	if got := publishertest.Publish(ctx, returns(nil), job); got.Result != publisher.Completed {
		t.Errorf("accepted during the shutdown: %s", got)
	}
	// Somebody's deadline around the test is not the destination's timeout.
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if got := publishertest.Publish(ctx, waits, job); got.Result != publisher.Requeued {
		t.Errorf("cut by a deadline: %s", got)
	}
}

func TestPublishCancelled(t *testing.T) {
	t.Parallel()
	job := publishertest.NewJob(jobs.New("gallery", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 3})))
	for name, tc := range map[string]struct {
		after func(context.Context) error // what the handler says when its context has ended
		want  jobs.Status
	}{
		"noticed":       {func(ctx context.Context) error { return ctx.Err() }, jobs.Cancelled},
		"accepted":      {func(context.Context) error { return nil }, jobs.Completed},
		"put off":       {func(context.Context) error { return jobs.Reschedule(time.Minute) }, jobs.Cancelled},
		"rate limited":  {func(context.Context) error { return jobs.RateLimited(time.Minute) }, jobs.Cancelled},
		"to be retried": {func(context.Context) error { return jobs.Fail(errBoom) }, jobs.Cancelled},
		"discarded":     {func(context.Context) error { return jobs.Discard(errBoom) }, jobs.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			got := publishertest.Publish(ctx, publisher.Func(func(ctx context.Context, _ *jobs.Job) error {
				cancel(publishertest.ErrCancelled)
				<-ctx.Done()
				return tc.after(ctx)
			}), job)
			if got.Job.Status != tc.want || !got.Called || got.Delay != 0 || got.Job.EndedAt == nil {
				t.Errorf("got %s, %s; want %s", got, got.Job.Status, tc.want)
			}
			if tc.want == jobs.Cancelled && (got.Result != publisher.Cancelled || got.Job.LastError != "cancelled") {
				t.Errorf("got %s, last error %q", got, got.Job.LastError)
			}
			// Cancelled before its call.
			got = publishertest.Publish(ctx, returns(nil), job)
			if got.Called || got.Result != publisher.Cancelled || got.String() != "cancelled before it was called" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// A handler must not find more in the job than a worker gives it, nor keep what it
// writes there.
func TestPublishJobInFlight(t *testing.T) {
	t.Parallel()
	job := publishertest.NewJob(jobs.New("gallery", map[string]int{"n": 1}, jobs.Header("X-A", "b"), jobs.TTL(time.Hour), jobs.MaxReschedules(3)))
	job.LastError, job.Response, job.Reason = "before", &jobs.Response{Status: 500}, "before"
	h := publisher.Func(func(_ context.Context, j *jobs.Job) error {
		if j.Status != jobs.Running || j.LastError != "" || j.Response != nil || j.Reason != "" {
			t.Errorf("in hand: %+v", j)
		}
		j.Payload[0] = 'x'
		j.Request.Headers["X-A"] = "changed"
		j.RescheduleCount, *j.MaxReschedules = 9, 0
		*j.ExpiresAt = time.Time{}
		j.Response = &jobs.Response{Status: 503, Body: "busy\x1b[31m" + strings.Repeat("x", 5000)}
		return jobs.Reschedule(time.Minute, jobs.ExtendExpiration(time.Hour))
	})
	got := publishertest.Publish(t.Context(), h, job)
	if string(job.Payload) != `{"n":1}` || job.Request.Headers["X-A"] != "b" || *job.MaxReschedules != 3 || job.Response.Status != 500 || job.Status != jobs.Pending {
		t.Errorf("the given job was changed: %+v", job)
	}
	if string(got.Job.Payload) != `{"n":1}` || got.Job.RescheduleCount != 1 || got.Job.LastError != "before" {
		t.Errorf("afterwards: %+v", got.Job)
	}
	if ttl := got.Job.ExpiresAt.Sub(got.Job.CreatedAt); ttl != 2*time.Hour {
		t.Errorf("expires after %s, want 2h", ttl)
	}
	if r := got.Job.Response; r.Status != 503 || !strings.HasPrefix(r.Body, "busy[31mxxx") || len(r.Body) != 4096 {
		t.Errorf("kept: %d, %d bytes, %.20q", r.Status, len(r.Body), r.Body)
	}
}

func TestPublishExpired(t *testing.T) {
	t.Parallel()
	job := publishertest.NewJob(jobs.New("gallery", nil, jobs.TTL(0), jobs.Retry(jobs.RetryPolicy{MaxRetries: 3})))
	h := publisher.Func(func(context.Context, *jobs.Job) error {
		t.Error("an expired job was called")
		return nil
	})
	got := publishertest.Publish(t.Context(), h, job)
	if got.Called || got.Result != "" || got.Job.Status != jobs.Expired || got.Job.MarkedExpiredAt == nil || got.Job.LastError != "" {
		t.Errorf("got %s, %+v", got, got.Job)
	}
}

// The next call is made when the job is available, not before.
func TestPublishAgain(t *testing.T) {
	t.Parallel()
	job := publishertest.NewJob(jobs.New("gallery", nil, jobs.TTL(time.Hour)))
	first := publishertest.Publish(t.Context(), returns(jobs.Reschedule(20*time.Minute)), job)
	second := publishertest.Publish(t.Context(), returns(jobs.Reschedule(40*time.Minute)), first.Job)
	if d := second.At.Sub(first.At); d != 20*time.Minute {
		t.Errorf("the second call came %s after the first, want 20m", d)
	}
	if third := publishertest.Publish(t.Context(), returns(nil), second.Job); third.Called {
		t.Errorf("called at %s although it expired at %s", third.At, job.ExpiresAt)
	}
}

func TestNewJob(t *testing.T) {
	t.Parallel()
	at := time.Date(2100, 1, 1, 0, 0, 0, 1, time.FixedZone("CET", 3600))
	job := publishertest.NewJob(jobs.New("gallery", nil, jobs.At(at), jobs.ExpiresAt(at.Add(time.Hour)), jobs.Batch("b"), jobs.After("p1", "p2")))
	if want := time.Date(2099, 12, 31, 23, 0, 0, 1e6, time.UTC); job.AvailableAt != want || *job.ExpiresAt != want.Add(time.Hour-time.Millisecond) {
		t.Errorf("available at %s, expires at %s", job.AvailableAt, job.ExpiresAt)
	}
	if job.ID == "" || job.Batch != "b" || len(job.After) != 2 || job.Status != jobs.Pending || job.Priority != jobs.PriorityDefault {
		t.Errorf("job %+v", job)
	}
	job = publishertest.NewJob(jobs.New("gallery", nil, jobs.Delay(1500*time.Microsecond)))
	if d := job.AvailableAt.Sub(job.CreatedAt); d != 2*time.Millisecond {
		t.Errorf("delay %s, want 2ms", d)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	job := publishertest.NewJob(jobs.New("gallery", nil))
	done := publishertest.Publish(t.Context(), returns(nil), job).Job
	for want, f := range map[string]func(){
		"the spec is nil":             func() { publishertest.NewJob(nil) },
		"request.path: must start":    func() { publishertest.NewJob(jobs.New("gallery", nil, jobs.Path("x"))) },
		"the job is nil":              func() { publishertest.Publish(t.Context(), returns(nil), nil) },
		"is completed, so no worker":  func() { publishertest.Publish(t.Context(), returns(nil), done) },
		"the handler is nil":          func() { publishertest.Publish(t.Context(), nil, job) },
		"timeout must be positive":    func() { publishertest.Publish(t.Context(), returns(nil), job, publisher.Timeout(0)) },
		"name \"\" must be":           func() { publishertest.Play(t.Context(), returns(nil), &jobs.Job{Status: jobs.Pending}, 1) },
		"new job: option 1 is nil":    func() { publishertest.NewJob(jobs.New("gallery", nil), nil) },
		"options: one of them is nil": func() { publishertest.NewJob(jobs.New("gallery", nil, nil)) },
		"option 1 is nil":             func() { publishertest.Publish(t.Context(), returns(nil), job, nil) },
		"calls is 0":                  func() { publishertest.Play(t.Context(), returns(nil), job, 0) },
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, "publishertest: ") || !strings.Contains(got, want) {
					t.Errorf("panicked with %q, want %q", got, want)
				}
			}()
			f()
		}()
	}
}
