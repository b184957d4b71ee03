package publisher_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// closedPort is the URL of a port that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// The local port of a connection: no other process can listen on it while that is open.
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return "http://" + c.LocalAddr().String()
}

// One worker that cannot reach the API, beside one that can: no job fails, each is
// published once, and the one that cannot makes few tries.
func TestWorkerThatCannotReachTheAPIFailsNoJob(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	const n = 600
	var mu sync.Mutex
	published := map[string]int{}
	a := newAPI(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		published[r.Header.Get("Idempotency-Key")]++
		mu.Unlock()
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.Context().Done():
		}
	})
	log := &loggingtest.Buffer{}
	sick := b.options()
	sick.Logger = slog.New(slog.NewTextHandler(log, nil))
	var tries atomic.Int64
	sick.Observe(publisher.Observer{OnCall: func(c publisher.Call) {
		tries.Add(1)
		if c.Outcome != publisher.OutcomeUnreachable {
			t.Errorf("a call of the worker that cannot reach the API: %s", c.Outcome)
		}
	}})
	healthy, unreachable := newHTTP(t, publisher.HTTPOptions{URL: a.URL}), newHTTP(t, publisher.HTTPOptions{URL: closedPort(t)})
	b.enqueueMany(n)
	b.run(sick, unreachable.Publish, publisher.Concurrency(10))
	redistest.Eventually(t, "the worker notices", func() bool { return len(log.Lines("calls do not leave")) == 1 })
	b.run(b.options(), healthy.Publish, publisher.Concurrency(4))

	deferred := 0
	for done := 0; done < n; {
		switch e := b.event(); {
		case e.Result == publisher.Completed:
			done++
		case e.Result == publisher.Rescheduled && e.Reason == publisher.ReasonUnreachable:
			deferred++
		default:
			t.Fatalf("job %s: %s (%s), %v", e.Job.ID, e.Result, e.Reason, e.Err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for id, times := range published {
		if times != 1 {
			t.Errorf("job %s was published %d times", id, times)
		}
	}
	if len(published) != n {
		t.Errorf("%d of %d jobs were published", len(published), n)
	}
	// The calls that were in flight at first, then one after 1, 2, 4 … seconds.
	if got := tries.Load(); got < 1 || got > 15 || int(got) != deferred {
		t.Errorf("%d tries, %d jobs deferred; want the same, few", got, deferred)
	}
	if s := b.breaker(); s.State != breaker.Closed || s.Failures != 0 {
		t.Errorf("the breaker heard of calls that never left: %+v", s)
	}
	if begun := log.Lines("calls do not leave"); len(begun) != 1 || !strings.Contains(begun[0], "connection refused") {
		t.Errorf("the log: %q", begun)
	}
}

// A worker that is alone waits, says so, tries one job at a time, and goes on with all
// of them when a call leaves. The job has made no attempt and its reschedules are counted.
func TestUnreachableJobWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := newAPI(t, nil)
	var broken atomic.Bool
	var dials atomic.Int32
	seen := make(chan struct{}) // what became of the first dial
	broken.Store(true)
	h := newHTTP(t, publisher.HTTPOptions{URL: a.URL, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				select {
				case <-seen:
				case <-ctx.Done():
				}
			}
			if broken.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.EMFILE}
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}})
	log := &loggingtest.Buffer{}
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	p, err := publisher.New(b.rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle(b.dest, h, publisher.Concurrency(5)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	first := b.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second, BackoffMultiplier: 1, MaxDelay: time.Second}))
	e := b.result(first.ID)
	if e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonUnreachable || e.Outcome != publisher.OutcomeUnreachable {
		t.Fatalf("event %+v", e)
	}
	if wait := time.Until(e.AvailableAt); wait > 2*time.Second {
		t.Errorf("available in %s, want about a second: another worker may reach it", wait)
	}
	got := b.get(first.ID)
	if got.Attempt != 0 || got.RescheduleCount != 1 || !strings.Contains(got.LastError, "too many open files") {
		t.Errorf("job %s: attempt %d, reschedules %d, last error %q", got.Status, got.Attempt, got.RescheduleCount, got.LastError)
	}
	s := p.Status()[0]
	if s.State != publisher.StateUnreachable || !strings.Contains(s.Reason, "too many open files") || s.Until.IsZero() {
		t.Errorf("status %+v", s)
	}
	var workers jobs.Workers
	redistest.Eventually(t, "the worker says so to others", func() bool {
		workers, err = b.client.Workers(t.Context())
		return err == nil && len(workers) > 0 && workers[0].Unreachable[b.dest].Problem != ""
	})

	broken.Store(false)
	close(seen)
	const more = 50
	b.enqueueMany(more)
	for done := 0; done < more+1; {
		if e := b.event(); e.Result == publisher.Completed {
			done++
		}
	}
	if s := p.Status()[0]; s.State != publisher.StateFetching || s.Reason != "" {
		t.Errorf("afterwards: %+v", s)
	}
	if begun, over := log.Lines("calls do not leave"), log.Lines("calls leave"); len(begun) != 1 || len(over) != 1 {
		t.Errorf("the log: %q, %q", begun, over)
	}
}

