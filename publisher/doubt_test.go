package publisher_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidegate/tidegate/internal/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
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
	{"Google", 403, `{"error":{"code":403,"errors":[{"domain":"usageLimits","reason":"rateLimitExceeded"}]}}`, "limit"},
	{"Google, quota", 403, `{"error":{"code":403,"message":"Quota exceeded for quota metric 'Queries'"}}`, "limit"},
	{"AWS", 400, `{"__type":"ThrottlingException","message":"Rate exceeded"}`, "limit"},
	{"HubSpot", 403, `{"message":"Too Many Requests"}`, "limit"},

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
	a := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
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
	b.run(o, newHTTP(t, publisher.HTTPOptions{URL: a.URL}).Publish, publisher.Concurrency(1))
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
	for _, line := range []string{"looks like an error", "names a rate limit, and its job failed"} {
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
