package answers_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/internal/dest/answers"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// slack, graphQL, github and own are rules as users write them.
const (
	slack = `
- when: status == 200 && body.ok == false && body.error == "ratelimited"
  then: limited
  reason: "{{ body.error }}"
- when: status == 200 && body.ok == false && body.error in ["fatal_error", "internal_error", "service_unavailable"]
  then: retry
  reason: "{{ body.error }}"
- when: status == 200 && body.ok == false
  then: fail
  reason: "{{ body.error }}"
`
	graphQL = `
rules:
- when: status == 200 && any(body.errors ?? [], .extensions?.code == "THROTTLED")
  then: limited
  wait: (body.extensions.cost.requestedQueryCost - body.extensions.cost.throttleStatus.currentlyAvailable) / body.extensions.cost.throttleStatus.restoreRate
  cost: body.extensions.cost.requestedQueryCost
  reason: throttled
- when: status == 200 && len(body.errors ?? []) > 0
  then: fail
  reason: "{{ body.errors[0].message }}"
`
	github = `
- when: status in [403, 429] && headers["retry-after"] != ""
  then: limited
  wait: headers["retry-after"]
  reason: secondary limit
- when: status == 403 && headers["x-ratelimit-remaining"] == "0"
  then: limited
  until: headers["x-ratelimit-reset"]
  scope: key
  reason: primary limit
- when: status == 403 && body.message contains "secondary rate limit"
  then: limited
  wait: 1m
  reason: secondary limit
`
	own = `[{"when": "status == 403 && body.code == 'too_many'", "then": "limited", "until": "body.retry_at", "scope": "destination"},
		{"when": "status == 409", "then": "ok", "reason": "it is there already"},
		{"when": "status == 423", "then": "reschedule", "wait": "duration('90s')", "reason": "locked by {{ body.by }}"}]`
)

