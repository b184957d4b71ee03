package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

func TestEnqueueLines(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{limits: jobs.Limits{MaxPayloadBytes: 1000}})
	var body strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&body, format+"\n", args...) }
	line(`{"id":"a","destination":"shop","payload":{"n": 1}}`)
	line(``)
	line(`nonsense`)
	line(`  {"id":"b","destination":"shop","payload":2,"after":["a"]}` + "\r")
	line(`{"destination":"blog","payload":1}`)
	line(`{"destination":"shop","payload":"%s"}`, strings.Repeat("x", 100<<10))
	line(`{"destination":"shop","payload":"%s"}`, strings.Repeat("x", 2000))
	line(`{"id":"a","destination":"shop","payload":3}`)
	line(`[{"destination":"shop","payload":3}]`)
	line("{\"destination\":\"shop\",\"payload\":\"\xff\xfe\"}")
	body.WriteString(`{"id":"c","destination":"stock","payload":4}`) // no end of line
	answer := b.post(t, "/v1/jobs", body.String(), "Content-Type", "application/x-ndjson; charset=utf-8").ok(t, http.StatusCreated)
	want := Enqueued{Accepted: 3, Duplicates: 1, Rejected: 6, Items: []EnqueuedItem{
		{Index: 1, Line: 3, Errors: []ProblemField{{"body[1]", "is not valid JSON: invalid character 'o' in literal null (expecting 'u')"}}},
		{Index: 3, Line: 5, Errors: []ProblemField{{"body[3].destination", `"blog" is not known; known are shop, stock`}}},
		{Index: 4, Line: 6, Errors: []ProblemField{{"body[4]", "is longer than 66536 bytes, which no job that is accepted is (MAX_PAYLOAD_BYTES)"}}},
		{Index: 5, Line: 7, Errors: []ProblemField{{"body[5].payload", "has 2002 bytes, at most 1000 are accepted (MAX_PAYLOAD_BYTES); store it elsewhere and send a reference"}}},
		{Index: 7, Line: 9, Errors: []ProblemField{{"body[7]", `is not a JSON object; write a job such as {"destination":"example","payload":{}}`}}},
		{Index: 8, Line: 10, Errors: []ProblemField{{"body[8]", "is not UTF-8, as JSON is"}}},
	}}
	if diff := cmp.Diff(want, decode[Enqueued](t, answer)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if job, err := b.client.Get(t.Context(), "b"); err != nil || job.Status != jobs.Waiting {
		t.Errorf("b: %+v, %v", job, err)
	}
	for body, want := range map[string]string{
		"\n\n": `{"accepted":0,"duplicates":0,"rejected":0,"items":[]}` + "\n",
		`{"id":"a","destination":"shop","payload":3}`: `{"accepted":0,"duplicates":1,"rejected":0,"items":[]}` + "\n",
	} {
		if got := b.post(t, "/v1/jobs", body, "Content-Type", ndjsonType).ok(t, http.StatusOK); got.body != want {
			t.Errorf("%q: %s, want %s", body, got.body, want)
		}
	}
}

// Who accepts lines is told of each job while it sends more.
func TestEnqueueLinesToldOneByOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/v1/jobs", in)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", ndjsonType)
	r.Header.Set("Accept", "application/x-ndjson, application/problem+json")
	send := func(text string) {
		if _, err := io.WriteString(out, text); err != nil {
			t.Error(err)
		}
	}
	go send(`{"id":"a","destination":"shop","payload":1}` + "\n")
	answer, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || kind != ndjsonType {
		t.Fatalf("%s, %s", answer.Status, kind)
	}
	told := bufio.NewScanner(answer.Body)
	next := func(want string) {
		t.Helper()
		if !told.Scan() || told.Text() != want {
			t.Errorf("told %s (%v), want %s", told.Text(), told.Err(), want)
		}
	}
	next(`{"index":0,"line":1,"id":"a","status":"pending","duplicate":false,"eta":{"at":null,"from":null,"to":null,"because":"no worker serves shop"}}`)
	// Only now the next ones are sent.
	send("\n{}\n" + `{"id":"a","destination":"shop","payload":1}` + "\n")
	next(`{"index":1,"line":3,"duplicate":false,"errors":[{"location":"body[1].payload","message":"is missing; give JSON, for instance {} or null"},{"location":"body[1].destination","message":"is missing; name one of your destinations"}]}`)
	next(`{"index":2,"line":4,"id":"a","status":"pending","duplicate":true}`)
	_ = out.Close()
	next(`{"answered":3,"accepted":1,"duplicates":1,"rejected":1}`)
	if told.Scan() || told.Err() != nil {
		t.Errorf("told %q, %v after the last line", told.Text(), told.Err())
	}

	// What fails before the first is an answer like others; later it is the last line.
	accept := []string{"Content-Type", ndjsonType, "Accept", ndjsonType}
	if got := b.post(t, "/v1/jobs", "\n", accept...).ok(t, http.StatusOK); got.body != `{"answered":0,"accepted":0,"duplicates":0,"rejected":0}`+"\n" {
		t.Errorf("of nothing: %s", got.body)
	}
	got := b.post(t, "/v1/jobs", strings.Repeat(`{"destination":"shop","payload":1}`+"\n", 20_000), accept...).ok(t, http.StatusOK)
	if lines := strings.Split(got.body, "\n"); len(lines) != 20_002 || lines[20_000] != `{"answered":20000,"accepted":20000,"duplicates":0,"rejected":0}` {
		t.Errorf("%d lines", len(lines))
	}
	b.redis.Stop()
	b.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`, accept...).problem(t, http.StatusServiceUnavailable)
}

// Who accepts lines and does not read them is cut off, and holds nobody up.
func TestResultsThatNobodyReads(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{server: webserver.Limits{Write: 100 * time.Millisecond}})
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(conn, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nAccept: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk := strings.Repeat("{}\n", 10_000)
	for n := 0; err == nil && n < 500; n++ {
		_, err = fmt.Fprintf(conn, "%x\r\n%s\r\n", len(chunk), chunk)
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("sending ended with %v, want it cut off", err)
	}
	b.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`).ok(t, http.StatusCreated)
}

