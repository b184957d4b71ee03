package app

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/permits"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// house is two instances of the API, with the tokens of two tenants of the destinations shop…, of the destination
// stock as a whole, and of an operator.
type house struct {
	t      *testing.T
	client *jobs.Client
	rdb    redis.UniversalClient
	urls   [2]string
	tokens map[string]string
	last   http.Header // of the last response
}

// direct follows no redirects.
var direct = &http.Transport{ResponseHeaderTimeout: time.Minute}

func newHouse(t *testing.T, more map[string]access.Bounds) *house {
	t.Helper()
	server := redistest.Database(t)
	rdb := server.Client(t)
	cfg := load(t, "REDIS_URL="+server.URL(), "DESTINATION_0_NAME=shop", "DESTINATION_0_URL=http://127.0.0.1:1/",
		"DESTINATION_1_NAME=stock", "DESTINATION_1_URL=http://127.0.0.1:1/",
		"DESTINATION_2_NAME=shop-few", "DESTINATION_2_URL=http://127.0.0.1:1/", "DESTINATION_2_FLEET_CONCURRENCY=4")
	h := &house{t: t, rdb: rdb, tokens: map[string]string{}}
	var err error
	if h.client, err = NewClient(rdb, cfg, nil, silent); err != nil {
		t.Fatal(err)
	}
	bounds := map[string]access.Bounds{
		"acme": {Destinations: []string{"shop*"}, Keys: []string{"acme:*"}}, "beta": {Destinations: []string{"shop*"}, Keys: []string{"beta:*"}},
		"keeper": {Destinations: []string{"stock"}}, "root": {},
	}
	maps.Copy(bounds, more)
	var entries []access.Entry
	for name, b := range bounds {
		token, entry, err := access.NewToken(name, []access.Scope{access.ScopeEnqueue, access.ScopeOperate}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		entry.Bounds = b
		h.tokens[name] = token
		entries = append(entries, entry)
	}
	content, err := access.FormatFile(entries)
	path := filepath.Join(t.TempDir(), "tokens.json")
	if err := errors.Join(err, os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	for i := range h.urls {
		known, err := access.OpenTokens(path, access.Options{Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		granter := permits.New(permits.Options{Redis: rdb, Logger: silent, Namespace: store.DefaultNamespace})
		granter.Set(permitsOf(cfg))
		t.Cleanup(granter.Close)
		served, err := APIHandler(t.Context(), APIOptions{
			Redis: rdb, Client: h.client, Tokens: known, Permits: granter, Logger: silent,
			Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "all figures") }),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(served.Close)
		listening := httptest.NewServer(served)
		t.Cleanup(listening.Close)
		h.urls[i] = listening.URL
	}
	return h
}

func (h *house) request(name, method, path, body string, headers ...string) *http.Request {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.urls[0]+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+h.tokens[name])
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// call returns the status and the body of a response.
func (h *house) call(name, method, path, body string, headers ...string) (int, string) {
	h.t.Helper()
	return h.do(h.request(name, method, path, body, headers...))
}

func (h *house) do(r *http.Request) (int, string) {
	h.t.Helper()
	answer, err := direct.RoundTrip(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	h.last = answer.Header
	if answer.Header.Get("Content-Type") == "text/event-stream" {
		return answer.StatusCode, ""
	}
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

func (h *house) ok(name, method, path, body string, headers ...string) string {
	h.t.Helper()
	status, text := h.call(name, method, path, body, headers...)
	if status >= http.StatusBadRequest {
		h.t.Fatalf("%s %s of %s: %d %s", method, path, name, status, text)
	}
	return text
}

// attack is a request of acme's: for FOREIGN it sends what is another's, and then what does not exist. Both must be
// answered alike, with the status. Without it the answer has nothing of others.
type attack struct {
	method, path, body string
	foreign, missing   string
	status             int
}

// attacks are those on each operation of the API: a new one needs a decision here, too.
func attacks() map[string][]attack {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	job := func(method, path string) []attack {
		return []attack{
			{method, path, "", "beta:order-1", "beta:order-9", 404},
			{method, path, "", "root-1", "root-9", 404},
			{method, path, "", "acme-stock", "acme-stick", 404},
			{method, path, "", "beta%3Aorder-1", "beta%3Aorder-9", 404},
		}
	}
	// A token with keys has no destination as a whole, not even one of its jobs.
	whole := func(method, path, body string) []attack {
		return []attack{
			{method, path, body, "stock", "stick", 404}, {method, path, body, "shop", "shup", 404}, {method, path, body, "tidegate-alerts", "tidegate-alarms", 404},
		}
	}
	named := func(method, path, body string) []attack {
		return append(whole(method, path, body), attack{method, path, body, "stock%2Fbeta:1", "stick%2Fbeta:1", 404}, attack{method, path, body, "shop%2Facme:1", "shup%2Facme:1", 404})
	}
	list := func(path string, query ...attack) []attack {
		return append(query, attack{get, path, "", "", "", 200})
	}
	many := func(verb string) []attack {
		path := "/v1/jobs/" + verb
		return []attack{
			{post, path, `{"destination":"FOREIGN"}`, "stock", "stick", 404},
			{post, path, `{"destination":"FOREIGN"}`, "tidegate-callbacks", "tidegate-callbanks", 404},
			{post, path, `{"batch":"FOREIGN"}`, "beta:monday", "beta:munday", 200},
			{post, path, `{"batch":"FOREIGN"}`, "monday", "munday", 200},
			{post, path, `{"key":"FOREIGN"}`, "beta:1", "beta:9", 200},
			{post, path, `{"key":"FOREIGN","dry_run":true}`, "beta:1", "beta:9", 200},
			{post, path, `{}`, "", "", 422},
		}
	}
	enqueue := func(job string) attack { return attack{post, "/v1/jobs", job, "stock", "stick", 404} }
	all := map[string][]attack{
		"get-job": append(job(get, "/v1/jobs/FOREIGN"), job(get, "/v1/jobs/FOREIGN?wait=1s")...), "get-job-history": job(get, "/v1/jobs/FOREIGN/history"),
		"get-job-graph": job(get, "/v1/jobs/FOREIGN/graph"),
		"list-jobs": list("/v1/jobs?limit=1000", attack{get, "/v1/jobs?destination=FOREIGN", "", "stock", "stick", 404}, attack{get, "/v1/jobs?destination=FOREIGN", "", "tidegate-alerts", "tidegate-alarms", 404},
			attack{get, "/v1/jobs?key=FOREIGN", "", "beta:1", "beta:9", 200}, attack{get, "/v1/jobs?batch=FOREIGN", "", "beta:monday", "beta:munday", 200},
			attack{get, "/v1/jobs?destination=shop&status=pending", "", "", "", 200}),
		"get-batch":       {{get, "/v1/batches/FOREIGN", "", "beta:monday", "beta:munday", 404}, {get, "/v1/batches/FOREIGN?wait=1s", "", "monday", "munday", 404}},
		"list-batch-jobs": {{get, "/v1/batches/FOREIGN/jobs", "", "beta:monday", "beta:munday", 404}, {get, "/v1/batches/FOREIGN/jobs", "", "monday", "munday", 404}},
		"enqueue-jobs": {
			enqueue(`{"destination":"FOREIGN","key":"acme:1","payload":1}`), enqueue(`{"destination":"FOREIGN","payload":1}`),
			{post, "/v1/jobs", `{"destination":"shop","key":"FOREIGN","payload":1}`, "beta:1", "beta:9", 404},
			{post, "/v1/jobs", `{"destination":"shop","payload":1}`, "", "", 404},
			{post, "/v1/jobs", `{"destination":"FOREIGN","key":"acme:1","payload":1}`, "tidegate-callbacks", "tidegate-callbanks", 404},
			{post, "/v1/jobs", `[{"destination":"FOREIGN","key":"acme:1","payload":1}]`, "stock", "stick", 422},
			{post, "/v1/jobs", `{"destination":"shop","key":"acme:1","payload":1,"after":["FOREIGN"]}`, "beta:order-1", "beta:order-9", 422},
			{post, "/v1/jobs", `{"destination":"shop","key":"acme:1","payload":1,"after":["FOREIGN"]}`, "root-1", "root-9", 422},
		},
		"list-breakers": list("/v1/breakers", whole(get, "/v1/breakers?destination=FOREIGN", "")...), "list-limits": list("/v1/limits", whole(get, "/v1/limits?destination=FOREIGN", "")...),
		"get-breaker": named(get, "/v1/breakers/FOREIGN", ""), "get-breaker-incidents": named(get, "/v1/breakers/FOREIGN/incidents", ""), "get-breaker-history": named(get, "/v1/breakers/FOREIGN/history", ""),
		"trip-breaker": named(post, "/v1/breakers/FOREIGN/trip", ""), "reset-breaker": named(post, "/v1/breakers/FOREIGN/reset", ""), "get-limits": named(get, "/v1/limits/FOREIGN", ""),
		"forget-limits": named(post, "/v1/limits/FOREIGN/forget", ""), "set-limit": whole(put, "/v1/limits/FOREIGN/override", `{"rate":"1/1h"}`), "unset-limit": whole(del, "/v1/limits/FOREIGN/override", ""),
		"list-errors": whole(get, "/v1/destinations/FOREIGN/errors", ""), "get-forecast": whole(get, "/v1/destinations/FOREIGN/forecast", ""), "count-keys": whole(get, "/v1/destinations/FOREIGN/keys", ""),
		"list-destinations": list("/v1/destinations"), "get-stats": list("/v1/stats", whole(get, "/v1/stats?destination=FOREIGN", "")...),
		"pause-destination": whole(post, "/v1/destinations/FOREIGN/pause", ""), "resume-destination": whole(post, "/v1/destinations/FOREIGN/resume", ""),
		"forget-destination": {{del, "/v1/destinations/FOREIGN", "", "stock", "stick", 403}, {del, "/v1/destinations/FOREIGN", "", "shop", "shup", 403}},
		"get-time":           {{get, "/v1/time", "", "", "", 200}},
		"list-workers":       {{get, "/v1/workers", "", "", "", 403}}, "list-acts": {{get, "/v1/audit", "", "", "", 403}},
		"stream-events":  {{get, "/v1/events?destination=FOREIGN", "", "stock", "stick", 404}, {get, "/v1/events?destination=FOREIGN", "", "tidegate-alerts", "tidegate-alarms", 404}},
		"acquire-permit": {{post, "/v1/permits", `{"destination":"FOREIGN","key":"acme:1"}`, "stock", "stick", 404}, {post, "/v1/permits", `{"destination":"shop","key":"FOREIGN"}`, "beta:1", "beta:9", 404}, {post, "/v1/permits", `{"destination":"shop"}`, "", "", 404}},
		"report-permit":  {{post, "/v1/permits/FOREIGN/report", `{"status":429}`, "PERMIT", "3OAXNYOHX2EZV3FLPRVW2Q4NNE", 404}},
		"gateway-get":    {{get, "/to/FOREIGN/orders", "", "stock", "stick", 404}, {get, "/to/FOREIGN/../shop/x", "", "stock", "stick", 404}},
		"gateway-post": {
			{post, "/to/FOREIGN/orders", `{}`, "stock", "stick", 404},
			{post, "/to/FOREIGN%2Fx", `{}`, "stock", "stick", 404},
			{post, "/to//FOREIGN/x", `{}`, "stock", "stick", 404},
			{post, "/to/shop%2F..%2FFOREIGN/x", `{}`, "stock", "stick", 404},
			{post, "/to/%73tock/x", `{}`, "", "", 404},
		},
	}
	token := func(id string) string {
		return base64.RawURLEncoding.EncodeToString([]byte("shop/" + id + "/" + strings.Repeat("x", 18)))
	}
	all["complete-by-token"] = []attack{{post, "/v1/completions/FOREIGN", `{"status":"completed"}`, token("beta:order-1"), token("beta:order-9"), 404}}
	for _, a := range job(http.MethodPatch, "/v1/jobs/FOREIGN") {
		a.body = `{"status":"completed"}`
		all["complete-job"] = append(all["complete-job"], a)
	}
	for _, verb := range []string{"cancel", "pause", "resume", "retry", "expire"} {
		all[verb+"-job"], all[verb+"-jobs"] = job(post, "/v1/jobs/FOREIGN/"+verb), many(verb)
	}
	return all
}

// Whatever a tenant asks for, what is another's is to it like what does not exist, and stays as it is.
func TestTenantsDoNotMeet(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.ok("beta", "POST", "/v1/jobs", `{"id":"order-1","destination":"shop","key":"beta:1","batch":"monday","payload":"beta's","available_at":"2099-01-01T00:00:00Z"}`)
	h.ok("root", "POST", "/v1/jobs", `[{"id":"root-1","destination":"stock","key":"acme:1","batch":"monday","payload":"root's"},{"id":"acme-stock","destination":"stock","key":"acme:1","payload":1}]`)
	h.ok("root", "POST", "/v1/breakers/stock/trip", `{"reason":"root's"}`)
	var permit struct{ ID string }
	if err := json.Unmarshal([]byte(h.ok("beta", "POST", "/v1/permits", `{"destination":"shop","key":"beta:1"}`)), &permit); err != nil {
		t.Fatal(err)
	}
	h.ok("acme", "POST", "/v1/jobs", `{"id":"order-1","destination":"shop","key":"acme:1","batch":"sunday","payload":"acme's","available_at":"2099-01-01T00:00:00Z"}`)
	state := func() string {
		var all []string
		for _, path := range []string{"/v1/jobs/beta:order-1", "/v1/jobs/root-1", "/v1/jobs/acme-stock", "/v1/breakers/stock", "/v1/breakers/shop", "/v1/limits/stock", "/v1/limits/shop", "/v1/destinations", "/v1/batches/beta:monday/jobs", "/v1/batches/monday/jobs"} {
			all = append(all, h.ok("root", "GET", path, ""))
		}
		return regexp.MustCompile(`"(backlog|waiting|since|updated_at|ahead)":[^,}]*`).ReplaceAllString(strings.Join(all, "\n"), "")
	}
	before := state()

	var document struct {
		Paths map[string]map[string]struct {
			OperationID string
			Responses   map[int]any
		}
	}
	if err := json.Unmarshal([]byte(h.ok("root", "GET", "/openapi.json", "")), &document); err != nil {
		t.Fatal(err)
	}
	table, operations, described := attacks(), 0, map[string]map[int]any{}
	for path, methods := range document.Paths {
		for method, op := range methods {
			operations++
			described[op.OperationID] = op.Responses
			if len(table[op.OperationID]) == 0 {
				t.Errorf("%s %s (%s): decide what a token that is bound to a tenant gets, and attack it here", method, path, op.OperationID)
			}
		}
	}
	if operations != len(table) {
		t.Errorf("%d operations, attacks on %d", operations, len(table))
	}
	others := regexp.MustCompile(`beta|stock|root|all figures`)
	for op, some := range table {
		for _, a := range some {
			headers := []string{}
			if op == "gateway-get" {
				headers = append(headers, "Prefer", "wait=1", "Tidegate-Key", "acme:1")
			} else if op == "gateway-post" {
				headers = append(headers, "Tidegate-Key", "acme:1", "Idempotency-Key", "k")
			}
			foreign := strings.Replace(a.foreign, "PERMIT", permit.ID, 1)
			send := func(name string) (int, string) {
				status, text := h.call("acme", a.method, strings.ReplaceAll(a.path, "FOREIGN", name), strings.ReplaceAll(a.body, "FOREIGN", name), headers...)
				plain, _ := url.PathUnescape(name)
				destination, _, _ := strings.Cut(name, "%2F")
				for _, sent := range []string{name, plain, destination} {
					if sent != "" {
						text = strings.ReplaceAll(text, sent, "NAME")
					}
				}
				return status, text
			}
			status, text := send(foreign)
			if status != a.status || others.MatchString(text) {
				t.Errorf("%s: %+v: %d %s", op, a, status, text)
			}
			if _, ok := described[op][status]; !ok {
				t.Errorf("%s: %+v: openapi.json does not say that the answer can be %d", op, a, status)
			}
			if a.foreign == "" {
				continue
			}
			if status2, text2 := send(a.missing); status2 != status || text2 != text {
				t.Errorf("%s: %+v: what is another's:\n%d %s\nwhat does not exist:\n%d %s", op, a, status, text, status2, text2)
			}
		}
	}
	for _, path := range []string{"/", "/jobs", "/jobs/beta:order-1", "/live", "/audit", "/metrics"} {
		if status, text := h.call("acme", "GET", path, ""); status != http.StatusForbidden || others.MatchString(strings.ReplaceAll(text, path, "")) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	r := h.request("acme", "POST", "/login", url.Values{"token": {h.tokens["acme"]}}.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	r.Header.Del("Authorization")
	if status, _ := h.do(r); status != http.StatusForbidden || h.last.Get("Set-Cookie") != "" {
		t.Errorf("signed in: %d %v", status, h.last)
	}
	if after := state(); after != before {
		t.Errorf("others' things were\n%s\nand are\n%s", before, after)
	}
	// What is its own it has, by either name.
	for _, id := range []string{"order-1", "acme:order-1"} {
		if text := h.ok("acme", "GET", "/v1/jobs/"+id, ""); !strings.Contains(text, `"payload":"acme's"`) || !strings.Contains(text, `"id":"acme:order-1"`) || !strings.Contains(text, `"batch":"acme:sunday"`) {
			t.Errorf("%s: %s", id, text)
		}
	}
	if text := h.ok("acme", "GET", "/v1/jobs", ""); strings.Count(text, `"id":`) != 1 {
		t.Errorf("its list: %s", text)
	}
	if text := h.ok("acme", "GET", "/v1/batches/sunday", ""); !strings.Contains(text, `"total":1`) {
		t.Errorf("its batch: %s", text)
	}
	if text := h.ok("acme", "POST", "/v1/jobs", `{"id":"order-1","destination":"shop","key":"acme:1","payload":2}`); !strings.Contains(text, `"duplicate":true`) {
		t.Errorf("its id again: %s", text)
	}
	h.ok("acme", "POST", "/v1/jobs", `{"destination":"shop","key":"acme:1","payload":1,"after":["order-1"]}`)
	if text := h.ok("acme", "POST", "/v1/jobs/cancel", `{"status":["pending"],"reason":"all"}`); !strings.HasPrefix(text, `{"done":1,`) {
		t.Errorf("its jobs were cancelled: %s", text)
	}
	if after := state(); after != before {
		t.Errorf("others' things were\n%s\nand are\n%s", before, after)
	}
	if text := h.ok("root", "GET", "/v1/audit?who=token:acme", ""); !strings.Contains(text, "cancel jobs") {
		t.Errorf("the audit: %s", text)
	}
	// A token without keys has its destinations as a whole.
	for _, path := range []string{"/v1/breakers/stock/reset", "/v1/destinations/stock/pause"} {
		h.ok("keeper", "POST", path, "")
	}
	for _, path := range []string{"/v1/stats", "/v1/breakers", "/v1/limits", "/v1/destinations"} {
		if text := h.ok("keeper", "GET", path, ""); !strings.Contains(text, "stock") || strings.Contains(text, "shop") {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// A tenant's stream has its own events, also of before, and does not show which others there were.
func TestEventsOfATenant(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	listen := func(name, after string) func() string {
		r := h.request(name, "GET", "/v1/events", "")
		if after != "" {
			r.Header.Set("Last-Event-ID", after)
		}
		answer, err := direct.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		lines := bufio.NewScanner(answer.Body)
		return func() string { // the next event
			var event string
			for lines.Scan() {
				if text := lines.Text(); text == "" && strings.Contains(event, "event: ") {
					return event
				} else if !strings.HasPrefix(text, ":") && !strings.HasPrefix(text, "retry") {
					event += text + "\n"
				}
			}
			return "closed"
		}
	}
	end := func(name, id string) {
		h.ok(name, "POST", "/v1/jobs", fmt.Sprintf(`{"id":%q,"destination":"shop","key":"%s:1","payload":1}`, id, name))
		h.ok(name, "POST", "/v1/jobs/"+id+"/cancel", "")
	}
	acme, root := listen("acme", ""), listen("root", "")
	end("beta", "a")
	h.ok("root", "POST", "/v1/breakers/shop/trip", "")
	end("acme", "b")
	foreign := root()
	if !strings.Contains(foreign, "beta:a") {
		t.Fatalf("the operator got %s", foreign)
	}
	if event := acme(); !strings.Contains(event, `"id":"acme:b"`) {
		t.Errorf("the tenant got %s", event)
	}
	// An event of another is as good as one that never was: the stream begins with a gap.
	id := regexp.MustCompile(`id: (\S+)`).FindStringSubmatch(foreign)[1]
	for _, after := range []string{id, strings.Replace(id, "-0:", "-7:", 1)} {
		again := listen("acme", after)
		if event := again(); !strings.Contains(event, "event: gap") {
			t.Errorf("after %s: %s", after, event)
		}
		if event := again(); !strings.Contains(event, `"id":"acme:b"`) {
			t.Errorf("after %s: %s", after, event)
		}
	}
}

// A cursor holds nothing of others' jobs, and asks for nothing: it is sealed for its token, and good at any instance.
func TestCursorsOfATenant(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for i := range 5 {
		h.ok("beta", "POST", "/v1/jobs", fmt.Sprintf(`{"id":"b%d","destination":"shop","key":"beta:1","payload":1}`, i))
		h.ok("acme", "POST", "/v1/jobs", fmt.Sprintf(`{"id":"a%d","destination":"shop","key":"acme:1","payload":1}`, i))
	}
	var seen []string
	cursor := ""
	for range 20 {
		var page struct {
			Items []struct{ ID string }
			Next  string
		}
		path := "/v1/jobs?limit=1"
		if cursor != "" {
			path += "&cursor=" + cursor
		}
		if err := json.Unmarshal([]byte(h.ok("acme", "GET", path, "")), &page); err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			seen = append(seen, item.ID)
		}
		if raw, err := base64.RawURLEncoding.DecodeString(page.Next); err != nil || strings.Contains(string(raw), "beta") {
			t.Errorf("cursor %q", raw)
		}
		h.urls[0], h.urls[1] = h.urls[1], h.urls[0]
		if cursor = page.Next; cursor == "" {
			break
		}
		if status, _ := h.call("beta", "GET", "/v1/jobs?cursor="+cursor, ""); status != http.StatusUnprocessableEntity {
			t.Errorf("another's cursor: %d", status)
		}
	}
	if strings.Join(seen, " ") != "acme:a4 acme:a3 acme:a2 acme:a1 acme:a0" {
		t.Errorf("seen %v", seen)
	}
	forged := base64.RawURLEncoding.EncodeToString([]byte(`{"tidegate:shop/p":{"m":"beta:b3","o":1}}`))
	if status, text := h.call("acme", "GET", "/v1/jobs?cursor="+forged, ""); status != http.StatusUnprocessableEntity {
		t.Errorf("a forged cursor: %d %s", status, text)
	}
}

// Two instances keep one quota: no more unfinished jobs than that, and no more jobs in a time.
func TestQuotaOfATenant(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]access.Bounds{
		"small": {Destinations: []string{"shop"}, MaxBacklog: 100}, "slow": {Rate: "10/1h"},
	})
	var sending sync.WaitGroup
	for i := range 20 {
		sending.Go(func() {
			r := h.request("small", "POST", "/v1/jobs", "["+strings.TrimSuffix(strings.Repeat(`{"destination":"shop","payload":1},`, 13), ",")+"]")
			r.URL.Host = strings.TrimPrefix(h.urls[i%2], "http://")
			if answer, err := direct.RoundTrip(r); err != nil || answer.Body.Close() != nil {
				t.Error(err)
			}
		})
	}
	sending.Wait()
	if n, err := h.client.Backlog(t.Context(), "shop"); n != 100 || err != nil {
		t.Errorf("%d unfinished jobs, %v", n, err)
	}
	more := func(id string) int {
		status, _ := h.call("small", "POST", "/v1/jobs", `{"id":"`+id+`","destination":"shop","payload":1}`)
		return status
	}
	if status := more("x"); status != http.StatusTooManyRequests || h.last.Get("Retry-After") == "" {
		t.Errorf("above the quota: %d", status)
	}
	// Jobs that have ended, whoever ended them, and those that are gone, make room.
	if sum, err := h.client.ActWhere(t.Context(), jobs.ActionCancel, jobs.Filter{Destination: "shop"}); err != nil || sum.Done != 100 {
		t.Fatalf("%+v, %v", sum, err)
	}
	redistest.Eventually(t, "room, within a second", func() bool { return more("y0") == http.StatusCreated })
	for i := 1; i < 100; i++ {
		// Ended jobs are noticed in portions: on a busy machine a later job may be asked for before the next one.
		redistest.Eventually(t, fmt.Sprintf("room for job %d of 100", i), func() bool { return more(fmt.Sprint("y", i)) == http.StatusCreated })
	}
	if status := more("y7"); status != http.StatusOK {
		t.Errorf("an id that exists: %d", status)
	}
	if status := more("z"); status != http.StatusTooManyRequests {
		t.Errorf("above the quota again: %d", status)
	}

	// Of lines as many are enqueued as the rate has room for, and the response says how many.
	line := `{"destination":"stock","payload":1}` + "\n"
	status, text := h.call("slow", "POST", "/v1/jobs", strings.Repeat(line, 25), "Content-Type", "application/x-ndjson")
	if status != http.StatusTooManyRequests || !strings.Contains(text, `"answered":10,"accepted":10,`) || h.last.Get("Retry-After") == "" {
		t.Errorf("%d %s, retry after %s", status, text, h.last.Get("Retry-After"))
	}
	for path, body := range map[string]string{"/to/stock/x": "{}", "/v1/permits": `{"destination":"stock"}`} {
		if status, text := h.call("slow", "POST", path, body); status != http.StatusTooManyRequests {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if n, err := h.client.Backlog(t.Context(), "stock"); n != 10 || err != nil {
		t.Errorf("%d jobs of the rate, %v", n, err)
	}
}
