package breaker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// lines keeps what is logged.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(level string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), "level="+level)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func fastRefresh(o Options) Options {
	o.RefreshInterval = 20 * time.Millisecond
	return o
}

func TestRedisAwayWhileClosed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithAOF())
	b := start(t, s.Client(t), fastRefresh(Options{Destination: "api"}))
	old, err := b.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()

	// CLOSED goes on; successes need no Redis.
	permit, err := b.Allow(t.Context())
	if err != nil {
		t.Fatalf("CLOSED is not allowed: %v", err)
	}
	if status, err := permit.Report(t.Context(), Success()); err != nil || status.State != Closed {
		t.Fatalf("report of a success: %+v, %v", status, err)
	}
	// Three failures open this instance for itself.
	for i := 1; i <= 3; i++ {
		permit, err := b.Allow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		status, err := permit.Report(t.Context(), RateLimited(0))
		if !errors.Is(err, ErrUnavailable) {
			t.Fatalf("report %d without Redis: %v, want ErrUnavailable", i, err)
		}
		if want := [...]State{1: Closed, 2: Closed, 3: Open}[i]; status.State != want || status.Failures != i {
			t.Fatalf("after report %d: %+v, want %v", i, status, want)
		}
	}
	var open *OpenError
	if _, err := b.Allow(t.Context()); !errors.As(err, &open) || open.RetryAfter > DefaultCooldown || open.RetryAfter < DefaultCooldown-time.Minute {
		t.Errorf("after three failures: %v, want OPEN for five minutes", err)
	}
	if v := b.View(); !v.Local || v.State != Open {
		t.Errorf("view: %+v, want this instance's own OPEN", v)
	}

	// Redis is back, and learns of the three.
	s.Restart()
	awaitView(t, b, "the fleet's OPEN", func(v View) bool { return v.State == Open && !v.Local && v.Failures == 3 })
	if status, err := old.Report(t.Context(), RateLimited(time.Minute)); err != nil || status.State != Open || status.Wasted != 4 {
		t.Errorf("first report to the Redis that is back: %+v, %v", status, err)
	}
}

func TestHintsAndSuccessesCountLocallyToo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := start(t, s.Client(t), Options{Destination: "api", RefreshInterval: time.Hour, MaxCooldown: time.Hour})
	report(t, b, RateLimited(0)) // Redis knows of one
	s.Kill()
	tell := func(o Outcome) Status {
		t.Helper()
		permit, err := b.Allow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		status, _ := permit.Report(t.Context(), o)
		return status
	}
	if status := tell(RateLimited(0)); status.Failures != 2 {
		t.Errorf("two failures: %+v", status)
	}
	if status := tell(Success()); status.Failures != 0 {
		t.Errorf("a success: %+v", status)
	}
	if status := tell(RateLimited(100 * time.Hour)); status.State != Open || status.Cause != CauseHint || status.Remaining > time.Hour {
		t.Errorf("a hint beyond the longest cooldown: %+v", status)
	}
}

func TestRedisAwayWhileOpen(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithAOF())
	b := start(t, s.Client(t), fastRefresh(Options{Destination: "api", FailureThreshold: 1, Cooldown: 500 * time.Millisecond}))
	report(t, b, RateLimited(0))
	s.Kill()

	if _, err := b.Allow(t.Context()); !errors.Is(err, ErrOpen) {
		t.Fatalf("OPEN without Redis: %v, want ErrOpen", err)
	}
	wait(t.Context(), time.Until(b.View().OpenUntil))
	// No call without a lease.
	if _, err := b.Allow(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("HALF_OPEN without Redis: %v, want ErrUnavailable", err)
	}
	s.Restart()
	awaitProbe(t, b, Success())
	if v := b.View(); v.State != Closed {
		t.Errorf("after the probe's success: %+v", v)
	}
}

func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	open := start(t, s.Client(t), fastRefresh(Options{Destination: "api"}))
	closed := start(t, s.Client(t), fastRefresh(Options{Destination: "api", FailClosed: true}))
	if open.View().Known || closed.View().Known {
		t.Error("the state is said to be known")
	}
	if _, err := open.Allow(t.Context()); err != nil {
		t.Errorf("fail open: %v", err)
	}
	if _, err := closed.Allow(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("fail closed: %v, want ErrUnavailable", err)
	}
	s.Restart()
	for _, b := range []*Breaker{open, closed} {
		awaitView(t, b, "known", func(v View) bool { return v.Known })
		if _, err := b.Allow(t.Context()); err != nil {
			t.Errorf("with Redis: %v", err)
		}
	}
}

func TestOutageIsLoggedAFewTimes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithAOF())
	var logged lines
	b := start(t, s.Client(t), fastRefresh(Options{Destination: "api", Logger: logged.logger()}))
	awaitSubscribers(t, s.Client(t), "api", 1)
	s.Kill()
	for range 10 { // reads that fail, one after the other
		if err := b.readSnapshot(t.Context()); err == nil {
			t.Fatal("a read without Redis succeeded")
		}
	}
	redistest.Eventually(t, "both warnings", func() bool { return logged.count("WARN") >= 2 })
	s.Restart()
	redistest.Eventually(t, "both relieved", func() bool { return logged.count("INFO") >= 2 })
	if n := logged.count("WARN"); n != 2 {
		t.Errorf("%d warnings, want one of the reads and one of the subscription:\n%s", n, &logged)
	}
}

