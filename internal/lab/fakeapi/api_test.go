package fakeapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
)

// answer is what a caller got.
type answer struct {
	Status int
	Header http.Header
	Body   string
}

// caller calls one API.
type caller struct {
	t      *testing.T
	url    string
	client *http.Client
}

// start runs an API until the test's end.
func start(t *testing.T, opts fakeapi.Options) (*fakeapi.API, *caller) {
	t.Helper()
	api := fakeapi.New(opts)
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	c := &caller{t: t, url: url, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		c.client.CloseIdleConnections()
		if err := api.Close(); err != nil {
			t.Error(err)
		}
	})
	return api, c
}

func (c *caller) do(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

func (c *caller) post(path, body string, header ...string) answer {
	c.t.Helper()
	a, err := c.do(c.t.Context(), http.MethodPost, path, body, header...)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// statuses posts n jobs one after the other.
func (c *caller) statuses(n int, header ...string) []int {
	c.t.Helper()
	got := make([]int, n)
	for i := range got {
		got[i] = c.post("/", "{}", header...).Status
	}
	return got
}

// clock is a clock that moves when told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestReceiptNotesTheCallWithoutItsSecret(t *testing.T) {
	t.Parallel()
	clk := newClock()
	api, c := start(t, fakeapi.Options{Now: clk.Now})
	got := c.post("/items/7?a=b", `{"x":1}`, "Idempotency-Key", "job-1", "Authorization", "Bearer s3cret", "X-A", "b")
	if got.Status != 201 || got.Body != `{"key":"job-1","n":1}`+"\n" || got.Header.Get("Date") != "Fri, 02 Jan 2026 03:04:05 GMT" {
		t.Errorf("answer = %+v", got)
	}
	want := []fakeapi.Receipt{{
		N: 1, At: clk.Now(), Done: clk.Now(), Key: "job-1", Auth: fakeapi.HashAuth("Bearer s3cret"),
		Method: "POST", Path: "/items/7", Query: "a=b", Body: []byte(`{"x":1}`), Status: 201, InFlight: 1,
	}}
	receipts := api.Receipts()
	if diff := cmp.Diff(want, receipts, cmpopts.IgnoreFields(fakeapi.Receipt{}, "Header")); diff != "" {
		t.Errorf("receipts (-want +got):\n%s", diff)
	}
	if h := receipts[0].Header; h.Get("X-A") != "b" || h.Get("Idempotency-Key") != "job-1" {
		t.Errorf("noted headers = %v", h)
	}
	if dump := fmt.Sprintf("%+v", receipts); strings.Contains(dump, "s3cret") {
		t.Error("a receipt holds the token")
	}
	if diff := cmp.Diff(fakeapi.Stats{Calls: 1, Accepted: 1, MaxInFlight: 1}, api.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

func TestLimitIsEnforcedAndLifted(t *testing.T) {
	t.Parallel()
	clk := newClock()
	api, c := start(t, fakeapi.Options{Limiter: fakeapi.FixedWindow{Quota: 2, Window: time.Minute}, Now: clk.Now})
	if diff := cmp.Diff([]int{201, 201, 429, 429}, c.statuses(4)); diff != "" {
		t.Errorf("first window (-want +got):\n%s", diff)
	}
	clk.Advance(time.Minute)
	if diff := cmp.Diff([]int{201, 201, 429}, c.statuses(3)); diff != "" {
		t.Errorf("second window (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(fakeapi.Stats{Calls: 7, Accepted: 4, Limited: 3, Wasted: 1, MaxInFlight: 1}, api.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	api.SetLimiter(nil)
	if diff := cmp.Diff([]int{201, 201, 201}, c.statuses(3)); diff != "" {
		t.Errorf("without limit (-want +got):\n%s", diff)
	}
	api.SetLimiter(fakeapi.FixedWindow{Quota: 1, Window: time.Minute})
	if diff := cmp.Diff([]int{201, 429}, c.statuses(2)); diff != "" {
		t.Errorf("with another limit (-want +got):\n%s", diff)
	}
}

func TestHintsAreSent(t *testing.T) {
	t.Parallel()
	clk := newClock()
	api, c := start(t, fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 1, Window: 90 * time.Second},
		Hints:   fakeapi.RetryAfter | fakeapi.RateLimit | fakeapi.XRateLimit, Now: clk.Now,
	})
	got := c.post("/", "")
	if got.Status != 201 || got.Header.Get("RateLimit") != `"default";r=0;t=90` || got.Header.Get("X-RateLimit-Remaining") != "0" || got.Header.Get("Retry-After") != "" {
		t.Errorf("accepted call: %d %v", got.Status, got.Header)
	}
	clk.Advance(30 * time.Second)
	got = c.post("/", "")
	if got.Status != 429 || got.Header.Get("RateLimit") != `"default";r=0;t=60` || got.Header.Get("Retry-After") != "60" ||
		got.Header.Get("RateLimit-Policy") != `"default";q=1;w=90` || got.Header.Get("X-RateLimit-Reset") != "1767323135" {
		t.Errorf("refused call: %d %v", got.Status, got.Header)
	}
	api.SetHints(fakeapi.RetryAfterDate)
	if got := c.post("/", "").Header; got.Get("Retry-After") != "Fri, 02 Jan 2026 03:05:35 GMT" || got.Get("RateLimit") != "" {
		t.Errorf("refused call with a date: %v", got)
	}
}

func TestEachTokenHasItsBudgetIfAsked(t *testing.T) {
	t.Parallel()
	for perToken, want := range map[bool][]int{true: {201, 201}, false: {201, 429}} {
		t.Run(fmt.Sprint(perToken), func(t *testing.T) {
			t.Parallel()
			_, c := start(t, fakeapi.Options{Limiter: fakeapi.FixedWindow{Quota: 1, Window: time.Minute}, PerToken: perToken})
			got := []int{
				c.post("/", "", "Authorization", "Bearer alice").Status,
				c.post("/", "", "Authorization", "Bearer bob").Status,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("alice, bob (-want +got):\n%s", diff)
			}
		})
	}
}

func wait(t *testing.T, api *fakeapi.API, cond func(fakeapi.Stats) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := api.Wait(ctx, cond); err != nil {
		t.Fatal(err)
	}
}

func TestWaitIsWokenByReceiptsAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{})
	done := make(chan error)
	go func() {
		done <- api.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.Accepted == 2 })
	}()
	c.statuses(2)
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := api.Wait(ctx, func(s fakeapi.Stats) bool { return s.Calls == 3 })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Calls:2") {
		t.Errorf("Wait = %v, want cancelled, with the counts", err)
	}
}

func TestResetForgetsAndMakesBudgetsWhole(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{Limiter: fakeapi.FixedWindow{Quota: 1, Window: time.Hour}})
	api.Queue(fakeapi.Answer{}, fakeapi.Answer{}, fakeapi.Answer{Status: 500})
	c.statuses(2, "Idempotency-Key", "a")
	api.Reset()
	if got := api.Stats(); got != (fakeapi.Stats{}) || len(api.Receipts()) != 0 || len(api.Accepted()) != 0 {
		t.Errorf("after Reset: %+v, %d receipts, accepted %v", got, len(api.Receipts()), api.Accepted())
	}
	if diff := cmp.Diff([]int{201, 429}, c.statuses(2)); diff != "" {
		t.Errorf("after Reset (-want +got):\n%s", diff)
	}
	if got := api.Receipts()[0].N; got != 1 {
		t.Errorf("first receipt after Reset is number %d, want 1", got)
	}
}
