package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// hangUp sends a request, waits until ready, and leaves. It returns when the caller has left.
func (b *bench) hangUp(t *testing.T, path, body string, ready func() bool) {
	t.Helper()
	gone, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(gone, http.MethodPost, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Prefer": {"wait=60"}, "Content-Type": {"application/json"}}
	left := make(chan error, 1)
	go func() { _, err := web.Do(r); left <- err }() //nolint:bodyclose // there is none
	redistest.Eventually(t, "the request has come", ready)
	cancel()
	if err := <-left; err == nil {
		t.Error("the caller did not leave")
	}
}

// abandonedKeys counts the jobs that a request may join.
func (b *bench) abandonedKeys(t *testing.T) int {
	t.Helper()
	keys, err := b.rdb.Keys(t.Context(), "tidegate:abandoned:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return len(keys)
}

// The same request after a hang-up joins the call that was begun, at another instance too; two at once stay two.
func TestGatewayJoinsAbandonedJobs(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	u.hangUp(t, "/to/shop/slow", `{"a":1}`, func() bool { return u.calls.Load() == 1 })
	redistest.Eventually(t, "it is abandoned", func() bool { return u.abandonedKeys(t) == 1 })
	another := *u.bench
	another.url = serve(t, as(build(Options{Redis: u.rdb, Client: u.client})))
	results := make(chan got2, 3)
	send := func(b *bench, body string) {
		got := b.post(t, "/to/shop/slow", body, "Prefer", "wait=60", "Content-Type", "application/json")
		results <- got2{got.status, got.header.Get("Tidegate-Job")}
	}
	go send(&another, `{"a":1}`)
	redistest.Eventually(t, "it is joined", func() bool { return u.abandonedKeys(t) == 0 })
	go send(u.bench, `{"a":1}`)
	go send(u.bench, `{"a":2}`)
	redistest.Eventually(t, "the others are called", func() bool { return u.calls.Load() == 3 })
	close(u.hold)
	ids := map[string]bool{}
	for range 3 {
		r := <-results
		if r.status != http.StatusCreated {
			t.Errorf("%+v", r)
		}
		ids[r.job] = true
	}
	if n := u.total(t); n != 3 || len(ids) != 3 || u.calls.Load() != 3 {
		t.Errorf("%d jobs, %d answered, %d calls", n, len(ids), u.calls.Load())
	}
}

type got2 struct {
	status int
	job    string
}

// A job whose call has not begun is cancelled when its caller hangs up.
func TestGatewayCancelsAbandonedJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.hangUp(t, "/to/shop/x", "{}", func() bool { return b.total(t) == 1 })
	redistest.Eventually(t, "it is cancelled", func() bool {
		page, err := b.client.List(t.Context(), jobs.ListOptions{})
		return err == nil && len(page.Items) == 1 && page.Items[0].Status == jobs.Cancelled
	})
	if n := b.abandonedKeys(t); n != 0 {
		t.Errorf("%d may be joined", n)
	}
}

// Strict callers get an error in place of 202, with what SDKs look for.
func TestGatewayIsStrict(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	u.url = serve(t, as(build(Options{Redis: u.rdb, Client: u.client, Gateway: func(d string) (time.Duration, bool) { return time.Second, d == "shop" }})))
	got := u.post(t, "/to/shop/slow", "{}").ok(t, http.StatusGatewayTimeout)
	p := decode[Problem](t, got)
	if got.header.Get("Retry-After") != "1" || p.SDKError == nil || *p.SDKError != (SDKError{p.Detail, "api_error", "gateway_timeout"}) || p.SDKMessage != p.Detail {
		t.Errorf("%s", got.body)
	}
	close(u.hold)
	again := u.post(t, "/to/shop/slow", "{}", "Prefer", "wait=60").ok(t, http.StatusCreated) // joins it
	if again.header.Get("Tidegate-Job") != got.header.Get("Tidegate-Job") || u.calls.Load() != 1 {
		t.Errorf("another job: %d calls", u.calls.Load())
	}
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), u.rdb, "shop", breaker.TripOptions{For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	got = u.post(t, "/to/shop/x", "{}").ok(t, http.StatusServiceUnavailable)
	if p := decode[Problem](t, got); p.SDKError.Code != "breaker_tripped" || p.Until == nil || len(got.header.Get("Retry-After")) != 4 {
		t.Errorf("%s, Retry-After %s", got.body, got.header.Get("Retry-After"))
	}
	job, err := u.client.Get(t.Context(), got.header.Get("Tidegate-Job"))
	if err != nil || job.Status != jobs.Cancelled {
		t.Errorf("%+v, %v", job, err)
	}
	u.post(t, "/to/shop/x", "{}", "Prefer", "wait=1, handling=lenient").ok(t, http.StatusAccepted)
	u.post(t, "/to/shop/x", "{}", "Prefer", "respond-async").ok(t, http.StatusAccepted)
	u.post(t, "/to/stock/x", "{}", "Prefer", "wait=1, handling=strict").ok(t, http.StatusGatewayTimeout)
	if got := u.post(t, "/to/none/x", "{}").ok(t, http.StatusNotFound); !strings.Contains(got.body, `"type":"invalid_request_error","code":"not_found"`) {
		t.Errorf("%s", got.body)
	}
}

// Headers of the API's response arrive, with URLs of the gateway.
func TestGatewayPassesHeaders(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	got := u.get(t, "/to/shop/paged?page=1", "Prefer", "wait=60").ok(t, http.StatusOK)
	for name, want := range map[string]string{
		"Link":     "<" + u.url + `/to/shop/paged?page=2>; rel="next", <https://elsewhere.example/x>; rel="help", <` + u.url + `/to/shop/paged?page=9>; rel="last"`,
		"Location": u.url + "/to/shop/things/7",
		"Etag":     `"abc"`, "X-Request-Id": "r1", "Retry-After": "3", "X-Total-Count": "27", "X-Ratelimit-Remaining": "5",
		"X-Own": "[redacted]", "Set-Cookie": "", "X-Other": "", "Server": "", "X-Huge-Request-Id": "",
	} {
		if value := got.header.Get(name); value != want {
			t.Errorf("%s: %q, want %q", name, value, want)
		}
	}
	if got.body != strings.Repeat("y", 5000) {
		t.Errorf("%d bytes", len(got.body))
	}
	page := u.get(t, "/v1/jobs?limit=1").ok(t, http.StatusOK)
	if !strings.Contains(page.body, `"body":"`+strings.Repeat("y", 4096)+`"`) {
		t.Errorf("the list shows %.300s", page.body)
	}
}
