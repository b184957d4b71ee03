package publishertest_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/publishertest"
)

// What a handler tells of the API's limit is in the result, and not in the job that
// the next call is made for.
func TestPublishShowsTheLimit(t *testing.T) {
	t.Parallel()
	left := &jobs.Budget{Reset: time.Minute, Limit: 10, Scope: jobs.ScopeUser}
	calls := 0
	h := publisher.Func(func(_ context.Context, job *jobs.Job) error {
		if calls++; job.Budget != nil {
			t.Errorf("call %d was handed the budget %+v", calls, job.Budget)
		}
		if calls == 2 {
			return nil
		}
		job.Budget = left
		return jobs.RateLimited(90*time.Second, jobs.ScopeGlobal)
	})
	got := publishertest.Publish(t.Context(), h, publishertest.NewJob(jobs.New("gallery", nil, jobs.Key("alice"))))
	if !got.RateLimited || got.Hint != 90*time.Second || got.Scope != jobs.ScopeGlobal {
		t.Errorf("rate limited %t, hint %s, scope %q", got.RateLimited, got.Hint, got.Scope)
	}
	if diff := cmp.Diff(left, got.Budget); diff != "" {
		t.Errorf("budget (-want +got):\n%s", diff)
	}
	got = publishertest.Publish(t.Context(), h, got.Job)
	if got.RateLimited || got.Scope != "" || got.Budget != nil || got.Job.Budget != nil {
		t.Errorf("after a call that tells nothing: %+v", got)
	}
}
