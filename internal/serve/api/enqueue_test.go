package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// jobAnswer is a job as the API prints it.
type jobAnswer struct {
	jobs.Job
	Waiting *struct {
		Reason, Text string
		Ahead        *int
		AheadAtLeast *int `json:"ahead_at_least"`
	}
	Redacted bool
}

// total is how many jobs there are.
func (b *bench) total(t testing.TB) int {
	t.Helper()
	stats, err := b.client.Stats(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, d := range stats {
		for _, count := range d.Counts {
			n += count
		}
	}
	return n
}

// Jobs for a destination that workers have left are accepted, with a warning.
func TestEnqueueForADestinationWithoutWorkers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const line = `{"destination":"shop","payload":1}`
	send := func(body string, header ...string) string {
		t.Helper()
		answer := b.post(t, "/v1/jobs", body, append([]string{"As", "enqueue"}, header...)...)
		if answer.status != http.StatusCreated && answer.status != http.StatusOK {
			t.Fatalf("status %d: %s", answer.status, answer.body)
		}
		return strings.Join(answer.header.Values("Tidegate-Warning"), "|")
	}
	if warning := send(line); warning != "" {
		t.Errorf("warned of what no worker has served yet: %q", warning)
	}
	if err := b.rdb.HSet(t.Context(), store.DefaultNamespace.DestinationsKey(), "shop", time.Now().Add(-time.Hour).UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "what is known of workers is read again", func() bool { return send(line) != "" })
	for name, warning := range map[string]string{
		"an array":                   send("[" + line + "," + line + "]"),
		"lines":                      send(line+"\n"+line, "Content-Type", "application/x-ndjson"),
		"lines, with an answer each": send(line+"\n"+line, "Content-Type", "application/x-ndjson", "Accept", "application/x-ndjson"),
	} {
		if !strings.HasPrefix(warning, "no worker has served shop for 1h") || strings.Contains(warning, "|") {
			t.Errorf("%s: warned %q", name, warning)
		}
	}
}

func TestEnqueueOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const body = ` {"id":"post-7","destination":"shop","key":"alice","payload":{"n": 1,"s":"<é>"},"priority":"high","batch":"monday",
		"request":{"path":"/x","query":"a=b","headers":{"X-A":"b"}},"retry":{"max_retries":2,"retry_on":["timeout"]},
		"max_reschedules":7,"available_at":"2099-01-31T14:35:00+01:00","ttl":"7d"} `
	answer := b.post(t, "/v1/jobs", body, "As", "enqueue").ok(t, http.StatusCreated)
	if place, kind, cache := answer.header.Get("Location"), answer.header.Get("Content-Type"), answer.header.Get("Cache-Control"); place != "/v1/jobs/post-7" || kind != "application/json" || cache != "no-store" {
		t.Errorf("Location %q, Content-Type %q, Cache-Control %q", place, kind, cache)
	}
	got := decode[jobAnswer](t, answer)
	if got.Redacted || got.Duplicate || got.Status != jobs.Pending || got.ExpiresAt == nil || string(got.Payload) != `{"n":1,"s":"\u003cé\u003e"}` || got.Request.Headers["X-A"] != "b" {
		t.Errorf("answer %s", answer.body)
	}
	stored, err := b.client.Get(t.Context(), "post-7")
	if err != nil {
		t.Fatal(err)
	}
	if string(stored.Payload) != `{"n": 1,"s":"<é>"}` || stored.Key != "alice" || stored.Batch != "monday" || stored.Priority != jobs.PriorityHigh ||
		stored.Retry.MaxRetries != 2 || *stored.MaxReschedules != 7 || !stored.AvailableAt.Equal(time.Date(2099, 1, 31, 13, 35, 0, 0, time.UTC)) {
		t.Errorf("stored %+v", stored)
	}

	// The same id again: what stands there is seen by those only who may.
	for scopes, redacted := range map[string]bool{"enqueue,read": true, "enqueue,payloads": false, "enqueue,operate": false} {
		again := decode[jobAnswer](t, b.post(t, "/v1/jobs", `{"id":"post-7","destination":"shop","payload":2}`, "As", scopes).ok(t, http.StatusOK))
		if !again.Duplicate || again.Redacted != redacted || (string(again.Payload) == "null") != redacted || (again.Request.Headers == nil) != redacted ||
			(again.Request.Query == "") != redacted || again.Request.Path != "/x" {
			t.Errorf("with %s: %+v, redacted must be %v", scopes, again, redacted)
		}
	}
	const known = `{"id":"post-7","destination":"shop","status":"pending","duplicate":true,"redacted":true}` + "\n"
	if again := b.post(t, "/v1/jobs", `{"id":"post-7","destination":"shop","payload":2}`, "As", "enqueue").ok(t, http.StatusOK); again.body != known {
		t.Errorf("with enqueue alone: %s, want %s", again.body, known)
	}
	if n := b.total(t); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

func TestEnqueueRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const json, lines = "application/json", "application/x-ndjson"
	field := func(pairs ...string) (out []ProblemField) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, ProblemField{pairs[i], pairs[i+1]})
		}
		return out
	}
	for name, row := range map[string]struct {
		path, kind, body string
		status           int
		errors           []ProblemField
	}{
		"no content type":    {kind: "", body: `{"destination":"shop","payload":1}`, status: 415},
		"another type":       {kind: "text/plain", body: `{"destination":"shop","payload":1}`, status: 415},
		"a form":             {kind: "application/x-www-form-urlencoded", body: `destination=shop`, status: 415},
		"another charset":    {kind: "application/json; charset=latin1", body: `{"destination":"shop","payload":1}`, status: 415},
		"a malformed type":   {kind: ";", body: `{"destination":"shop","payload":1}`, status: 415},
		"a query":            {path: "?x=1", kind: json, body: `{"destination":"shop","payload":1}`, status: 422},
		"nothing":            {kind: json, body: ``, status: 400, errors: field("body", "is not valid JSON: unexpected end of JSON input")},
		"no JSON":            {kind: json, body: `{"destination":"shop"`, status: 400, errors: field("body", "is not valid JSON: unexpected end of JSON input")},
		"two documents":      {kind: json, body: `{"destination":"shop","payload":1}{}`, status: 400, errors: field("body", "is not valid JSON: invalid character '{' after top-level value")},
		"a text":             {kind: json, body: `"x"`, status: 400, errors: field("body", `is not a JSON object; write a job such as {"destination":"example","payload":{}}`)},
		"a broken array":     {kind: json, body: `[{"destination":"shop","payload":1},{"destination"]`, status: 400, errors: field("body", "is not valid JSON: invalid character ']' after object key")},
		"a broken payload":   {kind: json, body: `{"destination":"shop","payload":{a:1}}`, status: 422, errors: field("body.payload", "is not valid JSON: invalid character 'a' looking for beginning of object key string; a payload is JSON, with names and texts in double quotes, such as {\"title\":\"Sunset\"} or \"Sunset\"; in a shell put single quotes around it")},
		"an unknown one":     {kind: json, body: `{"destination":"blog","payload":1}`, status: 422, errors: field("body.destination", `"blog" is not known; known are shop, stock`)},
		"an unknown parent":  {kind: json, body: `{"destination":"shop","payload":1,"after":["nope"]}`, status: 422, errors: field("body.after", `job "nope" not found; enqueue parents first`)},
		"no UTF-8":           {kind: json, body: "{\"destination\":\"shop\",\"payload\":\"\xff\xfe\"}", status: 422, errors: field("body", "is not UTF-8, as JSON is")},
		"no UTF-8 in arrays": {kind: json, body: "[{\"destination\":\"shop\",\"payload\":\"\xff\xfe\"}]", status: 422, errors: field("body[0]", "is not UTF-8, as JSON is")},
		"a misspelt field":   {kind: json, body: `{"destination":"shop","payload":1,"kye":"a"}`, status: 422, errors: field("body.kye", "is not a field of a job to enqueue; did you mean key?")},
		"a time too far":     {kind: json, body: `{"destination":"shop","payload":1,"available_at":"9999-12-31T23:59:59-02:00"}`, status: 422, errors: field("body.available_at", "must be before the year 10000")},
		"everything at once": {kind: json, body: `{"destination":"shop","retry":{"max_retries":99},"ttl":-1,"id":7,"request":{"path":"x"}}`, status: 422, errors: field("body.id", "must be a string", "body.payload", "is missing; give JSON, for instance {} or null", "body.request.path", "must start with exactly one slash; it is appended to the destination's URL", "body.retry.max_retries", "must be from 1 to 10, is 99", "body.ttl", "must not be negative; 0 expires the job at once")},
		"a line break in a header": {
			kind: json, body: `{"destination":"shop","payload":1,"request":{"headers":{"X-A":"b\r\nX-Evil: 1"}}}`, status: 422,
			errors: field("body.request.headers", "the value of X-A has characters that a header must not have (line breaks?)"),
		},
		"a header's name with a break": {
			kind: json, body: `{"destination":"shop","payload":1,"request":{"headers":{"X-A: b\r\nX-Evil":"1"}}}`, status: 422,
			errors: field("body.request.headers", `"X-A: b\r\nX-Evil" is not a header name`),
		},
		"a token of another": {
			kind: json, body: `{"destination":"shop","payload":1,"request":{"headers":{"authorization":"Bearer x"}}}`, status: 422,
			errors: field("body.request.headers", "authorization is set by Tidegate or by the connection and cannot be set by a job"),
		},
		"a path out of the destination": {
			kind: json, body: `{"destination":"shop","payload":1,"request":{"path":"/a/%2e%2e/b"}}`, status: 422,
			errors: field("body.request.path", "must not contain . or .. as a segment, encoded or not"),
		},
		"all of an array": {
			kind: json, body: `[{"destination":"shop"},{"destination":"blog","payload":1}]`, status: 422,
			errors: field("body[0].payload", "is missing; give JSON, for instance {} or null", "body[1].destination", `"blog" is not known; known are shop, stock`),
		},
		"all lines": {
			kind: lines, body: "x\n\n{\"destination\":\"blog\",\"payload\":1}", status: 422,
			errors: field("body[0]", "is not valid JSON: invalid character 'x' looking for beginning of value", "body[1].destination", `"blog" is not known; known are shop, stock`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := b.post(t, "/v1/jobs"+row.path, row.body, "Content-Type", row.kind).problem(t, row.status)
			slices.SortStableFunc(p.Errors, byLocation)
			if diff := cmp.Diff(row.errors, p.Errors); diff != "" {
				t.Errorf("errors (-want +got)\n%s", diff)
			}
		})
	}
	for _, how := range []string{"gzip", "x", "identity, gzip"} {
		encoded := b.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`, "Content-Encoding", how)
		if encoded.problem(t, http.StatusUnsupportedMediaType); encoded.header.Get("Accept-Encoding") != "identity" {
			t.Errorf("%s: header %v", how, encoded.header)
		}
	}
	t.Cleanup(func() {
		if n := b.total(t); n != 0 {
			t.Errorf("%d jobs were enqueued, want none", n)
		}
	})
}

func TestEnqueueArray(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.post(t, "/v1/jobs", `{"id":"a","destination":"shop","payload":1}`).ok(t, http.StatusCreated)
	answer := b.post(t, "/v1/jobs", "\n"+`[ {"id":"a","destination":"shop","payload":2} , {"id":"b","destination":"stock","payload":"],["},{"destination":"shop","payload":1,"retry":{"max_retries":"3"}},
		7,{"id":"c","destination":"shop","payload":{},"after":["b"]}]`).ok(t, http.StatusCreated)
	want := Enqueued{Accepted: 2, Duplicates: 1, Rejected: 2, Items: []EnqueuedItem{
		{Index: 0, ID: "a", Status: "pending", Duplicate: true},
		{Index: 1, ID: "b", Status: "pending", ETA: &jobs.ETA{Because: "no worker serves stock"}},
		{Index: 2, Errors: []ProblemField{{"body[2].retry.max_retries", "string found where a whole number is expected"}}},
		{Index: 3, Errors: []ProblemField{{"body[3]", `is not a JSON object; write a job such as {"destination":"example","payload":{}}`}}},
		{Index: 4, ID: "c", Status: "waiting", ETA: &jobs.ETA{Because: "it waits for its parents"}},
	}}
	if diff := cmp.Diff(want, decode[Enqueued](t, answer)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(Enqueued{Duplicates: 1, Items: []EnqueuedItem{{ID: "b", Status: "pending", Duplicate: true}}}, decode[Enqueued](t, b.post(t, "/v1/jobs", `[{"id":"b","destination":"stock","payload":1}]`).ok(t, http.StatusOK))); diff != "" {
		t.Errorf("of a repeated one (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(Enqueued{Items: []EnqueuedItem{}}, decode[Enqueued](t, b.post(t, "/v1/jobs", ` [ ] `).ok(t, http.StatusOK))); diff != "" {
		t.Errorf("of an empty one (-want +got)\n%s", diff)
	}
	job, err := b.client.Get(t.Context(), "b")
	if err != nil || string(job.Payload) != `"],["` {
		t.Errorf("payload %s, %v", job.Payload, err)
	}
}

// A request whose jobs are all refused names each refused job, as a request does where some are accepted.
func TestEnqueueManyAllRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want := func(lines ...int) []EnqueuedItem {
		items := []EnqueuedItem{
			{Index: 0, Errors: []ProblemField{{"body[0].destination", `"blog" is not known; known are shop, stock`}}},
			{Index: 1, Errors: []ProblemField{{"body[1]", `is not a JSON object; write a job such as {"destination":"example","payload":{}}`}}},
		}
		for i, line := range lines {
			items[i].Line = line
		}
		return items
	}
	const unknown, number = `{"destination":"blog","payload":1}`, `7`
	for name, row := range map[string]struct {
		kind, body, accepted string
		items                []EnqueuedItem
	}{
		"an array": {jsonType, "[" + unknown + "," + number + "]", "[" + unknown + "," + number + `,{"destination":"shop","payload":1}]`, want()},
		"lines":    {ndjsonType, unknown + "\n\n" + number, unknown + "\n\n" + number + "\n" + `{"destination":"shop","payload":1}`, want(1, 3)},
	} {
		p := b.post(t, "/v1/jobs", row.body, "Content-Type", row.kind).problem(t, http.StatusUnprocessableEntity)
		if diff := cmp.Diff(row.items, p.Items); diff != "" {
			t.Errorf("%s: items (-want +got)\n%s", name, diff)
		}
		if diff := cmp.Diff(&Progress{Answered: 2, Rejected: 2}, p.Progress); diff != "" {
			t.Errorf("%s: progress (-want +got)\n%s", name, diff)
		}
		some := decode[Enqueued](t, b.post(t, "/v1/jobs", row.accepted, "Content-Type", row.kind).ok(t, http.StatusCreated))
		if diff := cmp.Diff(row.items, some.Items[:2]); diff != "" {
			t.Errorf("%s: items where one job is accepted (-want +got)\n%s", name, diff)
		}
	}
	all := b.post(t, "/v1/jobs", jsonOf(10_000, "{}")).problem(t, http.StatusUnprocessableEntity)
	if n := len(all.Items); n != 10_000 || all.Items[n-1].Index != n-1 || len(all.Items[n-1].Errors) != 1 {
		t.Errorf("%d items of 10,000 refused jobs", n)
	}
}

// jsonOf repeats a job.
func jsonOf(n int, job string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(job+",", n), ",") + "]"
}

// What is too large is refused as a whole.
func TestEnqueueTooMuch(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newBench(t)
	const small = `{"destination":"shop","payload":1}`
	large := `{"destination":"shop","payload":"` + strings.Repeat("x", 10<<20) + `"}`
	for name, body := range map[string]string{
		"10,001 items":              jsonOf(10_001, small),
		"100,000 items":             jsonOf(100_000, small),
		"a job of 10 MB":            large,
		"an array of more than 32M": "[" + large + "," + large + "," + large + "," + large + "]",
	} {
		for how, reader := range map[string]io.Reader{"with its length": strings.NewReader(body), "without": io.MultiReader(strings.NewReader(body))} {
			p := b.send(t, http.MethodPost, "/v1/jobs", reader).problem(t, http.StatusRequestEntityTooLarge)
			if p.Progress != nil {
				t.Errorf("%s, %s: %+v", name, how, p.Progress)
			}
		}
	}
	if n := b.total(t); n != 0 {
		t.Fatalf("%d jobs were enqueued, want none", n)
	}
	// One of an array that is too large stops no other.
	got := decode[Enqueued](t, b.post(t, "/v1/jobs", "["+large+","+small+"]").ok(t, http.StatusCreated))
	if got.Accepted != 1 || got.Rejected != 1 || len(got.Items[0].Errors) != 1 || got.Items[0].Errors[0].Location != "body[0]" {
		t.Errorf("%+v", got)
	}
	if got := decode[Enqueued](t, b.post(t, "/v1/jobs", jsonOf(10_000, small)).ok(t, http.StatusCreated)); got.Accepted != 10_000 || len(got.Items) != 10_000 {
		t.Errorf("%d accepted, %d items, want 10000", got.Accepted, len(got.Items))
	}
	p := b.post(t, "/v1/jobs/cancel", `{"destination":"shop","reason":"`+strings.Repeat("x", 10<<20)+`"}`).problem(t, http.StatusRequestEntityTooLarge)
	if !strings.Contains(p.Detail, "65536 bytes") {
		t.Errorf("detail %q", p.Detail)
	}
}

// The memory of bodies is bounded: what is too much at once is put off.
func TestEnqueueBusy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := build(Options{Redis: b.rdb, Client: b.client})
	hold := func(name string) func() {
		leave := a.bodies.enter(access.With(t.Context(), access.Identity{Name: name}), mostBodyBytes/2)
		if leave == nil {
			t.Fatal("a half is not what there is for one name")
		}
		return leave
	}
	bob, eve := hold("bob"), hold("eve")
	a.bodies.patience = 10 * time.Millisecond
	for _, kind := range []string{jsonType, ndjsonType} {
		b := &bench{url: serve(t, as(a))}
		answer := b.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`, "Content-Type", kind)
		answer.problem(t, http.StatusServiceUnavailable)
		if after := answer.header.Get("Retry-After"); after != "1" {
			t.Errorf("Retry-After %q, want 1", after)
		}
	}
	bob()
	again := &bench{url: serve(t, as(a))}
	again.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`).ok(t, http.StatusCreated)
	again.post(t, "/v1/jobs", `{"destination":"shop","payload":}`).ok(t, http.StatusBadRequest)
	again.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`, "Content-Type", ndjsonType).ok(t, http.StatusCreated)
	// Eve has her half.
	again.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`, "Name", "eve").problem(t, http.StatusServiceUnavailable)
	eve()
	redistest.Eventually(t, "the room of bodies", func() bool {
		ok := a.bodies.all.TryAcquire(mostBodyBytes)
		if ok {
			a.bodies.all.Release(mostBodyBytes)
		}
		return ok
	})
}

func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server, err := webserver.Start(t.Context(), webserver.Options{Addr: "127.0.0.1:0", Handler: h, CloseWithin: time.Second, Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		web.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + server.Addr()
}

// What get prints can be enqueued again.
func TestEnqueueWhatGetPrints(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.post(t, "/v1/jobs", `{"id":"a","destination":"shop","payload":{"x":1},"key":"k"}`).ok(t, http.StatusCreated)
	var doc map[string]any
	if err := json.Unmarshal([]byte(b.get(t, "/v1/jobs/a").ok(t, http.StatusOK).body), &doc); err != nil {
		t.Fatal(err)
	}
	doc["id"] = "b"
	again, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if got := decode[jobAnswer](t, b.post(t, "/v1/jobs", string(again)).ok(t, http.StatusCreated)); got.ID != "b" || string(got.Payload) != `{"x":1}` || got.Key != "k" {
		t.Errorf("%+v", got)
	}
}
