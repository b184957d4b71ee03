package breaker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestClientThatCannotBeUsedIsAnError(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, rdb := range redistest.UnusableClients(t) {
		for what, err := range map[string]error{
			"New":          second1(New(ctx, rdb, Options{Destination: "api"})),
			"Get":          second1(DefaultNamespace.Get(ctx, rdb, "api")),
			"Read":         second1(DefaultNamespace.Read(ctx, rdb, Query{}, "api")),
			"Read nothing": second1(DefaultNamespace.Read(ctx, rdb, Query{})),
			"Trip":         second1(DefaultNamespace.Trip(ctx, rdb, "api", TripOptions{})),
			"ForceClosed":  second1(DefaultNamespace.ForceClosed(ctx, rdb, "api", TripOptions{})),
			"Reset":        second1(DefaultNamespace.Reset(ctx, rdb, "api", "")),
			"ForgetLimits": second1(DefaultNamespace.ForgetLimits(ctx, rdb, "api", "")),
		} {
			if !errors.Is(err, ErrClient) || !strings.HasPrefix(err.Error(), "breaker: ") {
				t.Errorf("%s with a client that is %s: %v", what, name, err)
			}
		}
		if _, errs := DefaultNamespace.LastTransitions(ctx, rdb, []string{"api"}); !errors.Is(errs[0], ErrClient) {
			t.Errorf("LastTransitions with a client that is %s: %v", name, errs)
		}
	}
	rdb := redistest.Database(t).Client(t)
	b, err := New(ctx, struct{ redis.UniversalClient }{rdb}, Options{Destination: redistest.Name(t, "wrapped")})
	if err != nil {
		t.Fatalf("a wrapper is refused: %v", err)
	}
	closeAtEnd(t, b)
}

// A negative wait is none, and the caller's own cancel is not an outage of Redis.
func TestNegativeWaitAndCancelledCaller(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	b, err := New(t.Context(), rdb, Options{Destination: redistest.Name(t, "cap"), FleetConcurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	if _, err := b.Allow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Wait(t.Context(), -1); !errors.Is(err, ErrOpen) {
		t.Errorf("a negative wait: %v, want a refusal at once", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Allow(cancelled); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
		t.Errorf("a cancelled caller: %v, want its own error alone", err)
	}
}

func second1[T any](_ T, err error) error { return err }

// logTo returns a logger and what it has written.
func logTo(t *testing.T) (*slog.Logger, func() string) {
	t.Helper()
	reader, writer := io.Pipe()
	lines, done := &atomic.Pointer[string]{}, make(chan struct{})
	go func() {
		defer close(done)
		var all bytes.Buffer
		part := make([]byte, 64<<10)
		for {
			n, err := reader.Read(part)
			all.Write(part[:n])
			text := all.String()
			lines.Store(&text)
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = writer.Close()
		<-done
	})
	return slog.New(slog.NewTextHandler(writer, nil)), func() string {
		if text := lines.Load(); text != nil {
			return *text
		}
		return ""
	}
}

func TestPanicInOnEventIsLogged(t *testing.T) {
	t.Parallel()
	log, logged := logTo(t)
	seen := make(chan State, 10)
	b := start(t, redistest.Embedded(t), Options{Destination: "api", Logger: log, OnEvent: func(e Event) {
		seen <- e.To
		panic("boom in OnEvent")
	}})
	for _, want := range []State{Open, Closed} { // the second comes in spite of the first
		var err error
		if want == Open {
			_, err = DefaultNamespace.Trip(t.Context(), b.rdb, "api", TripOptions{})
		} else {
			_, err = DefaultNamespace.Reset(t.Context(), b.rdb, "api", "ann")
		}
		if err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("event %s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event %s", want)
		}
	}
	redistest.Eventually(t, "the log has the panic and its stack", func() bool {
		return strings.Contains(logged(), "boom in OnEvent") && strings.Contains(logged(), "misuse_test.go")
	})
}

func TestErrorsThatCannotBeJudged(t *testing.T) {
	t.Parallel()
	var limited *RateLimitedError
	var broken *url.Error // its methods panic on nil
	for _, c := range []struct {
		name  string
		err   error
		judge func(error) Outcome
		want  string
		logs  string
	}{
		{"typed nil, rate limited", limited, nil, "CLOSED failures=2", ""},
		{"typed nil", broken, nil, "CLOSED failures=1", "nil pointer dereference"},
		{"wrapped typed nil", fmt.Errorf("call: %w", limited), nil, "CLOSED failures=2", ""},
		{"judge panics", io.EOF, func(error) Outcome { panic("boom in Judge") }, "CLOSED failures=1", "boom in Judge"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			log, logged := logTo(t)
			h := newHarness(t, redistest.Embedded(t), Options{Judge: c.judge, Logger: log})
			call(RateLimited(0))(h)
			err := h.b.Do(t.Context(), func(context.Context) error { return c.err })
			if err != c.err { //nolint:errorlint // the same, and errors.Is would call its methods
				t.Error("Do returned another error")
			}
			if got := get(h); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if c.logs != "" {
				redistest.Eventually(t, "the log has the panic", func() bool { return strings.Contains(logged(), c.logs) })
			}
		})
	}
	if text := limited.Error(); text != "rate limited" || limited.Unwrap() != nil {
		t.Errorf("a nil error says %q", text)
	}
}

type countingClient struct {
	redis.UniversalClient
	subscriptions atomic.Int64
}

func (c *countingClient) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	c.subscriptions.Add(1)
	return c.UniversalClient.Subscribe(ctx, channels...)
}

