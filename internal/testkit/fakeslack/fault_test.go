package fakeslack_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

func tryPost(ctx context.Context, c *slack.Client) error {
	_, _, err := c.PostMessageContext(ctx, channel, text("x"))
	return err
}

// status is the HTTP status that slack-go makes an error of; 0 without one.
func status(err error) int {
	if refused, ok := errors.AsType[slack.StatusCodeError](err); ok {
		return refused.Code
	}
	return 0
}

func TestFaultsAsTheClientSeesThem(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		fault fakehttp.Fault
		seen  func(error) bool
		posts int // what is there after the call
	}{
		{"429 with Retry-After", fakehttp.RateLimited(29500 * time.Millisecond), func(err error) bool {
			limited, ok := errors.AsType[*slack.RateLimitedError](err)
			return ok && limited.RetryAfter == 30*time.Second
		}, 0},
		{"429 without", fakehttp.RateLimitedBare(), func(err error) bool { return status(err) == 429 }, 0},
		{"200 ratelimited", fakehttp.WithError("ratelimited"), func(err error) bool { return code(err) == "ratelimited" }, 0},
		{"429 with a Retry-After that is no number", fakehttp.Fault{Kind: fakehttp.Status, Status: 429, RetryAfter: "soon"}, func(err error) bool {
			return errors.Is(err, strconv.ErrSyntax)
		}, 0},
		{"any error", fakehttp.WithError("account_inactive"), func(err error) bool { return code(err) == "account_inactive" }, 0},
		{"503 before acting", fakehttp.WithStatus(503), func(err error) bool { return status(err) == 503 }, 0},
		{"500 before acting", fakehttp.WithStatus(500), func(err error) bool { return status(err) == 500 }, 0},
		{"503 after acting", fakehttp.WithStatus(503).AfterActing(), func(err error) bool { return status(err) == 503 }, 1},
		{"ratelimited after acting", fakehttp.WithError("fatal_error").AfterActing(), func(err error) bool { return code(err) == "fatal_error" }, 1},
		{"closed connection", fakehttp.Dropping(), func(err error) bool { return errors.Is(err, io.EOF) }, 0},
		{"closed connection after acting", fakehttp.Dropping().AfterActing(), func(err error) bool { return errors.Is(err, io.EOF) }, 1},
		{"HTML", fakehttp.HTML(200), func(err error) bool { _, ok := errors.AsType[*json.SyntaxError](err); return ok }, 0},
		{"HTML with 502", fakehttp.HTML(502), func(err error) bool { return status(err) == 502 }, 0},
		{"slow", fakehttp.Slowly(20 * time.Millisecond), func(err error) bool { return err == nil }, 1},
		{"another method", fakehttp.WithStatus(503).On("chat.update"), func(err error) bool { return err == nil }, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, c := start(t, fakeslack.Options{})
			lift := s.SetFault(row.fault)
			if err := tryPost(t.Context(), c); !row.seen(err) {
				t.Errorf("error = %v (%T)", err, err)
			}
			if got := len(s.Messages()); got != row.posts {
				t.Errorf("%d posts, want %d", got, row.posts)
			}
			lift()
			if err := tryPost(t.Context(), c); err != nil {
				t.Errorf("after the fault was lifted: %v", err)
			}
			if got := s.Requests()[1]; got.Fault != "" || got.Status != 200 || s.Calls("chat.postMessage") != 2 {
				t.Errorf("requests = %+v", s.Requests())
			}
		})
	}
}

func TestHangingCallsEndWithTheCallerOrTheServer(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{})
	s.SetFault(fakehttp.Hanging().AfterActing())
	ctx, leave := context.WithCancel(t.Context())
	failed := make(chan error)
	hang := func(ctx context.Context) { failed <- tryPost(ctx, c) }

	go hang(ctx)
	if err := s.Await(t.Context(), func(m []fakeslack.Message) bool { return len(m) == 1 }); err != nil {
		t.Fatal(err)
	}
	leave()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("error of the caller that left: %v", err)
	}
	ended := func(n int) func([]fakehttp.Request) bool {
		return func(r []fakehttp.Request) bool {
			return len(r) == n && !r[n-1].Done.IsZero() && r[n-1].Status == 0 && r[n-1].Fault == fakehttp.Hang
		}
	}
	if err := s.AwaitRequests(t.Context(), ended(1)); err != nil {
		t.Errorf("the call of a caller that left goes on: %+v", s.Requests())
	}

	go hang(t.Context())
	if err := s.Await(t.Context(), func(m []fakeslack.Message) bool { return len(m) == 2 }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil || !ended(2)(s.Requests()) {
		t.Errorf("error of a call when the server closed: %v; requests %+v", err, s.Requests())
	}
}

func TestFaultEndsByCountAndByTime(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s, c := start(t, fakeslack.Options{Now: clk.Now})
	s.SetFault(fakehttp.WithStatus(500).Times(2))
	s.SetFault(fakehttp.RateLimitedFor(30 * time.Second))
	wait := func(err error) time.Duration {
		if limited, ok := errors.AsType[*slack.RateLimitedError](err); ok {
			return limited.RetryAfter
		}
		return 0
	}
	for i := range 2 {
		if err := tryPost(t.Context(), c); status(err) != 500 {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	for _, row := range []struct{ after, left time.Duration }{{0, 30 * time.Second}, {10500 * time.Millisecond, 20 * time.Second}, {19 * time.Second, time.Second}} {
		clk.Advance(row.after)
		if err := tryPost(t.Context(), c); wait(err) != row.left {
			t.Errorf("error = %v, want a wait of %s", err, row.left)
		}
	}
	clk.Advance(500 * time.Millisecond)
	if err := tryPost(t.Context(), c); err != nil {
		t.Errorf("after its time: %v", err)
	}
	s.SetFault(fakehttp.WithStatus(500))
	s.LiftFaults()
	if err := tryPost(t.Context(), c); err != nil {
		t.Errorf("after all were lifted: %v", err)
	}
}

func TestDownRefusesConnectionsUntilUp(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{})
	base := s.URL()
	if err := tryPost(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := s.Down(); err != nil {
		t.Fatal(err)
	}
	// One whose connections do not still end meanwhile.
	fresh := client(t, s, fakeslack.DefaultToken)
	if err := tryPost(t.Context(), fresh); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error while down: %v", err)
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	if err := tryPost(t.Context(), fresh); err != nil || s.URL() != base {
		t.Errorf("after Up: %v, %s", err, s.URL())
	}
	if got := len(s.Messages()); got != 2 {
		t.Errorf("%d messages, want both posts", got)
	}
}
