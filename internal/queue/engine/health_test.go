package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// serverError is what Redis answers.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

var _ redis.Error = serverError("")

// A Redis that did not answer is back with any answer; one that refused something,
// when it does that again.
func TestHealth(t *testing.T) {
	t.Parallel()
	const gone, refuses, back = "redis does not answer", "redis refuses what a worker needs", "redis answers again"
	const noSocketLeft = "no file descriptor or local port left"
	for _, tc := range []struct {
		err      error
		says     string
		answered bool // whether any answer will do
		wrote    bool // whether any write will
	}{
		{errors.New("dial tcp: connection refused"), gone, true, true},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}, noSocketLeft, true, true},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.ENFILE)}, noSocketLeft, true, true},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}, noSocketLeft, true, true},
		{serverError("CLUSTERDOWN The cluster is down"), gone, true, true},
		{serverError("LOADING Redis is loading the dataset in memory"), gone, true, true},
		{serverError("READONLY You can't write against a read only replica."), gone, false, true},
		{serverError("MASTERDOWN Link with MASTER is down"), gone, true, true},
		{serverError("TRYAGAIN Multiple keys request during rehashing of slot"), gone, true, true},
		{serverError("OOM command not allowed when used memory > 'maxmemory'."), refuses, false, true},
		{serverError("NOREPLICAS Not enough good replicas to write."), refuses, false, true},
		{serverError("MISCONF Redis is configured to save RDB snapshots"), refuses, false, true},
		{serverError("NOPERM this user has no permissions to run the 'evalsha' command"), refuses, false, false},
		{serverError("WRONGPASS invalid username-password pair or user is disabled."), "set the new ones in REDIS_URL and restart this worker", false, false},
	} {
		var log bytes.Buffer
		h := health{log: slog.New(slog.NewTextHandler(&log, nil))}
		h.answered(time.Now())
		h.failed(tc.err)
		h.failed(tc.err)
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, tc.says) {
			t.Errorf("%v: logged %q", tc.err, got)
		}
		h.answered(time.Now())
		if _, err := h.failure(); (err == nil) != tc.answered {
			t.Errorf("%v: in trouble after an answer: %v", tc.err, err)
		}
		h.wrote(time.Now())
		if _, err := h.failure(); (err == nil) != tc.wrote {
			t.Errorf("%v: in trouble after a write: %v", tc.err, err)
		}
		h.worked(time.Now())
		h.worked(time.Now())
		if _, err := h.failure(); err != nil {
			t.Errorf("%v: in trouble after it worked: %v", tc.err, err)
		}
		if got := log.String(); strings.Count(got, back) != 1 {
			t.Errorf("%v: logged %q", tc.err, got)
		}
	}
}

// A pooled connection that was cut is no outage if the next call succeeds within a second, however
// many of them are cut. A Redis that does not answer is one after a second, or with the first dial
// that fails.
func TestHealthOfBrokenConnections(t *testing.T) {
	t.Parallel()
	const gone = "level=ERROR msg=\"redis does not answer"
	timeout := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for name, tc := range map[string]struct {
		play    func(h *health)
		settled time.Duration
		want    int // lines
	}{
		"closed":                          {play: func(h *health) { h.failed(io.EOF); <-time.After(900 * time.Millisecond); h.worked(time.Now()) }},
		"reset":                           {play: func(h *health) { h.failed(os.NewSyscallError("read", syscall.ECONNRESET)); h.worked(time.Now()) }},
		"broken pipe":                     {play: func(h *health) { h.failed(os.NewSyscallError("write", syscall.EPIPE)); h.answered(time.Now()) }},
		"no answer":                       {play: func(h *health) { h.failed(timeout); h.wrote(time.Now()) }},
		"no answer in the context's time": {play: func(h *health) { h.failed(context.DeadlineExceeded); h.ran(time.Now()) }},
		"a whole pool": {play: func(h *health) {
			for range 9 {
				h.failed(io.EOF)
				<-time.After(100 * time.Millisecond)
			}
			h.worked(time.Now())
		}},
		"again and again": {play: func(h *health) {
			for range 3 {
				h.failed(io.EOF)
				h.worked(time.Now())
				<-time.After(time.Second)
			}
		}},
		"one node of a Cluster": {settled: settledOnCluster, play: func(h *health) {
			h.failed(io.EOF)
			h.worked(time.Now())
			<-time.After(3 * time.Second)
			h.worked(time.Now())
		}},
		"a reply from before": {want: 1, play: func(h *health) {
			began := time.Now()
			<-time.After(time.Millisecond)
			h.failed(refused)
			for _, reply := range []func(time.Time){h.worked, h.answered, h.ran, h.wrote} {
				reply(began)
			}
		}},
		"our own end":      {play: func(h *health) { h.failed(fmt.Errorf("fetch: %w", context.Canceled)) }},
		"the worker stops": {play: func(h *health) { h.failed(io.EOF); h.stop(); h.failed(timeout) }},

		"no call succeeds":     {want: 1, play: func(h *health) { h.failed(io.EOF) }},
		"no call gets through": {want: 1, play: func(h *health) { h.failed(io.EOF); h.failed(refused) }},
		"for a second":         {want: 2, play: func(h *health) { h.failed(io.EOF); <-time.After(1100 * time.Millisecond); h.worked(time.Now()) }},
		"nor later":            {want: 1, play: func(h *health) { h.failed(io.EOF); <-time.After(5 * time.Second); h.failed(timeout) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log lockedBuffer
			h := health{log: slog.New(slog.NewTextHandler(&log, nil)), settled: tc.settled}
			<-time.After(time.Hour)
			tc.play(&h)
			<-time.After(10 * time.Second)
			if got := log.String(); strings.Count(got, "\n") != tc.want || tc.want > 0 && !strings.Contains(got, gone) {
				t.Errorf("%s: logged %q, want %d lines", name, got, tc.want)
			}
		})
	}
}

