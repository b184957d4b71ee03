package breaker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestDo(t *testing.T) {
	t.Parallel()
	refused := &RateLimitedError{RetryAfter: minute, Err: io.EOF}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"success", nil, "CLOSED"},
		{"rate limited", &RateLimitedError{}, "CLOSED failures=2"},
		{"with a hint", refused, "OPEN 1m0s failures=2 hint wasted=2"},
		{"wrapped", fmt.Errorf("call: %w", refused), "OPEN 1m0s failures=2 hint wasted=2"},
		{"failure", io.ErrUnexpectedEOF, "CLOSED failures=1"},
		{"cancelled", fmt.Errorf("call: %w", context.Canceled), "CLOSED failures=1"},
		{"too slow", context.DeadlineExceeded, "CLOSED failures=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				h := newHarness(t, rdb, Options{})
				call(RateLimited(0))(h) // something that a success resets
				calls := 0
				err := h.b.Do(t.Context(), func(ctx context.Context) error {
					calls++
					if _, bounded := ctx.Deadline(); bounded {
						t.Error("an ordinary call has a deadline")
					}
					return c.err
				})
				if calls != 1 || !errors.Is(err, c.err) {
					t.Errorf("%d calls, %v", calls, err)
				}
				if got := get(h); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestDoCallsNothingWhileOpen(t *testing.T) {
	t.Parallel()
	h := newHarness(t, redistest.Embedded(t), Options{ProbeTimeout: 7 * second})
	call(RateLimited(minute))(h)
	err := h.b.Do(t.Context(), func(context.Context) error {
		t.Error("called")
		return nil
	})
	var open *OpenError
	if !errors.As(err, &open) || open.RetryAfter != minute {
		t.Errorf("Do while OPEN: %v", err)
	}
	// A probe has until the end of its lease.
	h.clock.advance(minute, minute)
	err = h.b.Key("k").Do(t.Context(), func(ctx context.Context) error {
		end, bounded := ctx.Deadline()
		if left := end.Sub(h.clock.now()); !bounded || left <= 0 || left > 7*second {
			t.Errorf("the probe has %v", left)
		}
		return nil
	})
	if err != nil || get(h) != "CLOSED" {
		t.Errorf("the probe: %v; %s", err, get(h))
	}
}

func TestDoReportsAPanicAndACancelledCall(t *testing.T) {
	t.Parallel()
	h := newHarness(t, redistest.Embedded(t), Options{ProbeTimeout: 7 * second})
	call(RateLimited(minute))(h)
	h.clock.advance(minute, minute)
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = h.b.Do(t.Context(), func(context.Context) error { panic("boom") })
	}()
	if got := ask("next")(h); got != "HALF_OPEN for 1s" { // a failed probe
		t.Errorf("after a panic: %s", got)
	}
	h.clock.advance(second, second)
	ctx, cancel := context.WithCancel(t.Context())
	err := h.b.Do(ctx, func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := ask("next")(h); got != "probe" { // it told nothing: the next may start at once
		t.Errorf("after a cancelled call: %s", got)
	}
}

func TestDoJudgesAsTold(t *testing.T) {
	t.Parallel()
	teapot := errors.New("418")
	h := newHarness(t, redistest.Embedded(t), Options{Judge: func(err error) Outcome {
		if errors.Is(err, teapot) {
			return RateLimited(time.Minute).WithScope(ScopeGlobal)
		}
		return Judge(err)
	}})
	if err := h.b.Key("k").Do(t.Context(), func(context.Context) error { return teapot }); !errors.Is(err, teapot) {
		t.Error(err)
	}
	if got := get(h); got != "OPEN 1m0s failures=1 hint wasted=1" {
		t.Error(got)
	}
}

func TestRateLimitedErrorSaysWhatItKnows(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]*RateLimitedError{
		"rate limited":                        {},
		"rate limited: EOF":                   {Err: io.EOF},
		"rate limited, retry after 1m0s":      {RetryAfter: minute},
		"rate limited, retry after 1.5s: EOF": {RetryAfter: 1500 * time.Millisecond, Err: io.EOF},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
