package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// upstream is an API behind the destination shop, and the worker that serves it.
type upstream struct {
	*bench
	calls atomic.Int64
	last  atomic.Pointer[arrived]
	hold  chan struct{} // calls to /slow wait for it
}

// arrived is a request as it arrived.
type arrived struct {
	method, uri string
	header      http.Header
	body        string
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{bench: newBench(t), hold: make(chan struct{})}
	api := httptest.NewServer(u)
	t.Cleanup(api.Close)
	h, err := httpdest.New(httpdest.Options{URL: api.URL + "/base", AuthToken: "the-real-one", AuthHeader: "X-Api-Key", AuthScheme: "none", GatewayHeaders: []string{"X-Own"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := publisher.New(u.rdb, publisher.Options{Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle("shop", h); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	u.calls.Add(1)
	u.last.Store(&arrived{r.Method, r.RequestURI, r.Header, string(body)})
	switch r.URL.Path {
	case "/base/slow":
		<-u.hold
	case "/base/binary":
		w.Header().Set("Content-Type", "image/x")
		_, _ = w.Write([]byte{0, 255, 10, 128})
		return
	case "/base/paged":
		h, base := w.Header(), "http://"+r.Host+"/base"
		h.Add("Link", "<"+base+`/paged?page=2>; rel="next", <https://elsewhere.example/x>; rel="help"`)
		h.Add("Link", `</base/paged?page=9>; rel="last"`)
		h.Set("Location", "/base/things/7")
		for _, pair := range []string{"ETag \"abc\"", "X-Request-Id r1", "Retry-After 3", "X-Total-Count 27", "X-RateLimit-Remaining 5", "X-Own the-real-one", "Set-Cookie a=b", "X-Other 1"} {
			name, value, _ := strings.Cut(pair, " ")
			h.Set(name, value)
		}
		h.Set("X-Huge-Request-Id", strings.Repeat("x", 9000))
		_, _ = w.Write(bytes.Repeat([]byte("y"), 5000))
		return
	case "/base/odd":
		w.Header().Set("Content-Type", "!odd type")
	case "/base/large":
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20+1))
		return
	case "/base/missing":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":"the-real-one"}`)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body)
}

// sent is what the API got of a request.
func (u *upstream) sent(t *testing.T, method, path, body string, headers ...string) arrived {
	t.Helper()
	u.call(t, method, "/to/shop"+path, body, append(headers, "Prefer", "wait=60")...).ok(t, http.StatusCreated)
	return *u.last.Load()
}

func TestGatewayPassesRequestsOn(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	got := u.sent(t, "POST", "/a%2Fb/c?x=1&y=%20", ` {"a": 1}`+"\n", "Content-Type", "application/json; charset=utf-8",
		"X-Own", "1", "Connection", "X-Hop, close", "X-Hop", "1", "Keep-Alive", "timeout=5", "Te", "trailers", "Proxy-Authorization", "Basic eA==", "X-Forwarded-For", "1.2.3.4", "Cookie", "a=b", "Authorization", "Bearer tg_secret",
		"X-Api-Key", "tg_secret", "X-Copy", "tg_secret", "Tidegate-Key", "alice", "Tidegate-Label", "team=web, run=7")
	if ids := u.list(t, "?label=team=web&label=run=7", 10); len(ids) != 1 {
		t.Errorf("jobs with the labels of the request: %v", ids)
	}
	if got.method != "POST" || got.uri != "/base/a%2Fb/c?x=1&y=%20" || got.body != ` {"a": 1}`+"\n" || got.header.Get("Content-Type") != "application/json; charset=utf-8" || got.header.Get("X-Own") != "1" {
		t.Errorf("arrived %+v", got)
	}
	for _, name := range []string{"X-Hop", "Keep-Alive", "Te", "Proxy-Authorization", "X-Forwarded-For", "Cookie", "Authorization", "X-Copy", "Tidegate-Key", "Prefer"} {
		if values := got.header.Values(name); values != nil {
			t.Errorf("%s was passed on: %v", name, values)
		}
	}
	// Left out, it would make of a DELETE what its carrier does.
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Method"} {
		p := u.call(t, "POST", "/to/shop/a", "{}", "Tidegate-Key", "alice", "Prefer", "wait=60", name, "DELETE").problem(t, http.StatusBadRequest)
		if !strings.Contains(p.Detail, http.CanonicalHeaderKey(name)+" asks the API for another method") {
			t.Errorf("%s: %s", name, p.Detail)
		}
	}
	if n := u.calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
	if got.header.Get("X-Api-Key") != "the-real-one" {
		t.Errorf("credential %v", got.header)
	}
	for kind, body := range map[string]string{
		"application/x-www-form-urlencoded": "a=b&a=c%20d", "multipart/form-data; boundary=x": "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\n",
		"application/octet-stream": "\x00\xff\n", "application/json": `{"broken`, "!odd": "x", "text/plain; charset": "y", "a b": "z",
	} {
		if got := u.sent(t, "PUT", "/x", body, "Content-Type", kind); got.body != body || got.header.Get("Content-Type") != kind || got.method != "PUT" {
			t.Errorf("%s: arrived %+v", kind, got)
		}
	}
	if got := u.sent(t, "DELETE", "/x/7", ""); got.body != "" || got.header.Values("Content-Type") != nil {
		t.Errorf("without a body: %+v", got)
	}
	if got := u.sent(t, "GET", "", ""); got.uri != "/base" {
		t.Errorf("without a path: %+v", got)
	}
}

func TestGatewayAnswers(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	got := u.get(t, "/to/shop/binary", "Prefer", "wait=60").ok(t, http.StatusOK)
	if got.body != "\x00\xff\n\x80" || got.header.Get("Content-Type") != "image/x" || got.header.Get("Tidegate-Attempts") != "1" || !strings.Contains(got.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("got %+v", got)
	}
	if job := decode[jobAnswer](t, u.get(t, "/v1/jobs/"+got.header.Get("Tidegate-Job")).ok(t, http.StatusOK)); job.Response.ContentType != "image/x" || strings.Contains(job.Response.Body, "\x00") {
		t.Errorf("the job shows %+v", job.Response)
	}
	got = u.post(t, "/to/shop/missing", "{}", "Prefer", "respond-async, wait=60").ok(t, http.StatusNotFound)
	if got.body != `{"error":"[redacted]"}` || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %+v", got)
	}
	got = u.get(t, "/to/shop/large", "Prefer", "wait=60").ok(t, http.StatusOK)
	if len(got.body) != 1<<20 || got.header.Get("Tidegate-Truncated") != "1048576" {
		t.Errorf("%d bytes, %v", len(got.body), got.header)
	}
	// A caller that does not wait, or not long enough, or is gone: the job goes on.
	gone, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(gone, http.MethodPost, u.url+"/to/shop/slow", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Prefer": {"wait=60"}, "Idempotency-Key": {"gone"}}
	calls := u.calls.Load()
	left := make(chan error, 1)
	go func() { _, err := web.Do(r); left <- err }() //nolint:bodyclose // there is none
	redistest.Eventually(t, "it is called", func() bool { return u.calls.Load() > calls })
	cancel()
	if err := <-left; err == nil {
		t.Error("the caller did not leave")
	}
	got = u.post(t, "/to/shop/slow", "{}", "Idempotency-Key", "gone", "Content-Type", "", "Prefer", "wait=1").ok(t, http.StatusAccepted)
	accepted := decode[GatewayJob](t, got)
	if got.header.Get("Location") != "/v1/jobs/"+accepted.ID || !accepted.Duplicate || accepted.Status != "running" {
		t.Errorf("got %+v", got)
	}
	close(u.hold)
	if job := decode[jobAnswer](t, u.get(t, "/v1/jobs/"+accepted.ID+"?wait=1m").ok(t, http.StatusOK)); job.Status != jobs.Completed {
		t.Errorf("job %+v", job)
	}
	// Again: the same response, and no other call.
	calls = u.calls.Load()
	u.post(t, "/to/shop/slow", "{}", "Idempotency-Key", "gone", "Content-Type", "", "Prefer", "wait=60").ok(t, http.StatusCreated)
	u.post(t, "/to/shop/slow", "7", "Idempotency-Key", "gone").ok(t, http.StatusUnprocessableEntity)
	for _, other := range [][2]string{{"Tidegate-Key", "alice"}, {"Tidegate-Batch", "monday"}, {"Content-Type", "text/plain"}} {
		headers := []string{"Idempotency-Key", "gone", "Content-Type", ""}
		u.post(t, "/to/shop/slow", "{}", append(headers, other[0], other[1])...).ok(t, http.StatusUnprocessableEntity)
	}
	if n := u.calls.Load() - calls; n != 0 {
		t.Errorf("%d calls more", n)
	}
	u.post(t, "/to/shop/x", "7", "Idempotency-Key", "gone", "Name", "bob", "Prefer", "wait=60").ok(t, http.StatusCreated)
}

// An accepted job is never answered with an error, which SDKs would take as a reason to send it again.
func TestGatewayAcceptsWhateverComesLater(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newBench(t)
	for name, fault := range map[string]func(){
		"its record is gone": func() { b.rdb.FlushDB(t.Context()) },
		"Redis is gone":      func() { b.redis.Stop() },
	} {
		waiting := make(chan got, 1)
		go func() { waiting <- b.post(t, "/to/shop/x", "{}", "Prefer", "wait=60") }()
		redistest.Eventually(t, "it is enqueued", func() bool { return b.total(t) == 1 })
		fault()
		got := (<-waiting).ok(t, http.StatusAccepted)
		if accepted := decode[GatewayJob](t, got); got.header.Get("Location") != "/v1/jobs/"+accepted.ID || accepted.Status != "pending" {
			t.Errorf("%s: %+v", name, got)
		}
		b.redis.Restart()
	}
	// Without memory for its response a caller gets no more than that.
	a := build(Options{Redis: b.rdb, Client: b.client})
	b.url = serve(t, as(a))
	if !a.lists.all.TryAcquire(a.lists.most) {
		t.Fatal("there are lists")
	}
	b.post(t, "/to/shop/x", "{}", "Prefer", "wait=1").ok(t, http.StatusAccepted)
}

// Redis holds a whole response only for a caller that can have it.
func TestGatewayKeepsResponses(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	for _, c := range []struct {
		headers []string
		kept    int
	}{{nil, 0}, {[]string{"Idempotency-Key", "a"}, 1 << 20}, {[]string{"Prefer", "wait=60"}, 1 << 20}} {
		id := u.post(t, "/to/shop/large", "{}", c.headers...).header.Get("Tidegate-Job")
		u.get(t, "/v1/jobs/"+id+"?wait=1m").ok(t, http.StatusOK)
		job, err := u.client.Get(t.Context(), id)
		if err != nil || len(job.Response.Raw) != c.kept || c.kept == 0 && len(job.Response.Body) != 4096 {
			t.Errorf("%v: %d bytes, %d in the job, %v", c.headers, len(job.Response.Raw), len(job.Response.Body), err)
		}
	}
	got := u.post(t, "/to/shop/odd", "7", "Prefer", "wait=60").ok(t, http.StatusCreated)
	if got.header.Get("Content-Type") != "!odd type" || got.header.Get("Tidegate-Truncated") != "" || got.body != "7" {
		t.Errorf("got %+v", got)
	}
}

func TestGatewayRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	wait := []string{"Prefer", "wait=1"}
	for _, c := range []struct {
		method, path, body string
		headers            []string
		status             int
		says               string
	}{
		{"GET", "/to/shop/x", "", nil, 400, "Prefer: wait=30"},
		{"GET", "/to/shop/x", "body", wait, 400, "a body of GET"},
		{"GET", "/to/shop/x", "", []string{"Prefer", "wait=soon"}, 400, "number of seconds"},
		{"GET", "/to/shop/../v1/jobs", "", wait, 422, "must not contain . or .."},
		{"POST", "/to/shop/%2e%2e/x", "{}", nil, 422, "must not contain . or .."},
		{"POST", "/to/shop/..%2fx", "{}", nil, 422, "must not contain . or .."},
		{"POST", "/to/shop/a%5cb", "{}", nil, 422, "backslash"},
		{"POST", "/to/shop//evil.example/x", "{}", nil, 422, "exactly one slash"},
		{"POST", "/to/none/x", "{}", nil, 404, "known are shop, stock"},
		{"POST", "/to/", "{}", nil, 404, "/to/shop/orders"},
		{"POST", "/to/http:%2F%2Fevil/x", "{}", nil, 404, "/to/shop/orders"},
		{"TRACE", "/to/shop/x", "", nil, 422, "request.method"},
		{"POST", "/to/shop/x", strings.Repeat("1", 262145), nil, 413, "262144"},
		{"POST", "/to/shop/x", strings.Repeat("a", 262144), []string{"Content-Type", "text/plain"}, 413, "196608"},
		{"POST", "/to/shop/x", "{}", []string{"Tidegate-Kay", "a"}, 400, "is not known"},
		{"POST", "/to/shop/x", "{}", []string{"Tidegate-Cost", "a"}, 400, "whole number"},
		{"POST", "/to/shop/x", "{}", []string{"Tidegate-Priority", "urgent"}, 422, "job.priority"},
		{"POST", "/to/shop/x", "{}", []string{"Tidegate-Order", "key"}, 422, "has no key"},
		{"POST", "/to/shop/x", "{}", []string{"Tidegate-Replace", "; delay=5s"}, 400, "write one, such as profile-7"},
		{"POST", "/to/shop/x", "{}", []string{"Tidegate-Replace", "k; dealy=5s"}, 400, "such as profile-7; delay=5s; max=10m"},
		{"POST", "/to/shop/x", "{}", []string{"Tidegate-Replace", "k; max=5s"}, 422, "job.replace_max"},
		{"POST", "/to/shop/x", "{}", []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, "1 to 255"},
		{"POST", "/to/shop/x", "{}", []string{"As", "read"}, 403, "scope"},
		{"POST", "/to/shop/x", "{}", []string{"As", "nobody"}, 401, "token"},
	} {
		got := b.call(t, c.method, c.path, c.body, c.headers...)
		if got.status != c.status || !strings.Contains(got.body, c.says) {
			t.Errorf("%s %s: %d %s, want %d, %q", c.method, c.path, got.status, got.body, c.status, c.says)
		}
	}
	endless := struct{ io.Reader }{strings.NewReader(strings.Repeat("1", 262145))} // of unknown length
	if got := b.send(t, "POST", "/to/shop/x", endless); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of unknown length: %+v", got)
	}
	if n := b.total(t); n != 0 {
		t.Errorf("%d jobs", n)
	}
	got := b.post(t, "/to/stock/x?a=b", `{"a":1}`, "Tidegate-Key", "alice", "Tidegate-TTL", "1h", "Tidegate-Priority", "high", "Tidegate-Retry", "max=3",
		"Tidegate-Batch", "monday", "Tidegate-Cost", "2", "Tidegate-Order", "key", "As", "enqueue").ok(t, http.StatusAccepted)
	job, err := b.client.Get(t.Context(), decode[GatewayJob](t, got).ID)
	if err != nil {
		t.Fatal(err)
	}
	first := decode[GatewayJob](t, b.post(t, "/to/stock/x", "1", "Tidegate-Replace", "p; delay=5m; max=10m", "As", "enqueue").ok(t, http.StatusAccepted))
	second := decode[GatewayJob](t, b.post(t, "/to/stock/x", "2", "Tidegate-Replace", "p", "As", "enqueue").ok(t, http.StatusAccepted))
	if first.Replaced != "" || second.Replaced != first.ID {
		t.Errorf("%s replaced %q", second.ID, second.Replaced)
	}
	if job.Key != "alice" || job.ExpiresAt == nil || job.Priority != jobs.PriorityHigh || job.Retry.MaxRetries != 3 || job.Batch != "monday" || job.Cost != 2 || job.Order != jobs.OrderKey || !job.Gateway {
		t.Errorf("job %+v", job)
	}
}

// SDKs send the token in places of their own.
func TestGatewayToken(t *testing.T) {
	t.Parallel()
	for _, header := range []http.Header{
		{"Authorization": {"Bearer tg_x"}}, {"Authorization": {"token tg_x"}}, {"X-Api-Key": {"tg_x"}},
	} {
		r := &http.Request{Header: header, URL: &url.URL{Path: "/to/shop/x"}}
		GatewayToken(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != "Bearer tg_x" || r.Header.Get("X-Api-Key") != "" {
				b, _ := json.Marshal(r.Header)
				t.Errorf("got %s", b)
			}
		})).ServeHTTP(nil, r)
	}
}