// A client that is closed during use costs errors of what needs Redis, and no CPU.
func TestClosedClient(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	rdb := &countingClient{UniversalClient: redistest.ClientOf(t, s.Addr())}
	b := start(t, rdb, Options{Destination: redistest.Name(t, "closed"), RefreshInterval: 20 * time.Millisecond, FailureThreshold: 1})
	awaitSubscribers(t, s.Client(t), b.Name(), 1)
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := b.Allow(t.Context())
	if err != nil {
		t.Fatalf("a CLOSED breaker refuses: %v", err)
	}
	if _, err := p.Report(t.Context(), RateLimited(0)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("report: %v", err)
	}
	if _, err := b.Allow(t.Context()); !errors.Is(err, ErrOpen) {
		t.Errorf("after a 429 that this instance counted alone: %v", err)
	}
	before := rdb.subscriptions.Load()
	<-time.After(500 * time.Millisecond) // what is asserted is that little happens meanwhile
	if n := rdb.subscriptions.Load() - before; n > 20 {
		t.Errorf("%d subscriptions in half a second", n)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.Close()
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("Close does not return")
	}
}

func TestChangedIsClosedAfterClose(t *testing.T) {
	t.Parallel()
	b := start(t, redistest.Embedded(t), Options{Destination: "api"})
	p, err := b.Key("a").Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		for _, of := range []*Breaker{b, b.Key("a")} {
			select {
			case <-of.Changed():
			default:
				t.Errorf("%s: Changed of %s is not closed", when, of.Name())
			}
		}
	}
	check("after Close")
	if _, err := p.Report(t.Context(), RateLimited(time.Hour)); err != nil { // it can still be reported
		t.Fatal(err)
	}
	check("after a late report")
	_ = b.Close()
	check("after another Close")
}

func TestInstancesOfOneProcessHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	names, named := map[string]bool{}, redistest.Name(t, "named")
	for range 3 {
		b := start(t, rdb, Options{Destination: named})
		names[b.options.Instance] = true
	}
	if len(names) != 3 || !names[ProcessName()] || !names[ProcessName()+"-2"] || !names[ProcessName()+"-3"] {
		t.Errorf("names %v", names)
	}
	if other := start(t, rdb, Options{Destination: redistest.Name(t, "other")}); other.options.Instance != ProcessName() {
		t.Errorf("the first of another destination is %s", other.options.Instance)
	}
}
