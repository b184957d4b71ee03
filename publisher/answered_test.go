package publisher_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// httpTo serves the destination of b from an API.
func httpTo(t *testing.T, api *fakeapi.API) *publisher.HTTP {
	t.Helper()
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	h, err := publisher.NewHTTP(publisher.HTTPOptions{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// transitions is a breaker's history without times.
func (b *fixture) transitions() string {
	var parts []string
	for _, e := range b.breakerHistory() {
		parts = append(parts, fmt.Sprintf("%s→%s %s", e.From, e.To, e.Cause))
	}
	return strings.Join(parts, "; ")
}

// After one 429 a backlog that begins with a hundred jobs which the API does not
// accept is through after one probe: a 422 was let in, so the limit is gone.
func TestBacklogOfBadJobsIsThroughAfterOneProbe(t *testing.T) {
	t.Parallel()
	const bad, good = 100, 20
	b := newFixture(t)
	api := fakeapi.New(fakeapi.Options{Script: func(n int, _ *http.Request) *fakeapi.Answer {
		switch {
		case n == 1:
			return &fakeapi.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}}}
		case n <= 1+bad:
			return &fakeapi.Answer{Status: http.StatusUnprocessableEntity}
		}
		return nil
	}})
	b.enqueueMany(bad + good)
	b.run(b.options(), httpTo(t, api).Publish, publisher.Concurrency(4),
		rules(time.Hour))
	results := map[string]int{}
	for results[publisher.Completed]+results[publisher.FailedFinal] < bad+good {
		results[b.event().Result]++
	}
	if results[publisher.FailedFinal] != bad || results[publisher.Completed] != good {
		t.Errorf("jobs ended: %v; want %d completed, %d failed", results, good, bad)
	}
	// A call more for each that was in flight when the limit was reached.
	if n := len(api.Receipts()); n != 1+bad+good {
		t.Errorf("%d calls, want %d", n, 1+bad+good)
	}
	if got, want := b.transitions(), "CLOSED→OPEN hint; OPEN→HALF_OPEN cooldown; HALF_OPEN→CLOSED success"; got != want {
		t.Errorf("the breaker went %s, want %s", got, want)
	}
	if s := b.breaker(); s.SlowStart != 0 {
		t.Errorf("after %d answers the slow start is at %d", bad+good, s.SlowStart)
	}
}

// What the answer to a probe says of the limit, for HTTP and for publishers in Go.
func TestWhatTheAnswerToAProbeProves(t *testing.T) {
	t.Parallel()
	type publish = func(context.Context, *jobs.Job) error
	status := func(code int) func(*testing.T) publish {
		return func(t *testing.T) publish { return httpTo(t, fakeapi.New(fakeapi.Options{Status: code})).Publish }
	}
	does := func(f publish) func(*testing.T) publish { return func(*testing.T) publish { return f } }
	returns := func(err error) func(*testing.T) publish {
		return does(func(context.Context, *jobs.Job) error { return err })
	}
	refused := &url.Error{Op: "Post", URL: "http://x", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	boom := errors.New("boom")
	for _, tc := range []struct {
		name    string
		publish func(*testing.T) publish
		closes  bool
		timeout time.Duration // default 30 s
	}{
		{"201", status(http.StatusCreated), true, 0},
		{"302", status(http.StatusFound), true, 0},
		{"401", status(http.StatusUnauthorized), true, 0},
		{"403", status(http.StatusForbidden), true, 0},
		{"422", status(http.StatusUnprocessableEntity), true, 0},
		{"500", status(http.StatusInternalServerError), false, 0},
		{"503", status(http.StatusServiceUnavailable), false, 0},
		{"reschedule", returns(jobs.Reschedule(time.Hour)), true, 0},
		{"fail", returns(jobs.Fail(boom)), true, 0},
		{"discard", returns(jobs.Discard(boom)), true, 0},
		{"fail, no connection", returns(jobs.Fail(fmt.Errorf("post: %w", refused))), false, 0},
		{"discard, timeout", returns(jobs.Discard(fmt.Errorf("post: %w", context.DeadlineExceeded))), false, 0},
		{"another error", returns(boom), false, 0},
		{"an error with a 409", does(func(_ context.Context, j *jobs.Job) error {
			j.Response = &jobs.Response{Status: http.StatusConflict}
			return boom
		}), true, 0},
		{"discard with a 502", does(func(_ context.Context, j *jobs.Job) error {
			j.Response = &jobs.Response{Status: http.StatusBadGateway}
			return jobs.Discard(boom)
		}), false, 0},
		{"timeout", does(func(ctx context.Context, _ *jobs.Job) error {
			<-ctx.Done()
			return ctx.Err()
		}), false, time.Second},
		{"panic", does(func(context.Context, *jobs.Job) error { panic("boom") }), false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			if _, err := breaker.Trip(t.Context(), b.rdb, b.dest, breaker.TripOptions{For: time.Millisecond}); err != nil {
				t.Fatal(err)
			}
			b.enqueue()
			b.run(b.options(), tc.publish(t), publisher.Concurrency(1), publisher.Timeout(cmp.Or(tc.timeout, 30*time.Second)), rules(time.Hour))
			if e := b.event(); !e.Called {
				t.Fatalf("event %+v", e)
			}
			want := breaker.HalfOpen
			if tc.closes {
				want = breaker.Closed
			}
			if s := b.breaker(); s.State != want {
				t.Errorf("after the probe the breaker is %s, want %s", s.State, want)
			}
		})
	}
}
