package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// add enqueues jobs named by their ids.
func (b *bench) add(t testing.TB, destination string, opts []jobs.Option, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := b.client.Enqueue(t.Context(), jobs.New(destination, map[string]string{"secret": id}, append(slices.Clone(opts), jobs.ID(id))...)); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever may not see what jobs carry does not, whatever the way.
func TestRedaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", []jobs.Option{jobs.Header("X-Secret", "hush"), jobs.Path("/items/7"), jobs.Query("a=b")}, "a")
	for scopes, redacted := range map[string]bool{"read": true, "enqueue,read": true, "payloads": false, "operate": false} {
		answer := b.get(t, "/v1/jobs/a", "As", scopes).ok(t, http.StatusOK)
		got := decode[jobAnswer](t, answer)
		if got.Redacted != redacted || strings.Contains(answer.body, "hush") == redacted || strings.Contains(answer.body, "secret") == redacted {
			t.Errorf("with %s: %s, redacted must be %v", scopes, answer.body, redacted)
		}
		if got.Request.Path != "/items/7" || (got.Request.Query == "") != redacted {
			t.Errorf("with %s: request %+v", scopes, got.Request)
		}
		list := b.get(t, "/v1/jobs", "As", scopes).ok(t, http.StatusOK)
		if strings.Contains(list.body, "hush") == redacted || strings.Contains(list.body, "a=b") == redacted || strings.Contains(list.body, "secret") ||
			strings.Contains(list.body, `"payload"`) || strings.Contains(list.body, `"output"`) { // null would say that there is none
			t.Errorf("with %s: list %s", scopes, list.body)
		}
	}
	hidden := shownTo(t.Context(), ops.Job{Job: &jobs.Job{Payload: []byte("1"), Response: &jobs.Response{Body: "hush"}, Output: []byte("1"), Request: jobs.Request{Headers: map[string]string{"a": "b"}}}})
	if hidden.Payload != nil || hidden.Response != nil || hidden.Output != nil || hidden.Request.Headers != nil || !hidden.Redacted {
		t.Errorf("nobody in particular sees %+v", hidden)
	}
}

func TestGetSaysWhyAJobWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", nil, "a", "b", "c")
	b.add(t, "shop", []jobs.Option{jobs.Delay(time.Hour)}, "later")
	b.add(t, "shop", []jobs.Option{jobs.After("a")}, "child")
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, "shop", breaker.TripOptions{For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	zero, two := 0, 2
	for id, want := range map[string]struct {
		reason string
		ahead  *int
	}{
		"a": {"breaker_tripped", &zero}, "c": {"breaker_tripped", &two}, "later": {"breaker_tripped", nil}, "child": {"parents", nil},
	} {
		got := decode[jobAnswer](t, b.get(t, "/v1/jobs/"+id).ok(t, http.StatusOK)).Waiting
		if got == nil {
			t.Errorf("%s does not wait", id)
			continue
		}
		if diff := cmp.Diff(want.ahead, got.Ahead); diff != "" || got.Reason != want.reason && id != "later" || got.AheadAtLeast != nil {
			t.Errorf("%s waits: %+v, want %s; ahead (-want +got)\n%s", id, got, want.reason, diff)
		}
	}
	if err := b.client.Cancel(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got := decode[jobAnswer](t, b.get(t, "/v1/jobs/b").ok(t, http.StatusOK)); got.Waiting != nil || got.Status != jobs.Cancelled {
		t.Errorf("a cancelled one: %+v", got)
	}
}

// Jobs in lists say why they wait, too.
func TestListSaysWhyJobsWait(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", nil, "a", "b")
	b.add(t, "stock", nil, "c")
	b.add(t, "stock", []jobs.Option{jobs.After("a")}, "child")
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, "shop", breaker.TripOptions{For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := b.client.Cancel(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, j := range decode[ops.Page[jobAnswer]](t, b.get(t, "/v1/jobs").ok(t, http.StatusOK)).Items {
		got[j.ID] = "none"
		if w := j.Waiting; w != nil {
			got[j.ID] = w.Reason
			if w.Ahead != nil || w.Text == "" {
				t.Errorf("%s: %+v", j.ID, w)
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"a": "breaker_tripped", "b": "none", "c": "no_worker", "child": "parents"}, got); diff != "" {
		t.Errorf("waiting (-want +got)\n%s", diff)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", []jobs.Option{jobs.Key("alice"), jobs.Batch("monday")}, "a1", "a2", "a3")
	b.add(t, "stock", []jobs.Option{jobs.Key("bob"), jobs.Label("team", "web"), jobs.Label("run", "7")}, "b1", "b2")
	for _, id := range []string{"a2", "b2"} {
		if err := b.client.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.client.Pause(t.Context(), "b1"); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][]string{
		"":                                   {"a1", "a2", "a3", "b1", "b2"},
		"?status=pending":                    {"a1", "a3"},
		"?status=paused,cancelled":           {"a2", "b1", "b2"},
		"?status=paused&status=cancelled":    {"a2", "b1", "b2"},
		"?status=failed":                     nil,
		"?destination=stock":                 {"b1", "b2"},
		"?key=alice":                         {"a1", "a2", "a3"},
		"?batch=monday&status=pending":       {"a1", "a3"},
		"?batch=tuesday":                     nil,
		"?label=team=web&status=paused":      {"b1"},
		"?label=team%3Dweb&label=run=7":      {"b1", "b2"},
		"?label=team=web,run=8":              nil,
		"?destination=shop&status=cancelled": {"a2"},
	} {
		if got := b.list(t, query, 1000); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	// Page by page each job comes once.
	for _, limit := range []int{1, 2, 3, 5} {
		if got := b.list(t, "", limit); !slices.Equal(got, []string{"a1", "a2", "a3", "b1", "b2"}) {
			t.Errorf("in pages of %d: %v", limit, got)
		}
	}
}

// list pages through a list and returns the ids, sorted.
func (b *bench) list(t *testing.T, query string, limit int) []string {
	t.Helper()
	sep := "?"
	if query != "" {
		sep = "&"
	}
	var ids []string
	cursor := ""
	for {
		path := fmt.Sprintf("/v1/jobs%s%slimit=%d", query, sep, limit)
		if cursor != "" {
			path += "&cursor=" + url.QueryEscape(cursor)
		}
		page := decode[ops.Page[jobAnswer]](t, b.get(t, path, "As", "read").ok(t, http.StatusOK))
		if len(page.Items) > limit {
			t.Fatalf("a page of %d has %d jobs", limit, len(page.Items))
		}
		for _, j := range page.Items {
			ids = append(ids, j.ID)
		}
		if cursor = page.Next; cursor == "" {
			slices.Sort(ids)
			return ids
		}
	}
}

func TestLookRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	long := strings.Repeat("x", 129)
	for path, want := range map[string]struct {
		status int
		fields string // locations
	}{
		"/v1/jobs?status=done":              {422, "query.status"},
		"/v1/jobs?statuss=failed":           {422, "query.statuss"},
		"/v1/jobs?status=":                  {422, "query.status"},
		"/v1/jobs?key=&batch=&destination=": {422, "query.batch query.destination query.key"},
		"/v1/jobs?limit=1&limit=2":          {422, "query.limit"},
		"/v1/jobs?since=yesterday":          {422, "query.since"},
		"/v1/jobs?label=team":               {422, "query.label"},
		"/v1/jobs?cause=Rate":               {422, "query.cause"},
		"/v1/jobs?until=":                   {422, "query.until"},
		"/v1/jobs?limit=0":                  {422, "query.limit"},
		"/v1/jobs?limit=1001":               {422, "query.limit"},
		"/v1/jobs?limit=many":               {422, "query.limit"},
		"/v1/jobs?cursor=%21":               {422, "query.cursor"},
		"/v1/jobs?cursor=e30x":              {422, "query.cursor"},
		"/v1/jobs?cursor=eyJ0aWRlZ2F0ZTpzaG9wL2giOnsibSI6IngiLCJzIjoiMSIsInQiOiIweDFfMHAwIn19": {422, "query.cursor"},
		"/v1/jobs?destination=Shop":               {422, "query.destination"},
		"/v1/jobs?destination=blog":               {422, "query.destination"},
		"/v1/jobs?key=a%20b&batch=-":              {422, "query.batch query.key"},
		"/v1/jobs?key=%zz":                        {400, ""},
		"/v1/jobs/nope":                           {404, ""},
		"/v1/jobs/nope/history":                   {404, ""},
		"/v1/jobs/a%2Fb":                          {422, "path.id"},
		"/v1/jobs/a%00b":                          {422, "path.id"},
		"/v1/jobs/a%0d%0aX:1":                     {422, "path.id"},
		"/v1/jobs/%2e%2e%2f%2e%2e%2fetc%2fpasswd": {404, ""},
		"/v1/jobs/" + long:                        {422, "path.id"},
		"/v1/jobs/..":                             {404, ""},
		"/v1/jobs/%2e%2e":                         {404, ""},
		"/v1/jobs/%2E%2E/breakers":                {404, ""},
		"/v1//jobs":                               {404, ""},
		"/v1/jobs/":                               {404, ""},
		"/v1/./jobs":                              {404, ""},
		"/v1/nothing":                             {404, ""},
		"/v1":                                     {404, ""},
		"/V1/jobs":                                {404, ""},
		"/v1/jobs/a/nothing":                      {404, ""},
		"/v1/batches/nope":                        {404, ""},
		"/v1/batches/%20":                         {422, "path.batch"},
		"/v1/breakers/nope":                       {404, ""},
		"/v1/breakers/Nope":                       {422, "path.name"},
		"/v1/breakers/shop%2F":                    {404, ""},
		"/v1/breakers/shop%2Fa%2Fb":               {422, "path.name"},
		"/v1/breakers/shop%2Falice?key=bob":       {422, "query.key"},
		"/v1/breakers/shop?key=a%2Fb":             {422, "query.key"},
		"/v1/breakers/%2e%2e%2fshop":              {404, ""},
		"/v1/breakers/shop%00":                    {422, "path.name"},
		"/v1/breakers/shop/incidents?limit=201":   {422, "query.limit"},
		"/v1/breakers/nope/history":               {404, ""},
		"/v1/breakers?destination=nope":           {422, "query.destination"},
		"/v1/breakers?destination=%2F":            {422, "query.destination"},
		"/v1/limits/nope":                         {404, ""},
		"/v1/limits/Nope":                         {422, "path.name"},
		"/v1/limits/shop?key=a%2Fb":               {422, "query.key"},
		"/v1/limits?destination=nope":             {422, "query.destination"},
		"/v1/limits?destination=%2F":              {422, "query.destination"},
		"/v1/limits?limit=1001":                   {422, "query.limit"},
		"/v1/limits?cursor=x%2Fy":                 {422, "query.cursor"},
		"/v1/stats?destination=nope":              {422, "query.destination"},
		"/v1/stats?destination=-":                 {422, "query.destination"},
		"/v1/workers?x=1":                         {422, "query.x"},
		"/v1/events?type=nothing":                 {422, "query.type"},
		"/v1/events?types=job":                    {422, "query.types"},
		"/v1/events?destination=-&type=":          {422, "query.type"},
		"/v1/events?after=%21":                    {422, "header.Last-Event-ID"},
	} {
		p := b.get(t, path).problem(t, want.status)
		var fields []string
		for _, f := range p.Errors {
			fields = append(fields, f.Location)
		}
		slices.Sort(fields)
		if got := strings.Join(fields, " "); got != want.fields {
			t.Errorf("%s: wrong are %q, want %q (%s)", path, got, want.fields, p.Detail)
		}
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
		for path, allowed := range map[string]string{"/v1/jobs": "GET, POST", "/v1/jobs/a": "GET, PATCH", "/v1/jobs/cancel": "GET, POST, PATCH", "/v1/events": "GET"} {
			if strings.Contains(allowed, method) {
				continue
			}
			answer := b.call(t, method, path, "")
			if answer.problem(t, http.StatusMethodNotAllowed); answer.header.Get("Allow") != allowed {
				t.Errorf("%s %s: Allow %q, want %q", method, path, answer.header.Get("Allow"), allowed)
			}
		}
	}
}

// Each operation asks for its scope, before it looks at anything else.
func TestScopes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", nil, "a")
	seen := 0
	for path, methods := range readDocument(t).Paths {
		for method, op := range methods {
			seen++
			if path == CompletionsPath+"{token}" {
				continue // its token stands in the path
			}
			need := op.Security[0][securityName][0]
			target := strings.NewReplacer("{id}", "a", "{name}", "shop", "{batch}", "x", "{destination}", "shop").Replace(path)
			var without string
			switch need {
			case "enqueue":
				without = "operate"
			case "read":
				without = "enqueue"
			case "operate":
				without = "enqueue,payloads"
			default:
				t.Fatalf("%s needs %q", path, need)
			}
			p := b.call(t, strings.ToUpper(method), target+"?nonsense=", "", "As", without).problem(t, http.StatusForbidden)
			if want := fmt.Sprintf("the token %q lacks the scope %q", "ann", need); p.Detail != want {
				t.Errorf("%s %s: %q, want %q", method, path, p.Detail, want)
			}
			nobody := b.call(t, strings.ToUpper(method), target, "", "As", "nobody")
			if nobody.problem(t, http.StatusUnauthorized); nobody.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s %s: header %v", method, path, nobody.header)
			}
			if (method == "get") != (need == "read") && !strings.HasPrefix(path, gatewayPrefix) {
				t.Errorf("%s %s needs %s", method, path, need)
			}
		}
	}
	if seen != 46 {
		t.Errorf("%d operations, want 46", seen)
	}
	if job, err := b.client.Get(t.Context(), "a"); err != nil || job.Status != jobs.Pending {
		t.Errorf("job %+v, %v: something was done to it", job, err)
	}
}

// The graph of a job has the retries of its parents, and two generations to either side.
func TestGraph(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "stock", nil, "root")
	b.add(t, "shop", []jobs.Option{jobs.After("root")}, "parent")
	b.add(t, "shop", []jobs.Option{jobs.After("parent", "root")}, "self")
	b.add(t, "shop", []jobs.Option{jobs.After("self")}, "child")
	b.add(t, "shop", []jobs.Option{jobs.After("child")}, "grandchild")
	b.add(t, "shop", []jobs.Option{jobs.After("grandchild")}, "too-far")
	due := time.Date(2100, 1, 31, 14, 35, 5, 0, time.UTC)
	if err := b.rdb.HSet(t.Context(), store.TaskKey(store.Namespace(b.client.Namespace()).Queue("stock", store.Priority("default")), "root"),
		store.FieldState, store.StateRetry, store.FieldAttempt, 2, store.FieldAvailableAt, due.UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	want := ops.Graph{
		Jobs: []ops.Relative{
			{ID: "self", Destination: "shop", Status: jobs.Waiting},
			{ID: "parent", Generation: -1, Destination: "shop", Status: jobs.Waiting},
			{ID: "root", Generation: -1, Destination: "stock", Status: jobs.RetryPending, Attempt: 2, NextRetryAt: &due},
			{ID: "child", Generation: 1, Destination: "shop", Status: jobs.Waiting},
			{ID: "grandchild", Generation: 2, Destination: "shop", Status: jobs.Waiting},
		},
		Edges: []ops.Edge{{Parent: "parent", Child: "self"}, {Parent: "root", Child: "self"}, {Parent: "root", Child: "parent"}, {Parent: "self", Child: "child"}, {Parent: "child", Child: "grandchild"}},
	}
	if diff := cmp.Diff(want, decode[ops.Graph](t, b.get(t, "/v1/jobs/self/graph").ok(t, http.StatusOK))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	alone := decode[ops.Graph](t, b.get(t, "/v1/jobs/too-far/graph").ok(t, http.StatusOK))
	if len(alone.Jobs) != 3 || alone.Jobs[2].ID != "child" {
		t.Errorf("of the last one: %+v", alone)
	}
}

func TestHistoryAndBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", []jobs.Option{jobs.Batch("monday")}, "a", "b")
	b.post(t, "/v1/jobs/a/cancel", `{"reason":"wrong file"}`).ok(t, http.StatusOK)
	entries := decode[ops.List[jobs.HistoryEntry]](t, b.get(t, "/v1/jobs/a/history").ok(t, http.StatusOK)).Items
	if len(entries) != 2 || entries[0].Event != "created" || entries[1].Event != "cancelled" || entries[1].By != "token:ann" || !strings.Contains(entries[1].Detail, "wrong file") {
		t.Errorf("%+v", entries)
	}
	before := time.Now()
	want := jobs.BatchStatus{Batch: "monday", Total: 2, Counts: map[jobs.Status]int{jobs.Pending: 1, jobs.Cancelled: 1}, Progress: 0.5}
	got := decode[ops.Batch](t, b.get(t, "/v1/batches/monday").ok(t, http.StatusOK))
	if diff := cmp.Diff(want, *got.BatchStatus); diff != "" || got.CountedAt.Before(before) || time.Since(got.CountedAt) < 0 {
		t.Errorf("counted at %v, batch (-want +got)\n%s", got.CountedAt, diff)
	}
	// Who asks again soon is given the same.
	b.redis.ResetStats(t)
	for range 20 {
		b.get(t, "/v1/batches/monday").ok(t, http.StatusOK)
	}
	if stats := b.redis.CommandStats(t); time.Since(before) < time.Second && stats["eval"]+stats["evalsha"]+stats["zcard"]+stats["zrange"] > 0 {
		t.Errorf("asked again: %v, want nothing asked of Redis", stats)
	}
}