func parse(t testing.TB, text string) *answers.Rules {
	t.Helper()
	r, err := answers.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The outcome of a call by rules, over HTTP.
func TestRules(t *testing.T) {
	t.Parallel()
	soon := strconv.FormatInt(time.Now().Add(2*time.Minute).Unix(), 10)
	for _, row := range []struct {
		name, rules string
		status      int
		header      []string
		body        string
		result      string // of the attempt
		err         string // what is stored with the job
		wait        time.Duration
		scope       jobs.Scope
		reason      string
		output      string
	}{
		{name: "Slack accepts", rules: slack, status: 200, body: `{"ok":true}`, result: publisher.Completed},
		{
			name: "Slack limits", rules: slack, status: 200, header: []string{"Retry-After", "30"}, body: `{"ok":false,"error":"ratelimited"}`,
			result: publisher.Rescheduled, err: "rate limited, retry after 30s: rule 1: ratelimited", wait: 30 * time.Second, reason: "rate limited by shop",
		},
		{
			name: "Slack fails for a moment", rules: slack, status: 200, body: `{"ok":false,"error":"internal_error"}`,
			result: publisher.FailedFinal, err: "answered 200 OK; rule 2: internal_error", reason: "decided by rule 2: internal_error",
		},
		{
			name: "Slack refuses", rules: slack, status: 200, body: `{"ok":false,"error":"channel_not_found"}`,
			result: publisher.FailedFinal, err: "answered 200 OK; rule 3: channel_not_found", reason: "decided by rule 3: channel_not_found",
		},
		{name: "GraphQL", rules: graphQL, status: 200, body: `{"data":{"x":1}}`, result: publisher.Completed},
		{
			name: "GraphQL throttles", rules: graphQL, status: 200,
			body:   `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":502,"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":2,"restoreRate":50}}}}`,
			result: publisher.Rescheduled, err: "rate limited, retry after 10s: rule 1: throttled", wait: 10 * time.Second, reason: "rate limited by shop",
		},
		{
			name: "GraphQL refuses", rules: graphQL, status: 200, body: `{"errors":[{"message":"Field 'x' doesn't exist"}]}`,
			result: publisher.FailedFinal, err: "answered 200 OK; rule 2: Field 'x' doesn't exist", reason: "decided by rule 2: Field 'x' doesn't exist",
		},
		{
			name: "GitHub's secondary limit by its header", rules: github, status: 403, header: []string{"Retry-After", "60"}, body: `{"message":"x"}`,
			result: publisher.Rescheduled, err: "rate limited, retry after 1m0s: rule 1: secondary limit", wait: time.Minute, reason: "rate limited by shop",
		},
		{
			name: "GitHub's primary limit", rules: github, status: 403, header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", soon}, body: `{}`,
			result: publisher.Rescheduled, err: "primary limit", wait: 2 * time.Minute, scope: jobs.ScopeUser, reason: "rate limited by shop",
		},
		{
			name: "GitHub's secondary limit by its text", rules: github, status: 403, body: `{"message":"You have exceeded a secondary rate limit."}`,
			result: publisher.Rescheduled, err: "rate limited, retry after 1m0s: rule 3: secondary limit", wait: time.Minute, reason: "rate limited by shop",
		},
		{
			name: "GitHub's permissions", rules: github, status: 403, body: `{"message":"Resource not accessible by integration"}`,
			result: publisher.FailedFinal, err: "answered 403 Forbidden",
		},
		{
			name: "an API of one's own limits", rules: own, status: 403, body: `{"code":"too_many","retry_at":"` + time.Now().Add(2*time.Minute).UTC().Format(time.RFC3339) + `"}`,
			result: publisher.Rescheduled, err: "rule 1", wait: 2 * time.Minute, scope: jobs.ScopeGlobal, reason: "rate limited by shop",
		},
		{name: "it forbids a title", rules: own, status: 403, body: `{"code":"bad_title"}`, result: publisher.FailedFinal, err: "answered 403 Forbidden"},
		{name: "it has the post", rules: own, status: 409, result: publisher.Completed, reason: "decided by rule 2: it is there already"},
		{
			name: "it is locked", rules: own, status: 423, body: `{"by":"ann"}`,
			result: publisher.Rescheduled, wait: 90 * time.Second, reason: "rescheduled by rule 3: locked by ann",
		},
		{name: "429 without a rule", rules: own, status: 429, header: []string{"Retry-After", "7"}, result: publisher.Rescheduled, err: "rate limited, retry after 7s", wait: 7 * time.Second, reason: "rate limited by shop"},
		{name: "a rule for 429", rules: `[{"when": "status == 429", "then": "fail"}]`, status: 429, result: publisher.FailedFinal, err: "answered 429 Too Many Requests; rule 1", reason: "decided by rule 1"},
		{
			name: "another status than 401", rules: `[{"when": "status == 400 && body.error == 'invalid_token'", "then": "unauthorized", "reason": "{{ body.error }}"}]`,
			status: 400, body: `{"error":"invalid_token"}`, result: publisher.Rescheduled, err: "answered 400 Bad Request; rule 1: invalid_token", reason: "token refused by shop",
		},
		{
			name: "an output", rules: `[{"when": "status == 201", "then": "ok", "output": "{'id': body.itemid}"}]`,
			status: 201, body: `{"itemid":9163772421734832}`, result: publisher.Completed, output: `{"id":9163772421734832}`, reason: "decided by rule 1",
		},
		{
			name: "an output with the token", rules: `[{"when": "status == 201", "then": "ok", "output": "{'id': body.itemid, 'token': 'secret-token'}"}]`,
			status: 201, body: `{"itemid":9163772421734832}`, result: publisher.Completed, reason: "decided by rule 1",
		},
		{
			name: "a reason echoes the token", rules: `[{"when": "true", "then": "fail", "reason": "{{ body }}"}]`, status: 400, body: "you sent secret-token",
			result: publisher.FailedFinal, err: "answered 400 Bad Request; rule 1: you sent [redacted]", reason: "decided by rule 1: you sent [redacted]",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(row.header); i += 2 {
					w.Header().Set(row.header[i], row.header[i+1])
				}
				w.WriteHeader(row.status)
				_, _ = w.Write([]byte(row.body))
			}))
			t.Cleanup(server.Close)
			path := filepath.Join(t.TempDir(), "rules.yaml")
			if err := os.WriteFile(path, []byte(row.rules), 0o600); err != nil {
				t.Fatal(err)
			}
			file, err := answers.Open(answers.Options{File: path, Failed: func(f answers.Failure) { t.Errorf("failed: %v", f) }})
			if err != nil {
				t.Fatal(err)
			}
			h, err := httpdest.New(httpdest.Options{
				URL: server.URL, AuthToken: "secret-token", Rules: file, PermanentStatus: []int{400, 403, 404},
			})
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			a, err := publisher.Attempt(t.Context(), h, &jobs.Job{ID: "j", Destination: "shop", Payload: []byte("{}")}, now)
			if err != nil {
				t.Fatal(err)
			}
			if a.Result != row.result || row.err == "" != (a.Error == "") || !strings.Contains(a.Error, row.err) || a.WaitsText != row.reason {
				t.Errorf("%s, %q, reason %q", a.Result, a.Error, a.WaitsText)
			}
			if a.RateLimited && (a.Scope != row.scope || a.Hint.Round(5*time.Second) != row.wait.Round(5*time.Second)) {
				t.Errorf("a limit of %q for %s, want %q, %s", a.Scope, a.Hint, row.scope, row.wait)
			}
			if row.wait > 0 && a.AvailableAt.Sub(now).Round(5*time.Second) != row.wait.Round(5*time.Second) {
				t.Errorf("waits for %s, want %s", a.AvailableAt.Sub(now), row.wait)
			}
			if string(a.Output) != row.output {
				t.Errorf("output %s, want %s", a.Output, row.output)
			}
			if a.Response == nil || a.Response.Status != row.status {
				t.Errorf("stored of the answer: %+v", a.Response)
			}
		})
	}
}

