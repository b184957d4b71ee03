package breakerhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Redis goes while a call is under way: its answer is handed over whole, and counts
// for this instance.
func TestAnswerStandsWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var log bytes.Buffer
	fake, url := api(t, fakeapi.Options{})
	i := join(t, server.Client(t), breaker.Options{Destination: "away", Cooldown: time.Minute},
		breakerhttp.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	i.expect(t, url, 201)
	server.Kill()
	fake.Queue(fakeapi.Answer{Status: 429, Header: http.Header{"Retry-After": {"60"}}, Body: "too many"})
	resp, err := i.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusTooManyRequests || string(body) != "too many" {
		t.Errorf("answer: %d %q, %v", resp.StatusCode, body, err)
	}
	if open := i.refusal(t, url); open.Cause != breaker.CauseHint {
		t.Errorf("refused with %+v", open)
	}
	if v := i.breaker.View(); !v.Local {
		t.Errorf("this instance alone has opened, but the view is %+v", v)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "breaker did not get the outcome of a request") {
		t.Errorf("log:\n%s", got)
	}
}

// A Redis that hangs holds an answer up for a bounded time.
func TestAnswerStandsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	fake, url := api(t, fakeapi.Options{})
	i := join(t, server.Client(t), breaker.Options{Destination: "hangs"})
	fake.Queue(answers(429)...)
	server.Pause()
	defer server.Resume()
	started := time.Now()
	i.expect(t, url, 429)
	if took := time.Since(started); took > breaker.DefaultTimeout+40*time.Second {
		t.Errorf("the answer was held up for %s", took)
	}
}

// Both policies of a start without Redis.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no Redis here") },
	})
	t.Cleanup(func() { _ = rdb.Close() })
	fake, url := api(t, fakeapi.Options{})
	open := join(t, rdb, breaker.Options{Destination: "fails-open"}, breakerhttp.OpenResponse())
	open.expect(t, url, 201)
	closed := join(t, rdb, breaker.Options{Destination: "fails-closed", FailClosed: true}, breakerhttp.OpenResponse())
	if _, err := closed.call(t.Context(), url); !errors.Is(err, breaker.ErrUnavailable) || !errors.Is(err, breakerhttp.ErrNotSent) {
		t.Errorf("call: %v", err)
	}
	if calls := fake.Stats().Calls; calls != 1 {
		t.Errorf("%d calls arrived", calls)
	}
}