// The API reads 30,000 lines that come in pieces; every fiftieth line is bad.
func TestEnqueueManyLines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const lines = 30_000
	in, out := io.Pipe()
	go func() {
		for i := range lines {
			text := fmt.Sprintf(`{"id":"job-%d","destination":"shop","payload":{"n":%d}}`+"\n", i, i)
			if i%50 == 7 {
				text = "{}\n"
			}
			if _, err := io.WriteString(out, text); err != nil {
				return
			}
		}
		_ = out.Close()
	}()
	got := decode[Enqueued](t, b.send(t, http.MethodPost, "/v1/jobs", in, "Content-Type", ndjsonType).ok(t, http.StatusCreated))
	if got.Accepted != lines-lines/50 || got.Rejected != lines/50 || got.Duplicates != 0 || len(got.Items) != lines/50 {
		t.Errorf("accepted %d, rejected %d, duplicates %d, %d items", got.Accepted, got.Rejected, got.Duplicates, len(got.Items))
	}
	if last := got.Items[lines/50-1]; last.Index != lines-50+7 || last.Line != last.Index+1 {
		t.Errorf("the last one of the answer is %+v", last)
	}
	// They are in the order of the lines.
	page, err := b.client.List(t.Context(), jobs.ListOptions{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range page.Items[1:] {
		if before := page.Items[i]; before.CreatedAt.Before(j.CreatedAt) {
			t.Fatalf("%s of %v is listed before %s of %v", before.ID, before.CreatedAt, j.ID, j.CreatedAt)
		}
	}
}

// The answer to lines tells of the first 1,000 that were refused.
func TestEnqueueManyBadLines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	body := strings.Repeat("{}\n", 5000)
	p := b.post(t, "/v1/jobs", body, "Content-Type", ndjsonType).problem(t, http.StatusUnprocessableEntity)
	if len(p.Errors) < mostRejections || len(p.Errors) > 2*mostRejections || p.Progress == nil || p.Rejected != 5000 {
		t.Errorf("%d errors, progress %+v", len(p.Errors), p.Progress)
	}
	got := decode[Enqueued](t, b.post(t, "/v1/jobs", body+`{"destination":"shop","payload":1}`, "Content-Type", ndjsonType).ok(t, http.StatusCreated))
	if got.Accepted != 1 || got.Rejected != 5000 || len(got.Items) != mostRejections || got.Items[mostRejections-1].Line != mostRejections {
		t.Errorf("accepted %d, rejected %d, %d items", got.Accepted, got.Rejected, len(got.Items))
	}
}

// A body that does not come is given up; what came before it is enqueued, and the
// answer says how much that is.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{server: webserver.Limits{Stall: 100 * time.Millisecond}})
	for kind, first := range map[string]string{jsonType: `{"destination":"shop",`, ndjsonType: `{"id":"a","destination":"shop","payload":1}` + "\n" + `{"id"`} {
		in, out := io.Pipe()
		go func() { _, _ = io.WriteString(out, first) }()
		p := b.send(t, http.MethodPost, "/v1/jobs", in, "Content-Type", kind).problem(t, http.StatusRequestTimeout)
		_ = out.Close()
		if kind == ndjsonType {
			if diff := cmp.Diff(&Progress{Answered: 1, Accepted: 1}, p.Progress); diff != "" {
				t.Errorf("progress (-want +got)\n%s", diff)
			}
		}
	}
	in, out := io.Pipe()
	go func() { _, _ = io.WriteString(out, `{"reason":`) }()
	b.send(t, http.MethodPost, "/v1/jobs/a/cancel", in).problem(t, http.StatusRequestTimeout)
	_ = out.Close()
	if job, err := b.client.Get(t.Context(), "a"); err != nil || job.Status != jobs.Pending {
		t.Errorf("%+v, %v", job, err)
	}
}

// A client that leaves in the middle of its lines leaves those enqueued that came.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/v1/jobs", in)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", ndjsonType)
	go func() {
		_, _ = io.WriteString(out, `{"id":"a","destination":"shop","payload":1}`+"\n"+`{"id":"b"`)
		_ = out.CloseWithError(fmt.Errorf("left"))
	}()
	if answer, err := web.Do(r); err == nil {
		_ = answer.Body.Close()
		t.Error("the request succeeded")
	}
	redistest.Eventually(t, "job a", func() bool {
		_, err := b.client.Get(t.Context(), "a")
		return err == nil
	})
}