// stubborn is a client that, as go-redis does by default, ignores contexts
// while it waits for an answer.
func stubborn(t *testing.T, s *redistest.Server) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: s.Addr(), ReadTimeout: 30 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// settle waits until a breaker that reads only when asked has made its two first
// reads: that of New, and that of its subscription. Then its connection is idle,
// and Redis knows the scripts: one round trip is all that any of them takes.
func settle(t *testing.T, s *redistest.Server) {
	t.Helper()
	rdb := s.Client(t)
	for _, script := range []*script{acquireScript, doneScript, swapScript, releaseScript} {
		if err := script.Load(t.Context(), rdb).Err(); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Eventually(t, "the first reads", func() bool {
		stats := s.CommandStats(t)
		return stats["subscribe"] >= 1 && stats["evalsha"] >= 2
	})
}

func TestContextsAreKeptAndTheLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	o := Options{Destination: "api", FailureThreshold: 1, Cooldown: 20 * time.Millisecond, ProbeTimeout: time.Hour, RefreshInterval: time.Hour}
	b := start(t, stubborn(t, s), o)
	settle(t, s)
	report(t, b, RateLimited(0))
	wait(t.Context(), time.Until(b.View().OpenUntil))

	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := b.Allow(ctx)
	if took := time.Since(began); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || took > 40*time.Second {
		t.Errorf("Allow with 50ms: %v after %v", err, took)
	}
	s.Resume()
	// Redis grants the lease now, to nobody; it comes back long before its end.
	awaitProbe(t, b, Success())
}

func TestReportWithoutADeadlineIsBounded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := start(t, stubborn(t, s), Options{Destination: "api"})
	settle(t, s)
	permit, err := b.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Pause()
	began := time.Now()
	status, err := permit.Report(context.Background(), RateLimited(time.Minute))
	if took := time.Since(began); !errors.Is(err, ErrUnavailable) || took < DefaultTimeout || took > DefaultTimeout+40*time.Second {
		t.Errorf("Report: %v after %v, want ErrUnavailable after %v", err, took, DefaultTimeout)
	}
	if status.State != Open {
		t.Errorf("status: %+v, want this instance's own OPEN", status)
	}
	s.Resume()
	// The report that was given up on is repeated, and counts once.
	awaitView(t, b, "OPEN in Redis", func(v View) bool { return v.State == Open && !v.Local && v.Failures == 1 })
}

func TestScriptsSurviveAScriptFlush(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	b := start(t, rdb, Options{Destination: "api", RefreshInterval: time.Hour})
	report(t, b, RateLimited(0))
	if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if status := report(t, b, RateLimited(0)); status.Failures != 2 {
		t.Errorf("after SCRIPT FLUSH: %+v", status)
	}
}

// A Redis that can be read but not written, as after a failover, does not close
// what it could not be told of.
func TestReadOnlyRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	b := start(t, rdb, fastRefresh(Options{Destination: "api", FailureThreshold: 1}))
	permit, err := b.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := rdb.SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if status, err := permit.Report(t.Context(), RateLimited(0)); !errors.Is(err, ErrUnavailable) || status.State != Open {
		t.Fatalf("report: %+v, %v", status, err)
	}
	reads := func() int64 { return s.CommandStats(t)["hgetall"] + s.CommandStats(t)["hmget"] }
	for from := reads(); reads() < from+3; {
		if v := b.View(); v.State != Open || !v.Local {
			t.Fatalf("after a read the view is %+v", v)
		}
	}
	// It can be written again; the report counts, and its truth holds.
	if err := rdb.SlaveOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if status, err := permit.Report(t.Context(), RateLimited(0)); err != nil || status.State != Open || b.View().Local {
		t.Errorf("report when it can be written: %+v, %v, local %v", status, err, b.View().Local)
	}
}

// Not parallel: it looks at all goroutines.
func TestCloseLeavesNothingBehind(t *testing.T) {
	s := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, DialTimeout: time.Second, ReadTimeout: time.Second, MaxRetries: -1})
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		prepare func()
	}{
		{"idle", func() {}},
		{"paused Redis", s.Pause},
		{"killed Redis", s.Kill},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			b, err := New(t.Context(), rdb, fastRefresh(Options{Destination: "api", FailureThreshold: 1}))
			if err != nil {
				t.Fatal(err)
			}
			awaitSubscribers(t, rdb, "api", 1)
			permit, err := b.Allow(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			changed := b.Changed()
			c.prepare()
			wait(t.Context(), 3*b.options.RefreshInterval) // let a read get stuck, which gives no sign
			began := time.Now()
			for range 2 { // once more does no harm
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took > 40*time.Second {
				t.Errorf("Close took %v", took)
			}
			select {
			case <-changed:
			default:
				t.Error("those who wait for a change were not woken")
			}
			if _, err := b.Allow(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("Allow after Close: %v, want ErrClosed", err)
			}
			if c.name == "idle" { // a call that ends after Close still counts
				status, err := permit.Report(t.Context(), RateLimited(0))
				if err != nil || status.State != Open {
					t.Errorf("Report after Close: %+v, %v", status, err)
				}
				for range 2 { // the second one ends the slow start
					if _, err := DefaultNamespace.Reset(t.Context(), rdb, "api", ""); err != nil {
						t.Error(err)
					}
				}
			}
			if c.name == "paused Redis" {
				s.Resume()
			}
			if err := goleak.Find(before); err != nil {
				t.Error(err)
			}
		})
	}
	_ = rdb.Close()
}
