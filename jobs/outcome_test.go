package jobs_test

import (
	"encoding/json"
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
		{jobs.Reschedule(time.Minute, jobs.ExtendExpiration(-time.Hour)), time.Minute, 0, "reschedule in 1m0s"},
		{jobs.Reschedule(time.Minute, nil, jobs.ExtendExpiration(time.Hour)), time.Minute, time.Hour, "reschedule in 1m0s"},
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
		err   error
		after time.Duration
		scope jobs.Scope
		text  string
	}{
		{jobs.RateLimited(90 * time.Second), 90 * time.Second, jobs.ScopeUnknown, "rate limited, retry after 1m30s"},
		{jobs.RateLimited(0), 0, jobs.ScopeUnknown, "rate limited"},
		{jobs.RateLimited(-1), 0, jobs.ScopeUnknown, "rate limited"},
		{jobs.RateLimited(time.Second, jobs.ScopeUnknown), time.Second, jobs.ScopeUnknown, "rate limited, retry after 1s"},
		{jobs.RateLimited(time.Second, jobs.ScopeUser), time.Second, jobs.ScopeUser, "rate limited (user limit), retry after 1s"},
		{jobs.RateLimited(0, jobs.ScopeGlobal), 0, jobs.ScopeGlobal, "rate limited (global limit)"},
	} {
		got, ok := errors.AsType[*jobs.RateLimitedError](fmt.Errorf("wrapped: %w", tc.err))
		if !ok || got.RetryAfter != tc.after || got.Scope != tc.scope || got.Error() != tc.text || got.Response != nil {
			t.Errorf("%+v, want %s, scope %q, %q", got, tc.after, tc.scope, tc.text)
		}
	}
}

// What an API says of its limit is for the breaker and no part of a job that
// people look at.
func TestBudgetIsNotShown(t *testing.T) {
	t.Parallel()
	with, err := json.Marshal(jobs.Job{ID: "a", Budget: &jobs.Budget{Remaining: 3, Reset: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	without, err := json.Marshal(jobs.Job{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if string(with) != string(without) {
		t.Errorf("%s, want %s", with, without)
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

// No duration of a job may be negative; it does not mean the default.
func TestNegativeDurationsOfJobsAreRefused(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]jobs.Option{
		"request.timeout_secs": jobs.CallTimeout(-time.Millisecond), "delay": jobs.Delay(-1), "ttl": jobs.TTL(-1),
	} {
		err := jobs.New("api", nil, o).Validate(jobs.Limits{})
		if got, ok := errors.AsType[*jobs.ValidationError](err); !ok || len(got.Fields) != 1 || got.Fields[0].Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