// lockedBuffer is written by timers too.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A slot that moves within a Cluster is no outage, and is logged once.
func TestHealthWhileASlotMoves(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := health{log: slog.New(slog.NewTextHandler(&log, nil)), settled: settledOnCluster}
	for _, err := range []error{
		serverError("TRYAGAIN Multiple keys request during rehashing of slot"), serverError("ASK 149 127.0.0.1:7001"), serverError("MOVED 149 127.0.0.1:7001"),
	} {
		h.failed(err)
	}
	if _, err := h.failure(); err != nil {
		t.Errorf("in trouble: %v", err)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO msg=\"the slot of a queue moves") {
		t.Errorf("logged %q", got)
	}
}

// Asynq's heartbeat shows what a Redis does not take, and when it takes it again,
// also where there is nothing to fetch. One that is full still gives jobs away.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err     error
		trouble bool
	}{
		{serverError("NOREPLICAS Not enough good replicas to write."), true},
		{serverError("MISCONF Redis is configured to save RDB snapshots"), true},
		{serverError("READONLY You can't write against a read only replica."), true},
		{serverError("OOM command not allowed when used memory > 'maxmemory'."), false},
		{serverError("NOPERM this user has no permissions to run the 'evalsha' command"), false},
		{errors.New("dial tcp: connection refused"), false}, // whoever fetches tells
	} {
		h := health{log: slog.New(slog.DiscardHandler)}
		h.heartbeat(time.Now(), tc.err)
		if _, err := h.failure(); (err != nil) != tc.trouble {
			t.Errorf("%v: in trouble: %v", tc.err, err)
		}
		h.heartbeat(time.Now(), nil)
		if _, err := h.failure(); err != nil {
			t.Errorf("%v: in trouble after a heartbeat: %v", tc.err, err)
		}
	}
}

// While some of the work fails and some succeeds, Redis is not back.
func TestHealthOfACluster(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := health{log: slog.New(slog.NewTextHandler(&log, nil)), settled: time.Minute}
	for range 3 {
		h.failed(errors.New("dial tcp: connection refused"))
		h.worked(time.Now())
		h.answered(time.Now())
	}
	if got := log.String(); strings.Count(got, "\n") != 1 {
		t.Errorf("logged %q, want one line", got)
	}
	h.failedAt = h.failedAt.Add(-time.Minute)
	h.worked(time.Now())
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "redis answers again") {
		t.Errorf("a minute after the last failure: logged %q", got)
	}
}

// Errors that follow soon after the end of an outage belong to it, unless they last.
func TestFlappingIsOneOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer // written by this goroutine alone
		h := health{log: slog.New(slog.NewTextHandler(&log, nil))}
		want := func(lines ...string) {
			t.Helper()
			got := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(got) != len(lines) {
				t.Fatalf("logged %q, want %q", got, lines)
			}
			for i, line := range lines {
				if !strings.Contains(got[i], line) {
					t.Errorf("line %d is %q, want %q", i+1, got[i], line)
				}
			}
		}
		const down, up = "does not answer", "answers again"
		<-time.After(time.Hour) // no outage before
		h.failed(errGone)
		h.worked(time.Now())
		want(down, up)
		for range 3 {
			h.failed(errGone)
			h.worked(time.Now())
		}
		want(down, up)
		h.failed(errGone)
		<-time.After(2 * flapFor)
		h.failed(errGone)
		want(down, up, down)
		h.worked(time.Now())
		want(down, up, down, up)
		<-time.After(2 * flapFor)
		h.failed(errGone)
		want(down, up, down, up, down)
	})
}