// What an operator has written wrong, with the place where.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"empty", "", "is empty"},
		{"a text", "hello", "is not a list of rules"},
		{"an object", "rule: []", "is not a list of rules"},
		{"not YAML", "- when: [", "is neither YAML nor JSON: line 1"},
		{"two documents", "- {when: true, then: ok}\n---\n- {when: true, then: ok}", "holds more than one YAML document"},
		{"a list", "- - a", "line 1: rule 1 is not an object with when and then"},
		{"unknown field", "- when: 'true'\n  than: ok\n  then: ok", `line 2: rule 1: "than" is not a field of a rule`},
		{"a field twice", "- when: 'true'\n  then: ok\n  then: fail", "line 3: rule 1, then: is given twice"},
		{"an object in a field", "- when: 'true'\n  then: ok\n  output: {a: b}", "line 3: rule 1, output: is not a text"},
		{"no condition", "- then: ok", "line 1: rule 1, when: is missing"},
		{"no outcome", "- when: 'true'", `line 1: rule 1, then: "" is not an outcome`},
		{"not an outcome", "- when: 'true'\n  then: success", `rule 1, then: "success" is not an outcome`},
		{"a condition", "- {when: 'true', then: ok}\n\n- when: status == 200 && bdy.ok\n  then: ok", "line 3: rule 2, when: column 18: unknown name bdy"},
		{"not a condition", "- {when: 'status', then: ok}", "rule 1, when: column 1: expected bool, but got int"},
		{"two waits", "- {when: 'true', then: limited, wait: 1s, until: now()}", "rule 1, until: is set together with wait"},
		{"a wait without effect", "- {when: 'true', then: ok, wait: 1s}", "rule 1, wait: has no effect with then: ok"},
		{"a scope", "- {when: 'true', then: limited, scope: user}", `rule 1, scope: "user" is not a scope`},
		{"a scope without effect", "- {when: 'true', then: fail, scope: key}", "rule 1, scope: has no effect with then: fail"},
		{"an output without effect", "- {when: 'true', then: fail, output: body}", "rule 1, output: has no effect with then: fail"},
		{"a reason", "- {when: 'true', then: fail, reason: 'a {{ b }}'}", "rule 1, reason: column 6: unknown name b"},
		{"too large", strings.Repeat(" ", 2<<20), "is larger than 1 MiB"},
		{"too many", strings.Repeat("- {when: 'true', then: ok}\n", 201), "holds 201 rules, at most 200"},
		{"too deep", "- when: " + strings.Repeat("[", 500) + strings.Repeat("]", 500), "line 1: is nested more than 100 deep"},
		{"too many values", "[" + strings.Repeat("a,", 500_000) + "]", "line 1: holds more than 100000 lines and values"},
		{"too many fields", "- {" + strings.Repeat("a: b,", 50_000) + "}", "; and 49989 more"},
		{"a bomb", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n", "is not a list of rules"},
	} {
		_, err := answers.Parse([]byte(row.text))
		problems, ok := errors.AsType[tokens.Errors](err)
		if !ok || !strings.Contains(err.Error(), row.want) || problems[0].Fix == "" {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
	_, err := answers.Parse([]byte("- {when: 'x', then: oh}\n- {when: y, then: ok}"))
	if problems, _ := errors.AsType[tokens.Errors](err); len(problems) != 3 {
		t.Errorf("%d problems: %v, want all 3", len(problems), err)
	}
}

// A rule that fails on an answer does not match; a part of a rule that fails is left out.
func TestFailures(t *testing.T) {
	t.Parallel()
	r := parse(t, `
- when: body.error.code == "limit"
  then: fail
- when: status == 403
  then: limited
  wait: body.retry_after
  cost: body.cost
  reason: "{{ body.message }}"
`)
	d := r.Decide(httpdest.Answered{Job: &jobs.Job{}, Status: 403, Body: []byte(`{"cost": "x"}`)})
	var got []string
	for _, f := range d.Failures {
		got = append(got, f.String())
	}
	want := []string{
		"rule 1, when: column 12: cannot fetch code from <nil>",
		"rule 2, wait: is not a time: there is no such value",
		"rule 2, cost: is not a number",
		"rule 2, reason: body.message: there is no such value",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d.Rule != 2 || d.Then != httpdest.ThenLimited || d.Wait != 0 || d.By != "rule 2" || d.Cost != nil {
		t.Errorf("%+v", d)
	}
}

// An API that calls back says so by a rule, with the time that it has.
func TestAccepted(t *testing.T) {
	t.Parallel()
	r := parse(t, `
- {when: 'status == 202 && headers["x-within"] != ""', then: accepted, within: 'headers["x-within"]'}
- {when: status == 202, then: accepted, within: 2h}
`)
	for within, want := range map[string]time.Duration{"": 2 * time.Hour, "90": 90 * time.Second} {
		d := r.Decide(httpdest.Answered{Job: &jobs.Job{}, Status: 202, Header: http.Header{"X-Within": {within}}})
		if d.Then != httpdest.ThenAccepted || d.Wait != want || len(d.Failures) > 0 {
			t.Errorf("within %q: %+v", within, d)
		}
	}
	for field, rule := range map[string]string{"within": `[{when: "true", then: ok, within: 1h}]`, "wait": `[{when: "true", then: accepted, wait: 1h}]`} {
		if _, err := answers.Parse([]byte(rule)); err == nil || !strings.Contains(err.Error(), field+": has no effect") {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// Conditions that begin alike are evaluated in parts, which decide as the whole does.
func TestConditionsInParts(t *testing.T) {
	t.Parallel()
	r := parse(t, `
- {when: 'status == 200 && body.ok && key == "a"', then: retry}
- {when: '(status == 200 && body.ok == true) && key == "b"', then: ok}
- {when: 'status == 200 && body.ok == true && key == "c"', then: limited}
- {when: 'status == 200 && (key == "d" || body.ok == false)', then: fail}
- {when: 'let s = status; s == 200 && key == "e"', then: reschedule}
- {when: 'status == 200 and body.ok == true and attempt == 3', then: unauthorized}
`)
	for _, row := range []struct {
		status, attempt int
		body, key       string
		rule, failures  int
	}{
		{200, 0, `{"ok":true}`, "a", 1, 0},
		{200, 0, `{"ok":true}`, "b", 2, 0},
		{200, 0, `{"ok":true}`, "c", 3, 0},
		{200, 0, `{"ok":true}`, "d", 4, 0},
		{200, 0, `{"ok":true}`, "e", 5, 0},
		{200, 3, `{"ok":true}`, "x", 6, 0},
		{200, 0, `{"ok":false}`, "x", 4, 0},
		{200, 0, `{"ok":"yes"}`, "a", 0, 1}, // not true or false
		{200, 0, `ok`, "a", 0, 5},
		{201, 3, `{"ok":true}`, "a", 0, 0},
	} {
		d := r.Decide(httpdest.Answered{Job: &jobs.Job{Key: row.key, Attempt: row.attempt}, Status: row.status, Body: []byte(row.body)})
		if d.Rule != row.rule || len(d.Failures) != row.failures {
			t.Errorf("%+v: rule %d, failures %v", row, d.Rule, d.Failures)
		}
	}
}

// The examples of docs/answers.md for waits that no header has as such.
func TestWaitsInTextOfADocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/answers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("The time may stand in a sentence"))
	_, text, _ = bytes.Cut(text, []byte("```yaml\n"))
	text, _, _ = bytes.Cut(text, []byte("```"))
	r := parse(t, string(text))
	now := time.Date(2026, 11, 25, 20, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		header http.Header
		body   string
		want   time.Duration
	}{
		{nil, `{"error":{"message":"Rate limit reached for requests. Please try again in 6m0s. Visit our site."}}`, 6 * time.Minute},
		{nil, `{"error":{"message":"Rate limit reached. Please try again in 20s."}}`, 20 * time.Second},
		{http.Header{"X-Usage": {`{"42":[{"calls":100,"minutes_to_wait":7}]}`}}, `{}`, 7 * time.Minute},
		{http.Header{"X-Retry-At": {"25.11.2026 22:02:00 +0100"}}, ``, 62*time.Minute + time.Second},
	} {
		d := r.Decide(httpdest.Answered{Job: &jobs.Job{}, Status: 429, Header: row.header, Body: []byte(row.body), Received: now})
		if d.Then != httpdest.ThenLimited || d.Wait != row.want || len(d.Failures) > 0 {
			t.Errorf("%v %s: %v for %v, failures %v, want %v", row.header, row.body, d.Then, d.Wait, d.Failures, row.want)
		}
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		field, body string
		want        time.Duration
		fails       bool
	}{
		{"wait: 30s", "", 30 * time.Second, false},
		{"wait: PT1M30S", "", 90 * time.Second, false},
		{"wait: 2 minutes", "", 2 * time.Minute, false},
		{"wait: body", `"6m0s"`, 6 * time.Minute, false},
		{"wait: body", `"20 seconds"`, 20 * time.Second, false},
		{"wait: body", strconv.FormatInt(now.UnixMicro()+60_000_000, 10), time.Minute, false}, // an instant
		{"wait: 90", "", 90 * time.Second, false},
		{"wait: body", "12", 12 * time.Second, false},
		{"wait: body", `"1m30s"`, 90 * time.Second, false},
		{"wait: body", `"2.5"`, 2500 * time.Millisecond, false},
		{"wait: body", "1.5", 1500 * time.Millisecond, false},
		{"wait: body", "-5", 0, false},
		{"wait: body", "1e300", 365 * 24 * time.Hour, false},
		{"wait: body", "99999999999999999999999", 365 * 24 * time.Hour, false},
		{"wait: body", `"soon"`, 0, true},
		{"wait: body", `"NaN"`, 0, true},
		{"wait: body / 0", "1", 0, true},
		{"wait: body", "[1]", 0, true},
		{"until: body", strconv.FormatInt(now.Unix()+60, 10), 61 * time.Second, false}, // the end of that second
		{"until: body", strconv.FormatInt(now.UnixMilli()+60_500, 10), 60500 * time.Millisecond, false},
		{"until: body", `"` + strconv.FormatInt(now.Unix()+60, 10) + `"`, 61 * time.Second, false},
		{"until: body", `"2026-11-23T12:01:00Z"`, 61 * time.Second, false},
		{"until: body", `"Mon, 23 Nov 2026 12:01:00 GMT"`, 61 * time.Second, false},
		{"until: date(body)", `"2026-11-23T12:01:00Z"`, 61 * time.Second, false},
		{"until: date(body)", `"2026-11-23T12:01:00.5Z"`, 60500 * time.Millisecond, false},
		{"wait: date(body)", `"2026-11-23T12:01:00Z"`, 61 * time.Second, false},
		{"until: body", `"2026-11-23T11:00:00Z"`, 0, true},
		{"until: body", `"tomorrow"`, 0, true},
		{"until: body", "null", 0, true},
	} {
		r := parse(t, "- when: 'true'\n  then: limited\n  "+row.field)
		d := r.Decide(httpdest.Answered{Job: &jobs.Job{}, Body: []byte(row.body), Received: now})
		if d.Wait != row.want || len(d.Failures) > 0 != row.fails {
			t.Errorf("%s of %s: %s, %v, want %s", row.field, row.body, d.Wait, d.Failures, row.want)
		}
	}
}

// A file that changes is read again; a file that is not valid leaves the old rules in use.
// A rule that fails is counted each time and logged once.
func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.json")
	var logged bytes.Buffer
	var failed atomic.Int32
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(`[{"when": "body.a.b == 1", "then": "ok"}, {"when": "int(body.secret) == 1", "then": "ok"}, {"when": "status == 500", "then": "fail"}]`)
	f, err := answers.Open(answers.Options{
		File: path, Logger: slog.New(slog.NewTextHandler(&logged, nil)), CheckEvery: time.Nanosecond, Failed: func(answers.Failure) { failed.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	decide := func(want httpdest.Then) {
		t.Helper()
		d, ok := f.Decide(httpdest.Answered{Job: &jobs.Job{ID: "j"}, Status: 500, Body: []byte(`{"secret": "hunter2"}`)})
		if d.Then != want || !ok {
			t.Errorf("%v, %t, want %s", d, ok, want)
		}
	}
	decide(httpdest.ThenFail)
	decide(httpdest.ThenFail)
	if n := strings.Count(logged.String(), "an answer rule failed"); n != 2 || failed.Load() != 4 || strings.Contains(logged.String(), "hunter2") {
		t.Errorf("logged %d times, counted %d, want 2 and 4:\n%s", n, failed.Load(), &logged)
	}
	write(`[{"when": "status == 500", "then": "retry"}]`)
	decide(httpdest.ThenRetry)
	write(`[{"when": "statsu == 500", "then": "ok"}]`)
	decide(httpdest.ThenRetry)
	decide(httpdest.ThenRetry)
	if n := strings.Count(logged.String(), "unknown name statsu"); n != 1 {
		t.Errorf("the invalid file is logged %d times, want once:\n%s", n, &logged)
	}
}

// Ten rules cost an answer that is ok less than 5 µs.
func BenchmarkDecide(b *testing.B) {
	r := parse(b, slack+strings.Repeat(slack, 2)+`- {when: 'status >= 500 && headers["x-a"] == "b"', then: retry}`)
	if r.Len() != 10 {
		b.Fatal(r.Len())
	}
	for name, a := range map[string]httpdest.Answered{
		"ok_201":          {Status: 201, Body: []byte(`{"id": 7}`)},
		"ok_200_and_body": {Status: 200, Body: []byte(`{"ok": true, "channel": "C123", "ts": "1503435956.000247"}`)},
		"500":             {Status: 500, Body: []byte(`oops`), Header: http.Header{"X-A": {"c"}, "Content-Type": {"text/plain"}}},
	} {
		a.Job = &jobs.Job{}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Decide(a)
			}
		})
	}
}

// Budgets are read with the strictness of rules, and say nothing where a field is missing.
func TestBudgets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"budgets: {}":                                                           "is not a list of budgets",
		"budgetz: []":                                                           `line 1: "budgetz" is not a list of rules or budgets, or is given twice`,
		"budgets:\n- left: 1\n  reset: 1m":                                      `line 3: budget 1: "reset" is not a field of a budget`,
		"budgets:\n- left: '1'\n  name: a b":                                    `line 2: budget 1, name: "a b" is not a name`,
		"budgets:\n- {name: a, left: headrs, resets: 1m}":                       "line 2: budget 1, left: column 1: unknown name headrs",
		"budgets:\n- {name: a, left: '1', resets: 1m, scope: user}":             `line 2: budget 1, scope: "user" is not a scope`,
		"budgets:" + strings.Repeat("\n- {name: a, left: '1', resets: 1m}", 2):  `line 3: budget 2, name: "a" is the name of another budget`,
		"budgets:" + strings.Repeat("\n- {name: a, left: '1', resets: 1m}", 21): "holds 21 budgets, at most 20",
	} {
		if _, err := answers.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	rules, err := answers.Parse([]byte(`budgets:
- {name: a, left: 'headers["left"]', resets: 'headers["reset"]', limit: 'headers["limit"]', scope: key, when: status < 300}`))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		status             int
		left, reset, limit string
		want               []jobs.Budget
		failed             int
	}{
		{200, "3", "6m0s", "60", []jobs.Budget{{Name: "a", Remaining: 3, Reset: 6 * time.Minute, Limit: 60, Scope: jobs.ScopeUser}}, 0},
		{200, "0.7", "2026-11-21T12:00:09Z", "", []jobs.Budget{{Name: "a", Reset: 10 * time.Second, Scope: jobs.ScopeUser}}, 0},
		{200, "0", "0s", "", []jobs.Budget{{Name: "a", Reset: time.Second, Scope: jobs.ScopeUser}}, 0},
		{200, "3", "2026-11-21T11:00:09Z", "", nil, 0},
		{200, "", "30", "", nil, 0},
		{200, "3", "", "", nil, 0},
		{404, "3", "30", "", nil, 0},
		{200, "-1", "30", "", nil, 1},
		{200, "many", "30", "", nil, 1},
		{200, "3", "soon", "", nil, 1},
		{200, "3", "30", "all", []jobs.Budget{{Name: "a", Remaining: 3, Reset: 30 * time.Second, Scope: jobs.ScopeUser}}, 1},
	} {
		got := rules.Decide(httpdest.Answered{
			Job: &jobs.Job{}, Status: row.status, Received: now,
			Header: http.Header{"Left": {row.left}, "Reset": {row.reset}, "Limit": {row.limit}},
		})
		for i := range row.want {
			row.want[i].Shown = true
		}
		if diff := cmp.Diff(row.want, got.Budgets); diff != "" || len(got.Failures) != row.failed {
			t.Errorf("%v: %v\n%s", row, got.Failures, diff)
		}
	}
}
