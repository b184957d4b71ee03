package httpdest_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// What an answer's headers tell of the limit reaches the breaker, whatever the
// answer is otherwise.
func TestHTTPHints(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		status int
		header []string
		hints  []hint.Dialect
		limit  *jobs.RateLimitedError // nil: not rate limited
		budget *jobs.Budget
	}{
		{name: "nothing", status: 201},
		{name: "nothing but 429", status: 429, limit: &jobs.RateLimitedError{}},
		{name: "Retry-After", status: 429, header: []string{"Retry-After", "7"}, limit: &jobs.RateLimitedError{RetryAfter: 7 * time.Second}},
		{
			name: "counts with success", status: 201, header: []string{"RateLimit", `"a";r=3;t=40`, "RateLimit-Policy", `"a";q=10;w=60`},
			budget: &jobs.Budget{Remaining: 3, Reset: 40 * time.Second, Limit: 10},
		},
		{
			name: "counts with a failure", status: 500, header: []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "40"},
			budget: &jobs.Budget{Remaining: 3, Reset: 40 * time.Second},
		},
		{
			name: "counts with a refusal for good", status: 404, header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "40"},
			budget: &jobs.Budget{Reset: 40 * time.Second},
		},
		{
			name: "the window ends now", status: 200, header: []string{"RateLimit", `"a";r=0;t=0`},
			budget: &jobs.Budget{Reset: time.Second},
		},
		{name: "nobody knows until when", status: 200, header: []string{"X-RateLimit-Remaining", "3"}},
		{
			name: "of the user", status: 429, header: []string{"Retry-After", "7", "X-RateLimit-Scope", "user", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "6.5"},
			limit:  &jobs.RateLimitedError{RetryAfter: 7 * time.Second, Scope: jobs.ScopeUser},
			budget: &jobs.Budget{Reset: 6500 * time.Millisecond, Scope: jobs.ScopeUser},
		},
		{
			name: "of all", status: 429, header: []string{"Retry-After", "7", "X-RateLimit-Global", "true"},
			limit: &jobs.RateLimitedError{RetryAfter: 7 * time.Second, Scope: jobs.ScopeGlobal},
		},
		{
			name: "only some are trusted", status: 429, header: []string{"Retry-After", "7", "RateLimit", `"a";r=0;t=40`}, hints: []hint.Dialect{hint.RateLimit},
			limit: &jobs.RateLimitedError{RetryAfter: 40 * time.Second}, budget: &jobs.Budget{Reset: 40 * time.Second},
		},
		{
			name: "none is", status: 429, header: []string{"Retry-After", "7", "RateLimit", `"a";r=0;t=40`}, hints: []hint.Dialect{},
			limit: &jobs.RateLimitedError{},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(row.header); i += 2 {
					w.Header().Set(row.header[i], row.header[i+1])
				}
				w.WriteHeader(row.status)
			})
			job := aJob(jobs.Request{})
			job.Budget = &jobs.Budget{Remaining: 99, Reset: time.Hour} // of an earlier call
			err := newHTTP(t, httpdest.Options{URL: a.URL, Hints: row.hints}).Publish(t.Context(), job)
			limit, _ := errors.AsType[*jobs.RateLimitedError](err)
			if diff := cmp.Diff(row.limit, limit); diff != "" {
				t.Errorf("limit (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.budget, job.Budget); diff != "" {
				t.Errorf("budget (-want +got):\n%s", diff)
			}
		})
	}
}

// A call that is not answered tells nothing.
func TestHTTPNoAnswerNoBudget(t *testing.T) {
	t.Parallel()
	job := aJob(jobs.Request{})
	job.Budget = &jobs.Budget{Remaining: 99, Reset: time.Hour}
	if err := newHTTP(t, httpdest.Options{URL: "http://127.0.0.1:1"}).Publish(t.Context(), job); err == nil || job.Budget != nil {
		t.Errorf("error %v, budget %+v", err, job.Budget)
	}
}

func TestHTTPRefusesADialectWithoutRead(t *testing.T) {
	t.Parallel()
	_, err := httpdest.New(httpdest.Options{URL: "https://api.example.com", Hints: []hint.Dialect{hint.RetryAfter, {Name: "shop"}}})
	if want := `httpdest: new: hints: dialect "shop" has no Read`; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

// A 403 that is listed as rate limited is one only if a header says so: a missing
// permission is a 403 too, and would be rescheduled for ever.
func TestHTTPForbiddenIsALimitOnlyWithAHint(t *testing.T) {
	t.Parallel()
	const forbidden = "answered 403 Forbidden, and neither a header nor its body says that a limit is reached"
	for _, row := range []struct {
		name   string
		header []string
		hints  []hint.Dialect
		limit  *jobs.RateLimitedError // nil: failed for good
	}{
		{name: "no header"},
		{name: "calls are left", header: []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "59", "X-RateLimit-Reset", "40"}},
		{name: "calls are left in one of two limits", header: []string{"X-RateLimit-Remaining", "0", "RateLimit", `"a";r=3;t=40`}, limit: &jobs.RateLimitedError{}},
		{name: "no valid hint", header: []string{"Retry-After", "soon"}},
		{name: "wait", header: []string{"Retry-After", "7"}, limit: &jobs.RateLimitedError{RetryAfter: 7 * time.Second}},
		{name: "none left", header: []string{"x-ratelimit-remaining", "0"}, limit: &jobs.RateLimitedError{}},
		{name: "none left until", header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "40"}, limit: &jobs.RateLimitedError{RetryAfter: 40 * time.Second}},
		{name: "none left, and another dialect is believed", header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "40"}, hints: []hint.Dialect{hint.RetryAfter}, limit: &jobs.RateLimitedError{}},
		{name: "wait, and no dialect is believed", header: []string{"Retry-After", "7"}, hints: []hint.Dialect{}, limit: &jobs.RateLimitedError{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(row.header); i += 2 {
					w.Header().Set(row.header[i], row.header[i+1])
				}
				w.WriteHeader(http.StatusForbidden)
			})
			err := newHTTP(t, httpdest.Options{URL: a.URL, RateLimitedStatus: []int{403, 429}, Hints: row.hints}).Publish(t.Context(), aJob(jobs.Request{}))
			limit, _ := errors.AsType[*jobs.RateLimitedError](err)
			if diff := cmp.Diff(row.limit, limit); diff != "" {
				t.Errorf("limit (-want +got):\n%s", diff)
			}
			if row.limit == nil {
				wantPermanent(t, row.name, err, forbidden)
			}
		})
	}
}
