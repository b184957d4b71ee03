package fakeapi_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/fakeapi"
)

// wasted returns the numbers of the calls that were wasted.
func wasted(api *fakeapi.API) []int {
	var out []int
	for _, r := range api.Receipts() {
		if r.Wasted {
			out = append(out, r.N)
		}
	}
	return out
}

// A refused call is wasted if an answer had told of the limit.
func TestWastedCalls(t *testing.T) {
	t.Parallel()
	window := fakeapi.FixedWindow{Quota: 2, Window: time.Minute}
	for _, row := range []struct {
		name  string
		limit fakeapi.Limiter
		hints fakeapi.Hint
		want  []int
	}{
		{"a refusal tells", window, fakeapi.NoHints, []int{4, 8}},
		{"Retry-After tells no more", window, fakeapi.RetryAfter, []int{4, 8}},
		{"counts tell before", window, fakeapi.RateLimit, []int{3, 4, 7, 8}},
		{"counts tell before, in the other form", window, fakeapi.XRateLimit, []int{3, 4, 7, 8}},
		{"sliding", fakeapi.SlidingWindow{Quota: 2, Window: time.Minute}, fakeapi.NoHints, []int{4, 8}},
		{"a limit that is extended", fakeapi.Penalty{Quota: 2, Window: time.Minute, Extend: time.Minute}, fakeapi.NoHints, []int{4, 5, 6, 7, 8}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			clk := newClock()
			api, c := start(t, fakeapi.Options{Limiter: row.limit, Hints: row.hints, Now: clk.Now})
			c.statuses(4)
			clk.Advance(time.Minute)
			c.statuses(4)
			if diff := cmp.Diff(row.want, wasted(api)); diff != "" {
				t.Errorf("wasted calls (-want +got):\n%s", diff)
			}
			if got := api.Stats().Wasted; got != len(row.want) {
				t.Errorf("counted %d, want %d", got, len(row.want))
			}
		})
	}
}

// What is on its way when the limit is reached could not know, and who has left was
// not told.
func TestCallsInFlightAreNotWasted(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 1, Window: time.Minute}, Hints: fakeapi.XRateLimit,
		LatencyFunc: func(n, _ int) time.Duration {
			if n <= 5 {
				return time.Hour
			}
			return 0
		},
	})
	ctx, leave := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 5 {
		calls.Go(func() { _, _ = c.do(ctx, http.MethodPost, "/", "") })
	}
	wait(t, api, func(s fakeapi.Stats) bool { return s.Calls == 5 })
	leave()
	calls.Wait()
	wait(t, api, func(s fakeapi.Stats) bool { return s.InFlight == 0 })
	if diff := cmp.Diff([]int{429, 429}, c.statuses(2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{7}, wasted(api)); diff != "" {
		t.Errorf("wasted calls (-want +got):\n%s", diff)
	}
}

// A limit of all beside each caller's own, which says whose it is.
func TestGlobalLimitBesideThatOfAToken(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 2, Window: time.Minute}, PerToken: true,
		Global: fakeapi.FixedWindow{Quota: 3, Window: time.Hour}, Hints: fakeapi.Scope | fakeapi.RetryAfter | fakeapi.XRateLimit,
	})
	names := []string{"X-RateLimit-Scope", "X-RateLimit-Global", "X-RateLimit-Limit", "X-RateLimit-Remaining", "Retry-After"}
	for i, row := range []struct {
		token  string
		status int
		want   []string
	}{
		{"alice", 201, []string{"", "", "2", "1", ""}},
		{"alice", 201, []string{"", "", "2", "0", ""}},
		{"alice", 429, []string{"user", "", "2", "0", "60"}},
		{"bob", 201, []string{"", "", "3", "0", ""}},
		{"bob", 429, []string{"global", "true", "3", "0", "3600"}},
		{"carol", 429, []string{"global", "true", "3", "0", "3600"}},
	} {
		got := c.post("/", "", "Authorization", "Bearer "+row.token)
		var header []string
		for _, name := range names {
			header = append(header, got.Header.Get(name))
		}
		if diff := cmp.Diff(row.want, header); got.Status != row.status || diff != "" {
			t.Errorf("call %d of %s: %d, want %d; %v (-want +got):\n%s", i+1, row.token, got.Status, row.status, names, diff)
		}
	}
	// Of bob's own two calls one was left.
	if diff := cmp.Diff([]int{3, 5, 6}, wasted(api)); diff != "" {
		t.Errorf("wasted calls (-want +got):\n%s", diff)
	}
	api.Reset()
	if got := c.post("/", "", "Authorization", "Bearer alice"); got.Status != http.StatusCreated {
		t.Errorf("after a reset: %d", got.Status)
	}
}

func TestGlobalLimitAlone(t *testing.T) {
	t.Parallel()
	_, c := start(t, fakeapi.Options{Global: fakeapi.FixedWindow{Quota: 1, Window: time.Hour}, Hints: fakeapi.Scope})
	if got := c.post("/", ""); got.Status != http.StatusCreated {
		t.Errorf("first: %d", got.Status)
	}
	if got := c.post("/", ""); got.Status != http.StatusTooManyRequests || got.Header.Get("X-RateLimit-Scope") != "global" {
		t.Errorf("second: %d, %v", got.Status, got.Header)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	from := newClock().Now()
	var receipts []fakeapi.Receipt
	for _, at := range []time.Duration{-1, 0, 999 * time.Millisecond, time.Second, 3500 * time.Millisecond} {
		receipts = append(receipts, fakeapi.Receipt{At: from.Add(at)})
	}
	if diff := cmp.Diff([]int{2, 1, 0, 1}, fakeapi.Spread(receipts, from, time.Second)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