// A job is deferred max_reschedules times at most; 100 times where that is not set, of which
// reschedules of other causes are none.
func TestUnreachableJobFailsInTheEnd(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	h := newHTTP(t, publisher.HTTPOptions{URL: closedPort(t)})
	set := b.enqueue(jobs.MaxReschedules(0))
	often, tooOften := b.enqueue(), b.enqueue()
	for id, n := range map[string]int{often.ID: 99, tooOften.ID: 100} {
		err := b.rdb.HSet(t.Context(), store.TaskKey(b.queue(), id), store.FieldUnreachable, n, store.FieldReschedules, 150).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.run(b.options(), h.Publish, publisher.Concurrency(3))
	for range 3 {
		e := b.event()
		got := b.get(e.Job.ID)
		switch e.Job.ID {
		case set.ID:
			if got.Status != jobs.Failed || got.LastError != "max reschedules (0) exceeded" {
				t.Errorf("max_reschedules 0: %s, %q", got.Status, got.LastError)
			}
		case often.ID:
			if got.Status != jobs.Pending || got.RescheduleCount != 151 || got.Reason != "its worker did not reach "+b.dest {
				t.Errorf("the 100th time: %s, %d reschedules, %q", got.Status, got.RescheduleCount, got.Reason)
			}
		case tooOften.ID:
			if got.Status != jobs.Failed || got.RescheduleCount != 150 || got.LastError != "max reschedules (100) exceeded" {
				t.Errorf("the 101st time: %s, %d reschedules, %q", got.Status, got.RescheduleCount, got.LastError)
			}
		}
	}
}

// What never left is told apart from what may have been sent.
func TestCallsThatNeverLeft(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	hangUp := rawServer(t, func(net.Conn, int, int) bool { return false })
	blackHole := func(ctx context.Context, _, _ string) (net.Conn, error) {
		select { // the transport dials on after the request has given up
		case <-ctx.Done():
		case <-t.Context().Done():
		}
		return nil, context.Canceled
	}
	for _, tc := range []struct {
		name string
		o    publisher.HTTPOptions
		left bool
	}{
		{"connection refused", publisher.HTTPOptions{URL: closedPort(t)}, false},
		{"no such host", publisher.HTTPOptions{URL: "http://api.invalid"}, false},
		{"certificate not trusted", publisher.HTTPOptions{URL: untrusted.URL}, false},
		{"dead proxy", publisher.HTTPOptions{URL: "https://api.invalid", Transport: viaProxy(closedPort(t))}, false},
		{"no connection in time", publisher.HTTPOptions{URL: "http://api.invalid", Transport: &http.Transport{DialContext: blackHole}}, false},
		{"hung up after the request", publisher.HTTPOptions{URL: hangUp}, true},
		{"a transport of its own fails", publisher.HTTPOptions{URL: "http://api.invalid", Transport: failing{errors.New("lost")}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			timeout := time.Minute
			if tc.name == "no connection in time" {
				timeout = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			err := newHTTP(t, tc.o).Publish(ctx, aJob(jobs.Request{}))
			if _, unreachable := errors.AsType[*jobs.UnreachableError](err); err == nil || unreachable == tc.left {
				t.Errorf("unreachable %v: %v", unreachable, err)
			}
		})
	}
}

func viaProxy(url string) http.RoundTripper {
	t := &http.Transport{}
	t.Proxy = func(r *http.Request) (*neturl.URL, error) { return neturl.Parse(url) }
	return t
}

type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// An expired certificate of the API is a reason of its own: who has to act, and since when.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2021, 2, 3, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	err = newHTTP(t, publisher.HTTPOptions{URL: server.URL}).Publish(t.Context(), aJob(jobs.Request{}))
	const want = "the API's TLS certificate has expired or is not valid yet (2020-01-01 to 2021-02-03): its owner has to renew it, or this machine's clock is wrong"
	if _, unreachable := errors.AsType[*jobs.UnreachableError](err); !unreachable || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
