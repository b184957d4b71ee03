package publisher

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/jobs"
)

// A decision about the job neither counts for an outage nor, with 5xx, ends one.
func TestBreakerOutcomeOfDecisions(t *testing.T) {
	t.Parallel()
	problem := errors.New("invalid title")
	fail, again := &progress.DecidedError{Err: jobs.Discard(problem), By: "rule 1"}, &progress.DecidedError{Err: jobs.Reschedule(1), By: "rule 1"}
	for _, row := range []struct {
		kind   callKind
		err    error
		status int
		want   breaker.Outcome
		counts bool
	}{
		{permanent, fail, 500, breaker.Failure(), false},
		{permanent, fail, 401, breaker.Success(), false},
		{permanent, fail, 403, breaker.Success(), false},
		{permanent, fail, 200, breaker.Success(), false},
		{rescheduled, again, 503, breaker.Failure(), false},
		{rescheduled, again, 403, breaker.Success(), false},
		{failed, problem, 500, breaker.NoAnswer(), true},
		{permanent, jobs.Discard(problem), 500, breaker.NoAnswer(), true},
		{permanent, jobs.Discard(problem), 403, breaker.Success(), false},
		{rescheduled, jobs.Reschedule(1), 503, breaker.Answered(503), false},
	} {
		r, answer := callResult{kind: row.kind, err: row.err, trigger: kinds[row.kind].trigger}, &jobs.Response{Status: row.status}
		if got := kinds[r.kind].report(r, answer); !reflect.DeepEqual(got, row.want) {
			t.Errorf("%d, %T: %#v, want %#v", row.status, row.err, got, row.want)
		}
		if got := r.countsForOutage(answer); got != row.counts {
			t.Errorf("%d, %T: counts for an outage: %t", row.status, row.err, got)
		}
	}
}

// A call that ended because this process stood still shows nothing of the API.
func TestInterruptedCallsCountForNoOutage(t *testing.T) {
	t.Parallel()
	for _, kind := range []callKind{failed, timedOut} {
		r := callResult{kind: kind, err: context.DeadlineExceeded, trigger: kinds[kind].trigger}
		if !r.countsForOutage(nil) {
			t.Errorf("callKind %d does not count", kind)
		}
		if r = r.stoodStill(); r.kind != interrupted || r.countsForOutage(nil) {
			t.Errorf("callKind %d counts although it is %d now", kind, r.kind)
		}
	}
}

// Each kind of a call has a row that says what becomes of its job, and an Outcome that metrics know.
func TestKinds(t *testing.T) {
	t.Parallel()
	for kind, row := range kinds {
		if resultOf[row.kind] == "" || row.outcome != "" && !slices.Contains(Outcomes, row.outcome) || row.called && row.outcome == "" {
			t.Errorf("callKind %d: %+v", kind, row)
		}
	}
}
