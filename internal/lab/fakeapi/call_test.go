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

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
)

func TestScriptDecidesAndTheLimiterTakesTheRest(t *testing.T) {
	t.Parallel()
	var seen []string
	api, c := start(t, fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 1, Window: time.Minute}, Hints: fakeapi.RetryAfter,
		Script: func(n int, r *http.Request) *fakeapi.Answer {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			seen = append(seen, string(body))
			switch n {
			case 1:
				return &fakeapi.Answer{Status: 500, Body: "boom", Header: http.Header{"x-why": {"test"}}}
			case 2:
				return &fakeapi.Answer{Status: 429}
			case 3:
				return &fakeapi.Answer{Header: http.Header{"X-Why": {"ordinary"}}}
			}
			return nil
		},
	})
	first := c.post("/", "one")
	if first.Status != 500 || first.Body != "boom" || first.Header.Get("X-Why") != "test" {
		t.Errorf("first = %+v", first)
	}
	if second := c.post("/", "two"); second.Status != 429 || second.Header.Get("Retry-After") != "" {
		t.Errorf("second = %+v, want 429 without hint", second)
	}
	if third := c.post("/", "three"); third.Status != 201 || third.Header.Get("X-Why") != "ordinary" {
		t.Errorf("third = %+v, want the quota's one call, untouched by the scripted ones", third)
	}
	if fourth := c.post("/", "four"); fourth.Status != 429 || fourth.Header.Get("Retry-After") == "" {
		t.Errorf("fourth = %+v, want 429 with hint", fourth)
	}
	if diff := cmp.Diff([]string{"one", "two", "three", "four"}, seen); diff != "" {
		t.Errorf("bodies seen by the script (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(fakeapi.Stats{Calls: 4, Accepted: 1, Limited: 2, Failed: 1, MaxInFlight: 1}, api.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	api.Queue(fakeapi.Answer{Status: 503}, fakeapi.Answer{Status: 202})
	api.SetScript(nil)
	if diff := cmp.Diff([]int{503, 202, 429}, c.statuses(3)); diff != "" {
		t.Errorf("queued answers (-want +got):\n%s", diff)
	}
}

func TestDroppedAnswerHasTakenEffect(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{})
	api.Queue(fakeapi.Answer{Drop: true})
	// A connection that was never used: the client does not repeat the call by itself.
	if got, err := c.do(t.Context(), http.MethodPost, "/", "", "Idempotency-Key", "k"); err == nil {
		t.Errorf("dropped call was answered with %d", got.Status)
	}
	if got := api.Accepted()["k"]; got != 1 {
		t.Errorf("accepted %d times, want 1", got)
	}
	if r := api.Receipts()[0]; !r.Gone || r.Status != 201 || r.Done.IsZero() {
		t.Errorf("receipt = %+v, want gone and done with 201", r)
	}
}

func TestKeysAreNotedAndDroppedOnlyIfAsked(t *testing.T) {
	t.Parallel()
	for dedupe, want := range map[bool]fakeapi.Stats{
		false: {Calls: 4, Accepted: 4, MaxInFlight: 1},
		true:  {Calls: 4, Accepted: 3, Duplicates: 1, MaxInFlight: 1},
	} {
		t.Run(fmt.Sprint(dedupe), func(t *testing.T) {
			t.Parallel()
			api, c := start(t, fakeapi.Options{Dedupe: dedupe})
			c.statuses(2, "Idempotency-Key", "a")
			c.statuses(2) // without a key there is nothing to compare
			if diff := cmp.Diff(want, api.Stats()); diff != "" {
				t.Errorf("stats (-want +got):\n%s", diff)
			}
			accepted := map[string]int{"a": 2, "": 2}
			if dedupe {
				accepted["a"] = 1
			}
			if diff := cmp.Diff(accepted, api.Accepted()); diff != "" {
				t.Errorf("accepted (-want +got):\n%s", diff)
			}
			if got := api.Receipts()[1].Duplicate; got != dedupe {
				t.Errorf("second receipt is a duplicate: %t, want %t", got, dedupe)
			}
		})
	}
}

func TestLatencyHoldsTheAnswerAndCountsCallsInFlight(t *testing.T) {
	t.Parallel()
	const n = 5
	api, c := start(t, fakeapi.Options{LatencyFunc: func(n, status int) time.Duration {
		if n == 1 || status != 201 {
			return 0
		}
		return time.Hour
	}})
	c.post("/", "")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := c.do(ctx, http.MethodPost, "/", ""); !errors.Is(err, context.Canceled) {
				t.Errorf("held call ended with %v, want cancelled", err)
			}
		})
	}
	wait(t, api, func(s fakeapi.Stats) bool { return s.InFlight == n })
	if got := api.Stats(); got.MaxInFlight != n || got.Accepted != n+1 {
		t.Errorf("stats = %+v, want %d in flight and accepted on arrival", got, n)
	}
	cancel()
	wg.Wait()
	wait(t, api, func(s fakeapi.Stats) bool { return s.InFlight == 0 })
	inFlight := map[int]bool{}
	for _, r := range api.Receipts()[1:] {
		if !r.Gone || r.Done.IsZero() {
			t.Errorf("receipt of a caller that left = %+v", r)
		}
		inFlight[r.InFlight] = true
	}
	if len(inFlight) != n {
		t.Errorf("calls in flight on arrival: %v, want 1 to %d", inFlight, n)
	}
}

func TestLatencyIsAtLeastWhatWasAsked(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{Latency: 10 * time.Millisecond})
	api.Queue(fakeapi.Answer{Delay: 10 * time.Millisecond})
	c.post("/", "")
	api.SetLatency(0)
	c.post("/", "")
	receipts := api.Receipts()
	if took := receipts[0].Done.Sub(receipts[0].At); took < 20*time.Millisecond {
		t.Errorf("first call took %s, want latency and delay", took)
	}
}

func TestOversizedBodyLeavesNoReceipt(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{})
	if got := c.post("/", strings.Repeat("x", 8<<20+1)).Status; got != 400 {
		t.Errorf("status = %d, want 400", got)
	}
	if got := api.Stats().Calls; got != 0 {
		t.Errorf("calls = %d, want 0", got)
	}
}

// TestManyCallersAtOnce checks the counts against each other under load.
func TestManyCallersAtOnce(t *testing.T) {
	t.Parallel()
	const callers, each, quota = 16, 25, 100
	api, c := start(t, fakeapi.Options{Limiter: fakeapi.FixedWindow{Quota: quota, Window: time.Hour}})
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				if _, err := c.do(t.Context(), http.MethodPost, "/", "{}", "Idempotency-Key", fmt.Sprintf("%d-%d", i, j)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := api.Stats()
	if got.Calls != callers*each || got.Accepted != quota || got.Limited != callers*each-quota || got.InFlight != 0 || got.MaxInFlight > callers {
		t.Errorf("stats = %+v", got)
	}
	if n := len(api.Accepted()); n != quota {
		t.Errorf("%d keys accepted, want %d", n, quota)
	}
	last := time.Time{}
	for i, r := range api.Receipts() {
		if r.N != i+1 || r.At.Before(last) {
			t.Fatalf("receipt %d has number %d and time %s after %s", i+1, r.N, r.At, last)
		}
		last = r.At
	}
}
