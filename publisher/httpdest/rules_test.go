package httpdest_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// attempted calls an API that answers so, and returns the result.
func attempted(t *testing.T, o httpdest.Options, status int, body string, header ...string) publisher.Attempted {
	t.Helper()
	a := fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		answerWith(status, body)(w, r)
	})
	o.URL = a.URL
	got, err := publisher.Attempt(t.Context(), newHTTP(t, o), &jobs.Job{ID: "j", Destination: "shop", Key: "alice", Payload: []byte("{}")}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// rulesFunc is a function that implements Rules.
type rulesFunc func(httpdest.Answered) (httpdest.Decision, bool)

func (f rulesFunc) Decide(a httpdest.Answered) (httpdest.Decision, bool) { return f(a) }

// An API of one's own decides by a header, which comes before rules and status, if it is
// trusted.
func TestHTTPTrustedOutcome(t *testing.T) {
	t.Parallel()
	rules := rulesFunc(func(httpdest.Answered) (httpdest.Decision, bool) {
		return httpdest.Decision{Then: httpdest.ThenRetry, By: "rule 1"}, true
	})
	for _, row := range []struct {
		header, result, err string
		wait                time.Duration
		scope               jobs.Scope
	}{
		{"ok", publisher.Completed, "", 0, ""},
		{"limited; after=60; scope=key", publisher.Rescheduled, "rate limited (user limit), retry after 1m0s: Tidegate-Outcome", time.Minute, jobs.ScopeUser},
		{"limited;after=1.5;scope=destination", publisher.Rescheduled, "rate limited (global limit), retry after 1.5s: Tidegate-Outcome", 1500 * time.Millisecond, jobs.ScopeGlobal},
		{"limited", publisher.Rescheduled, "rate limited: Tidegate-Outcome", 0, ""},
		{"limited; after=\"1m30s\"", publisher.Rescheduled, "rate limited, retry after 1m30s: Tidegate-Outcome", 90 * time.Second, ""},
		{"limited; after=-5", publisher.Rescheduled, "rate limited: Tidegate-Outcome", 0, ""},
		{"limited; after=999999999999999", publisher.Rescheduled, "retry after 8760h0m0s", 365 * 24 * time.Hour, ""},
		{"retry", publisher.FailedFinal, "answered 418 I'm a teapot; Tidegate-Outcome", 0, ""},
		{"fail", publisher.FailedFinal, "answered 418 I'm a teapot; Tidegate-Outcome", 0, ""},
		{"reschedule; after=90", publisher.Rescheduled, "", 0, ""},
		{"limitd", publisher.FailedFinal, "rule 1", 0, ""},
		{`"ok"`, publisher.FailedFinal, "rule 1", 0, ""},
		{"ok, fail", publisher.FailedFinal, "rule 1", 0, ""},
		{strings.Repeat("ok;", 1000), publisher.FailedFinal, "rule 1", 0, ""},
	} {
		o := httpdest.Options{TrustOutcome: true, Rules: rules}
		got := attempted(t, o, http.StatusTeapot, "x", "Tidegate-Outcome", row.header)
		if got.Result != row.result || (got.Error == "") != (row.err == "") || !strings.Contains(got.Error, row.err) || got.Hint != row.wait || got.Scope != row.scope {
			t.Errorf("%.40s: %s, %q, %s, %q", row.header, got.Result, got.Error, got.Hint, got.Scope)
		}
		if got.Response == nil || got.Response.Body != "x" {
			t.Errorf("%.40s: stored %+v", row.header, got.Response)
		}
	}
	if got := attempted(t, httpdest.Options{}, http.StatusTeapot, "", "Tidegate-Outcome", "ok"); got.Result != publisher.FailedFinal {
		t.Errorf("not trusted: %s", got.Result)
	}
	if got := attempted(t, httpdest.Options{TrustOutcome: true}, 200, "", "Tidegate-Outcome", "reschedule; after=90"); got.WaitsText != "rescheduled by Tidegate-Outcome" {
		t.Errorf("waits for %q", got.WaitsText)
	}
	for header, want := range map[string]time.Duration{
		"accepted; within=1h": time.Hour, `accepted; within="1m30s"`: 90 * time.Second, "accepted; within=60": time.Minute, "accepted": jobs.DefaultWithin,
	} {
		now := time.Now()
		got := attempted(t, httpdest.Options{TrustOutcome: true}, 202, "queued", "Tidegate-Outcome", header)
		if left := got.AvailableAt.Sub(now); got.Result != publisher.Accepted || got.Outcome != publisher.OutcomeAccepted || left < want || left > want+time.Minute || got.Error != "" {
			t.Errorf("%s: %s, %s, result due in %s, want %s; %s", header, got.Result, got.Outcome, left, want, got.Error)
		}
	}
	for header, want := range map[string]time.Duration{"; extend=120": 2 * time.Minute, `; extend="1h"`: time.Hour, "; extend=-5": 0, "; extend": 0} {
		if got := attempted(t, httpdest.Options{TrustOutcome: true}, 200, "", "Tidegate-Outcome", "reschedule; after=60"+header); got.Extend != want {
			t.Errorf("%s: expires %s later, want %s", header, got.Extend, want)
		}
	}
}

// Rules see 256 KiB of a body, of which as much is stored as without them.
func TestHTTPRulesSeeTheBody(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{0: 0, 100: 100, 100 << 10: 100 << 10, 256 << 10: httpdest.MaxRulesBody, 300 << 10: httpdest.MaxRulesBody} {
		seen := -1
		rules := rulesFunc(func(a httpdest.Answered) (httpdest.Decision, bool) {
			if a.Job.Key != "alice" || a.Status != 200 || a.Header.Get("X-A") != "b" || a.Received.IsZero() {
				t.Errorf("rules see %+v", a)
			}
			seen = len(a.Body)
			return httpdest.Decision{Then: httpdest.ThenOK}, size > httpdest.MaxRulesBody
		})
		got := attempted(t, httpdest.Options{Rules: rules}, 200, strings.Repeat("x", size), "X-A", "b")
		if seen != want || got.Result != publisher.Completed || len(got.Response.Body) != min(size, 4<<10) {
			t.Errorf("of %d bytes rules see %d, want %d; %s with %d", size, seen, want, got.Result, len(got.Response.Body))
		}
	}
}

// A 2xx may say in its body that the call failed: without the whole body it completes a job only
// by a rule.
func TestHTTPRulesNeedTheBody(t *testing.T) {
	t.Parallel()
	none := func(httpdest.Answered) (httpdest.Decision, bool) { return httpdest.Decision{}, false }
	done := func(httpdest.Answered) (httpdest.Decision, bool) {
		return httpdest.Decision{Then: httpdest.ThenOK}, true
	}
	brokenOff := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			answerWith(status, `{"ok":fal`)(w, nil)
		}
	}
	long := answerWith(200, `{"ok":false,"x":"`+strings.Repeat("x", httpdest.MaxRulesBody)+`"}`)
	for _, row := range []struct {
		name   string
		answer http.HandlerFunc
		rules  httpdest.Rules
		trust  bool
		result string
		err    string
	}{
		{"broke off", brokenOff(200), rulesFunc(none), false, publisher.Retried, "answered 200 OK, and the answer broke off: unexpected EOF"},
		{"too long", long, rulesFunc(none), false, publisher.Retried, "answered 200 OK, and the answer broke off: rules see 262144 bytes"},
		{"broke off, and a rule matches", brokenOff(200), rulesFunc(done), false, publisher.Completed, ""},
		{"too long, and a rule matches", long, rulesFunc(done), false, publisher.Completed, ""},
		{"broke off, and the header decides", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(httpdest.OutcomeHeader, "ok")
			brokenOff(200)(w, r)
		}, rulesFunc(none), true, publisher.Completed, ""},
		{"broke off with a permanent status", brokenOff(400), rulesFunc(none), false, publisher.FailedFinal, "answered 400 Bad Request"},
		{"broke off without rules", brokenOff(200), nil, false, publisher.Completed, ""},
		{"too long without rules", long, nil, false, publisher.Completed, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newHTTP(t, httpdest.Options{URL: fakehttp.Record(t, row.answer).URL, Rules: row.rules, TrustOutcome: row.trust})
			job := &jobs.Job{ID: "j", Destination: "shop", Payload: []byte("{}"), Retry: &jobs.RetryPolicy{MaxRetries: 1, RetryOn: []jobs.Trigger{jobs.OnFailure}}}
			got, err := publisher.Attempt(t.Context(), h, job, time.Now())
			if err != nil || got.Result != row.result || got.Error != row.err {
				t.Errorf("%s, %q, %v; want %s, %q", got.Result, got.Error, err, row.result, row.err)
			}
		})
	}
}

