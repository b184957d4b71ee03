package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// What a breaker says to a handler is no failure of the job.
func TestErrorsOfBreakersAreNoFailures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		err         error
		until       time.Duration // of an OpenError, from the beginning of its test
		called      bool
		reason      string
		after, most time.Duration
		why         string
	}{
		{
			"open", &breaker.OpenError{Name: "other", Destination: "other", State: breaker.Open, RetryAfter: time.Hour, Incident: "i1"},
			time.Hour, false, publisher.ReasonBreaker, 59 * time.Minute, time.Hour, "breaker_open",
		},
		{
			"wrapped", fmt.Errorf("upload: %w", &breaker.OpenError{Name: "other/alice", Destination: "other", State: breaker.Open, Incident: "i1"}),
			time.Hour, false, publisher.ReasonBreaker, 59 * time.Minute, time.Hour, "breaker_open",
		},
		{
			"tripped until it is reset", &breaker.OpenError{Name: "other", Destination: "other", State: breaker.Open, RetryAfter: time.Hour, Incident: "i1"},
			0, false, publisher.ReasonBreaker, 59 * time.Second, time.Minute, "breaker_open",
		},
		{
			"no room", &breaker.OpenError{Name: "other", Destination: "other", State: breaker.Closed, Cause: breaker.CauseRate},
			time.Minute, false, publisher.ReasonBreaker, 30 * time.Second, time.Minute, "breaker_open",
		},
		{"not sent", fmt.Errorf("%w: %w", breakerhttp.ErrNotSent, breaker.ErrUnavailable), 0, false, publisher.ReasonBreaker, 0, 2 * time.Second, "unsent"},
		{"limited", &breaker.RateLimitedError{RetryAfter: time.Minute}, 0, true, publisher.ReasonRateLimited, 59 * time.Second, time.Minute, "breaker_open"},
		{"limited without a hint", fmt.Errorf("upload: %w", &breaker.RateLimitedError{}), 0, true, publisher.ReasonRateLimited, 0, 2 * time.Second, "rate_limited"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			began := b.redisNow()
			open, isOpen := errors.AsType[*breaker.OpenError](tc.err)
			if isOpen && tc.until > 0 {
				open.Until = time.Now().Add(tc.until)
			}
			b.run(b.options(), b.once(func(context.Context, *jobs.Job) error { return tc.err }))
			j := b.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 1}))
			e := b.want(publisher.Rescheduled)
			if e.Reason != tc.reason || e.Called != tc.called || !errors.Is(e.Err, tc.err) {
				t.Errorf("reason %q, called %v, %v", e.Reason, e.Called, e.Err)
			}
			if isOpen && e.Incident != open.Incident {
				t.Errorf("incident %q", e.Incident)
			}
			got := b.record(j.ID)
			if in := got.AvailableAt.Sub(began); in < tc.after || in > tc.most+time.Minute {
				t.Errorf("available in %v, want %v to %v", in, tc.after, tc.most)
			}
			if got.Attempt != 0 || got.RescheduleCount != 1 || got.LastError != "" && !tc.called || !strings.HasPrefix(got.ReasonCode, tc.why) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A refusal counts for the breaker whatever the handler makes of the job.
func TestFailedRateLimitCountsForTheBreaker(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(error) error{"Fail": jobs.Fail, "Discard": jobs.Discard} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			b.run(b.options(), func(_ context.Context, job *jobs.Job) error {
				job.Response = &jobs.Response{Status: http.StatusTooManyRequests}
				return fail(fmt.Errorf("given up: %w", jobs.RateLimited(time.Hour)))
			})
			b.enqueue()
			b.want(publisher.FailedFinal)
			if got := b.breaker(); got.State != breaker.Open || got.Cause != breaker.CauseHint {
				t.Errorf("the breaker is %s, cause %q; want OPEN by the hint", got.State, got.Cause)
			}
		})
	}
}

// A handler whose client has the breaker of its own destination makes the call that the
// worker's permit is for: in HALF_OPEN, in slow start and under a rate, too, where there
// is no second permit.
func TestClientWithTheDestinationsOwnBreakerProbes(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint("its client shares the worker's Redis client: ", shared), func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			var calls atomic.Int64
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) == 1 {
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}))
			t.Cleanup(api.Close)
			rdb := b.rdb
			if !shared {
				rdb = redistest.Shared(t).Client(t)
			}
			own, err := breaker.New(t.Context(), rdb, breaker.Options{Destination: b.dest, Cooldown: 100 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = own.Close() })
			client := &http.Client{Transport: breakerhttp.New(own, api.Client().Transport)}
			b.run(b.options(), func(ctx context.Context, _ *jobs.Job) error {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL, http.NoBody)
				if err != nil {
					return err
				}
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests {
					return jobs.RateLimited(300 * time.Millisecond)
				}
				return nil
			}, publisher.Concurrency(2), rules(100*time.Millisecond))
			const n = 10
			ids := b.enqueueMany(n)
			for _, id := range ids {
				b.waitStatus(id, jobs.Completed)
			}
			if got := calls.Load(); got > n+2 { // the one that was limited, and another in flight
				t.Errorf("%d calls for %d jobs", got, n)
			}
			if s := b.breaker(); s.State != breaker.Closed {
				t.Errorf("the breaker is %v", s.State)
			}
		})
	}
}
