package publisher_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// Responses of APIs by their documentation, and what a worker says of them without a rule.
var doubtful = []struct {
	api    string
	status int
	body   string
	kind   string // "": none
}{
	{"GitHub GraphQL", 200, `{"errors":[{"type":"RATE_LIMIT","message":"API rate limit already exceeded for user ID 1."}]}`, "error"},
	{"GitHub GraphQL, mutation", 200, `{"data":{"addComment":null},"errors":[{"type":"NOT_FOUND","path":["addComment"]}]}`, "error"},
	{"Shopify GraphQL", 200, `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":752}}}`, "error"},
	{"monday", 200, `{"data":null,"errors":[{"message":"Complexity budget exhausted"}],"account_id":1}`, "error"},
	{"monday, older", 200, `{"error_code":"ComplexityException","error_message":"budget exhausted","status_code":200}`, "error"},
	{"Slack", 200, `{"ok":false,"error":"channel_not_found"}`, "error"},
	{"Telegram", 200, ` {"ok" : false, "description":"Bad Request"}`, "error"},
	{"Cloudflare", 200, `{"success":false,"errors":[{"code":1003}],"messages":[],"result":null}`, "error"},
	{"JSON-RPC", 200, `{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}`, "error"},
	{"JSend", 201, `{"status":"error","message":"Unable to communicate with database"}`, "error"},
	{"WeChat", 200, `{"errcode":40001,"errmsg":"invalid credential"}`, "error"},
	{"a number for false", 200, `{"success":0,"message":"no credit"}`, "error"},
	{"in capitals", 200, `{"status":"ERROR","reason":"no credit"}`, "error"},
	{"Linear", 400, `{"errors":[{"message":"Rate limit exceeded","extensions":{"code":"RATELIMITED"}}]}`, "limit"},
	{"AWS", 400, `{"__type":"ThrottlingException","message":"Rate exceeded"}`, "limit"},
	{"a quota of storage", 403, `{"error":{"code":403,"message":"The user's Drive storage quota has been exceeded.","errors":[{"reason":"storageQuotaExceeded"}]}}`, "limit"},

	{"GraphQL, done", 200, `{"data":{"issueCreate":{"success":true}}}`, ""},
	{"GraphQL, done in part", 200, `{"data":{"a":{"id":1},"b":null},"errors":[{"message":"b was not found"}]}`, ""},
	{"GraphQL, done and empty errors", 200, `{"data":null,"errors":[]}`, ""},
	{"Slack, done", 200, `{"ok":true,"error":null,"errors":[]}`, ""},
	{"WeChat, done", 200, `{"errcode":0,"errmsg":"ok"}`, ""},
	{"JSON-RPC, done", 200, `{"jsonrpc":"2.0","error":null,"result":{},"id":1}`, ""},
	{"bulk, done in part", 200, `{"created":5,"errors":[{"row":3}]}`, ""},
	{"nested", 200, `{"id":1,"child":{"ok":false,"success":false,"error":"x"}}`, ""},
	{"a count", 200, `{"ok":5,"success":1,"status":"Failed over"}`, ""},
	{"a text", 200, `"ok": false`, ""},
	{"a list", 200, `[{"ok":false}]`, ""},
	{"large", 200, `{"ok":false,"x":"` + strings.Repeat("x", 20<<10) + `"}`, ""},
	{"not JSON", 200, `{"ok":false`, ""},
	{"invalid input", 422, `{"message":"title is missing"}`, ""},
	{"missing permission", 403, `{"message":"Resource not accessible by integration"}`, ""},
}

// Without rules the outcome is that of the status. Responses that look like something else are counted,
// logged once a minute and kind with the rule that reads them, and in the worker's record; a job that fails
// although a limit is named says so.
func TestDoubtfulResponses(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &n); err != nil {
			t.Error(err)
		}
		w.WriteHeader(doubtful[n].status)
		_, _ = fmt.Fprint(w, doubtful[n].body)
	})
	log := &loggingtest.Buffer{}
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	var found atomic.Value
	found.Store("")
	o.Observe(publisher.Observer{OnDoubtful: func(_, kind string) { found.Store(kind) }})
	b.run(o, newHTTP(t, httpdest.Options{URL: a.URL}).Publish, publisher.Concurrency(1))
	for i, row := range doubtful {
		found.Store("")
		e := b.result(b.enqueue(jobs.Path(fmt.Sprintf("/%d", i))).ID)
		if got := found.Load(); got != row.kind {
			t.Errorf("%s: found %q, want %q", row.api, got, row.kind)
		}
		if completed := e.Result == publisher.Completed; completed != (row.status < 300) {
			t.Errorf("%s: %s", row.api, e.Result)
		}
		if says := strings.Contains(e.LastError, "names a rate limit"); says != (row.kind == "limit") {
			t.Errorf("%s: last error %q", row.api, e.LastError)
		}
	}
	for _, line := range []string{"looks like an error", "names a rate limit that no answer rule reads"} {
		if n := len(log.Lines(line)); n != 1 {
			t.Errorf("%d log lines %q, want 1", n, line)
		}
	}
	redistest.Eventually(t, "the worker's record has them", func() bool {
		workers, err := b.client.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, d := range workers.Doubts(b.dest) {
			if d.Rule != "" && d.Sign != "" {
				got[d.Kind] += d.Count
			}
		}
		return got["error"] > 0 && got["limit"] > 0 // the numbers follow with the next heartbeat
	})
}

