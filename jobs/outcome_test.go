package jobs_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

func TestReschedule(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err    error
		delay  time.Duration
		extend time.Duration
		text   string
	}{
		{jobs.Reschedule(time.Minute, jobs.ExtendExpiration(time.Hour)), time.Minute, time.Hour, "reschedule in 1m0s"},
		{jobs.Reschedule(0), 0, 0, "reschedule in 0s"},
		{jobs.Reschedule(-time.Minute), 0, 0, "reschedule in 0s"},
		{jobs.Reschedule(1000 * time.Hour), 1000 * time.Hour, 0, "reschedule in 1000h0m0s"},
	} {
		got, ok := errors.AsType[*jobs.RescheduleError](fmt.Errorf("wrapped: %w", tc.err))
		if !ok || got.Delay != tc.delay || got.ExtendExpiration != tc.extend || got.Error() != tc.text {
			t.Errorf("%+v, want %s, %s, %q", got, tc.delay, tc.extend, tc.text)
		}
	}
}

func TestRateLimited(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		given, want time.Duration
		text        string
	}{
		{90 * time.Second, 90 * time.Second, "rate limited, retry after 1m30s"},
		{0, 0, "rate limited"},
		{-1, 0, "rate limited"},
	} {
		got, ok := errors.AsType[*jobs.RateLimitedError](fmt.Errorf("wrapped: %w", jobs.RateLimited(tc.given)))
		if !ok || got.RetryAfter != tc.want || got.Error() != tc.text || got.Response != nil {
			t.Errorf("%s: %+v, want %s, %q", tc.given, got, tc.want, tc.text)
		}
	}
}

func TestFailAndDiscard(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tc := range []struct {
		err       error
		permanent bool
		text      string
	}{
		{jobs.Fail(boom), false, "boom"},
		{jobs.Discard(boom), true, "boom"},
		{jobs.Fail(nil), false, "failed"},
		{jobs.Discard(nil), true, "failed"},
	} {
		got, ok := errors.AsType[*jobs.FailError](fmt.Errorf("wrapped: %w", tc.err))
		if !ok || got.Permanent != tc.permanent || got.Error() != tc.text {
			t.Errorf("%+v, want permanent %t, %q", got, tc.permanent, tc.text)
		}
	}
	if !errors.Is(jobs.Discard(fmt.Errorf("because: %w", boom)), boom) {
		t.Error("the cause cannot be found")
	}
}