// A 5xx is a limit if it says when to come back.
func TestHTTP5xx(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(time.Minute).UTC()
	for _, row := range []struct {
		name   string
		status int
		o      httpdest.Options
		header []string
		want   string
	}{
		{"without Retry-After", 503, httpdest.Options{}, nil, publisher.FailedFinal},
		{"with it", 503, httpdest.Options{}, []string{"Retry-After", "30"}, publisher.Rescheduled},
		{"as a date", 503, httpdest.Options{}, []string{"Retry-After", at.Format(http.TimeFormat)}, publisher.Rescheduled},
		{"as Unix seconds", 503, httpdest.Options{}, []string{"Retry-After", strconv.FormatInt(at.Unix(), 10)}, publisher.Rescheduled},
		{"in milliseconds", 500, httpdest.Options{}, []string{"Retry-After-Ms", "30000"}, publisher.Rescheduled},
		{"500", 500, httpdest.Options{}, []string{"Retry-After", "30"}, publisher.Rescheduled},
		{"502", 502, httpdest.Options{}, []string{"Retry-After", "30"}, publisher.Rescheduled},
		{"504", 504, httpdest.Options{}, []string{"Retry-After", "30"}, publisher.Rescheduled},
		{"529, an overloaded API", 529, httpdest.Options{}, []string{"Retry-After", "30"}, publisher.Rescheduled},
		{"529 without it", 529, httpdest.Options{}, nil, publisher.FailedFinal},
		{"404 with it", 404, httpdest.Options{}, []string{"Retry-After", "30"}, publisher.FailedFinal},
		{"not valid", 503, httpdest.Options{}, []string{"Retry-After", "soon"}, publisher.FailedFinal},
		{"zero", 503, httpdest.Options{}, []string{"Retry-After", "0"}, publisher.FailedFinal},
		{"it is permanent", 503, httpdest.Options{PermanentStatus: []int{503}}, []string{"Retry-After", "30"}, publisher.FailedFinal},
		{"no hints", 503, httpdest.Options{Hints: []hint.Dialect{}}, []string{"Retry-After", "30"}, publisher.FailedFinal},
	} {
		got := attempted(t, row.o, row.status, "", row.header...)
		if got.Result != row.want || got.RateLimited != (row.want == publisher.Rescheduled) || got.RateLimited && got.Hint < 20*time.Second {
			t.Errorf("%s: %s, limited %t for %s", row.name, got.Result, got.RateLimited, got.Hint)
		}
	}
}
