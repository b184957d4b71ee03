package publisher_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// httpTo serves the destination of b from an API.
func httpTo(t *testing.T, api *fakeapi.API) *httpdest.Destination {
	t.Helper()
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	h, err := httpdest.New(httpdest.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
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
			if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, b.dest, breaker.TripOptions{For: time.Millisecond}); err != nil {
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