// What the log says of a job whose response names a limit is what becomes of it.
func TestDoubtfulResponseOfAJobThatDoesNotFail(t *testing.T) {
	t.Parallel()
	for result, options := range map[string][]publisher.HandleOption{
		publisher.Retried:     {publisher.Retry(jobs.RetryPolicy{MaxRetries: 3})},
		publisher.Rescheduled: {publisher.Breaker(breaker.Options{OutageThreshold: 1})},
	} {
		b := newFixture(t)
		a := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"message":"limits: requests per day"}`)
		})
		log := &loggingtest.Buffer{}
		o := b.options()
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		b.run(o, newHTTP(t, httpdest.Options{URL: a.URL}).Publish, options...)
		b.result(b.enqueue().ID)
		if lines := log.Lines("names a rate limit that no answer rule reads"); len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]), "result="+result+" ") {
			t.Errorf("of a job that is %s the log says %s", result, lines)
		}
	}
}

// Bodies of 403 by their documentation, or as seen.
var forbidden = []struct {
	api, body string
	limited   bool
}{
	{"GitHub", `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`, true},
	{"GitHub, primary", `{"message":"API rate limit exceeded for user ID 1."}`, true},
	{"Google", `{"error":{"code":403,"message":"Rate Limit Exceeded","errors":[{"domain":"usageLimits","reason":"rateLimitExceeded"}]}}`, true},
	{"Google, of a user", `{"error":{"code":403,"errors":[{"reason":"userRateLimitExceeded"}]}}`, true},
	{"Google, of a day", `{"error":{"code":403,"errors":[{"reason":"dailyLimitExceeded"}]}}`, true},
	{"YouTube", `{"error":{"code":403,"errors":[{"domain":"youtube.quota","reason":"quotaExceeded"}]}}`, true},
	{"Google, a metric", `{"error":{"code":403,"message":"Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'"}}`, true},
	{"Google, as HTML", `<html><title>User Rate Limit Exceeded</title></html>`, true},
	{"HubSpot", `{"message":"Too Many Requests"}`, true},
	{"a code", `{"error":"TOO_MANY_REQUESTS"}`, true},
	{"Salesforce", `[{"errorCode":"REQUEST_LIMIT_EXCEEDED","message":"TotalRequests Limit exceeded."}]`, true},
	{"AWS", `{"__type":"ThrottlingException","message":"Rate exceeded"}`, true},
	{"Mashery", `<h1>Developer Over Rate</h1>`, true},
	{"a proxy", `You are being rate limited`, true},

	{"GitHub, a permission", `{"message":"Resource not accessible by integration","documentation_url":"https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api"}`, false},
	{"a link to errors", `{"error":"forbidden","see":"https://api.example.com/errors#too-many-requests"}`, false},
	{"Google Drive, storage", `{"error":{"message":"The user's Drive storage quota has been exceeded.","errors":[{"reason":"storageQuotaExceeded"}]}}`, false},
	{"OpenAI, billing", `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","code":"insufficient_quota"}}`, false},
	{"a plan", `{"message":"The limit of 5 webhooks is reached. Upgrade your plan."}`, false},
	{"seats", `{"message":"User limit exceeded: buy more seats"}`, false},
	{"a size", `{"message":"File size limit exceeded"}`, false},
	{"a scope", `{"message":"The token lacks the scope rate_limit:read"}`, false},
	{"a right", `{"message":"You may not change the rate limits of this project"}`, false},
	{"a plan without limits", `{"message":"Your plan has no API. Rate limits: 100 requests per minute"}`, false},
	{"a firewall", `<html><head><title>403 Forbidden</title></head><body>You have been blocked</body></html>`, false},
	{"nothing", ``, false},
}

// A 403 whose body plainly says that a rate limit is reached is a refusal because of it, with the headers' wait.
func TestForbiddenThatNamesALimit(t *testing.T) {
	t.Parallel()
	body := ""
	a := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "42")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w, body)
	})
	for _, statuses := range [][]int{nil, {403, 429}} {
		h := newHTTP(t, httpdest.Options{URL: a.URL, RateLimitedStatus: statuses, Hints: []hint.Dialect{hint.XRateLimit, hint.RetryAfter}})
		for _, row := range forbidden {
			body = row.body
			err := h.Publish(t.Context(), &jobs.Job{ID: "post-1", Destination: "api", Payload: []byte("{}")})
			limited, ok := errors.AsType[*jobs.RateLimitedError](err)
			if want := row.limited || statuses != nil; ok != want || want && limited.RetryAfter != 42*time.Second {
				t.Errorf("%s, of limited statuses %v: %v, want limited: %v", row.api, statuses, err, want)
			}
		}
	}
	body = forbidden[0].body
	h := newHTTP(t, httpdest.Options{URL: a.URL, PermanentStatus: []int{403}})
	if err := h.Publish(t.Context(), &jobs.Job{ID: "post-1", Destination: "api", Payload: []byte("{}")}); errors.As(err, new(*jobs.RateLimitedError)) {
		t.Errorf("a 403 that is configured as permanent: %v", err)
	}
}
