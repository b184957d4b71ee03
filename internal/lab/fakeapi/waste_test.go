package fakeapi_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
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
		hints fakeapi.Hint
		want  []int
	}{
		{"a refusal tells", fakeapi.NoHints, []int{4, 8}},
		{"Retry-After tells no more", fakeapi.RetryAfter, []int{4, 8}},
		{"counts tell before", fakeapi.RateLimit, []int{3, 4, 7, 8}},
		{"counts tell before, in the other form", fakeapi.XRateLimit, []int{3, 4, 7, 8}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			clk := newClock()
			api, c := start(t, fakeapi.Options{Limiter: window, Hints: row.hints, Now: clk.Now})
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
