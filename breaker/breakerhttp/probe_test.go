package breakerhttp_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// halfOpen makes an instance whose next call is a probe.
func halfOpen(t *testing.T, o breaker.Options, next http.RoundTripper) instance {
	t.Helper()
	rdb := redistest.Shared(t).Client(t)
	o.Cooldown = time.Minute // the pause between probes is at most as long
	i := joinWith(t, rdb, o, next)
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, o.Destination, breaker.TripOptions{For: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, i.breaker, "half open", inState(breaker.HalfOpen))
	return i
}

// The body of a probe can be read for as long as it comes, also after the lease has
// ended and the breaker has closed.
func TestProbesBodyOutlivesLease(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	rest := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, "first")
		w.(http.Flusher).Flush()
		select {
		case <-rest:
			fmt.Fprint(w, strings.Repeat("!", 1<<20))
		case <-req.Context().Done():
		}
	}))
	defer server.Close()
	i := halfOpen(t, breaker.Options{Destination: redistest.Name(t, "body"), ProbeTimeout: lease}, transport(t))
	started := time.Now()
	resp, err := i.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if v := i.breaker.View(); v.State != breaker.Closed {
		t.Errorf("with the header there, the breaker is %s", v.State)
	}
	<-time.After(time.Until(started.Add(2 * lease)))
	close(rest)
	body, err := io.ReadAll(resp.Body)
	if err != nil || len(body) != len("first")+1<<20 {
		t.Errorf("read %d bytes, %v", len(body), err)
	}
}

// The call's context, which belongs to the Transport, ends with the body: read to
// its end, closed, or not there.
func TestProbesContextEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		body io.ReadCloser
		use  func(io.ReadCloser) error
	}{
		{"closed", io.NopCloser(strings.NewReader("abc")), io.ReadCloser.Close},
		{"read", io.NopCloser(strings.NewReader("abc")), func(r io.ReadCloser) error { _, err := io.Copy(io.Discard, r); return err }},
		{"not there", http.NoBody, func(io.ReadCloser) error { return nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var seen *http.Request
			i := halfOpen(t, breaker.Options{Destination: redistest.Name(t, "ends")}, roundTripper(func(req *http.Request) (*http.Response, error) {
				seen = req
				return &http.Response{StatusCode: http.StatusOK, Body: test.body, Request: req}, nil
			}))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := i.Transport.RoundTrip(req) //nolint:bodyclose // what is done with it is the test
			if err != nil {
				t.Fatal(err)
			}
			if resp.Request != req || seen == req {
				t.Error("the answer must be that of the caller's request, and the probe's a copy")
			}
			if test.body != http.NoBody && seen.Context().Err() != nil {
				t.Error("the context has ended before the body")
			}
			if err := test.use(resp.Body); err != nil {
				t.Fatal(err)
			}
			if seen.Context().Err() == nil {
				t.Error("the context lives on")
			}
		})
	}
}

// A connection that an answer has made a tunnel of can still be written to.
func TestSwitchedProtocolStaysWritable(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		fmt.Fprint(conn, line)
	}))
	defer server.Close()
	i := halfOpen(t, breaker.Options{Destination: redistest.Name(t, "switch")}, transport(t))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := i.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	tunnel, ok := resp.Body.(io.ReadWriter)
	if !ok {
		t.Fatalf("the body is a %T", resp.Body)
	}
	if _, err := fmt.Fprintln(tunnel, "hello"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(tunnel); err != nil || string(got) != "hello\n" {
		t.Errorf("read %q, %v", got, err)
	}
}

// What ends a probe without an answer, and what the breaker makes of it.
func TestProbesWithoutAnswer(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	caller := errors.New("the caller has gone")
	for _, test := range []struct {
		name    string
		url     string // "": of an API that does not answer
		lease   time.Duration
		timeout time.Duration
		cancel  error // when the call has arrived
		is      error
		again   bool // the next probe may start at once: the call told nothing
	}{
		{name: "nobody listens", url: gone.URL},
		{name: "the lease ends", lease: 100 * time.Millisecond, is: context.DeadlineExceeded},
		{name: "the caller cancels", cancel: caller, is: caller, again: true},
		{name: "the caller's time is over", timeout: 2 * time.Second, is: context.DeadlineExceeded},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if test.cancel != nil {
					cancel(test.cancel)
				}
				<-req.Context().Done()
			}))
			defer silent.Close()
			i := halfOpen(t, breaker.Options{Destination: redistest.Name(t, "silent"), ProbeTimeout: test.lease}, transport(t))
			call := ctx
			if test.timeout > 0 {
				limited, stop := context.WithTimeout(ctx, test.timeout)
				defer stop()
				call = limited
			}
			_, err := i.call(call, cmp.Or(test.url, silent.URL))
			if err == nil || test.is != nil && !errors.Is(err, test.is) {
				t.Fatalf("call: %v; want %v", err, test.is)
			}
			if errors.Is(err, breakerhttp.ErrNotSent) {
				t.Errorf("%v: but it was sent", err)
			}
			var timeout interface{ Timeout() bool }
			if want := errors.Is(test.is, context.DeadlineExceeded); errors.As(err, &timeout) && timeout.Timeout() != want {
				t.Errorf("%v: Timeout is %t", err, !want)
			}
			if test.lease > 0 && !strings.Contains(err.Error(), "no answer within the lease of the breaker's permit") {
				t.Errorf("%v: does not say why", err)
			}
			// A failure sets when the next probe may start at the earliest.
			if v := i.breaker.View(); v.State != breaker.HalfOpen || v.ProbeAt.IsZero() != test.again {
				t.Errorf("the next probe may start at once: %t; want %t; %+v", v.ProbeAt.IsZero(), test.again, v)
			}
		})
	}
}

// A RoundTripper that panics must not leave the call in flight for ever.
func TestPanicIsAFailure(t *testing.T) {
	t.Parallel()
	i := halfOpen(t, breaker.Options{Destination: redistest.Name(t, "panic")}, roundTripper(func(*http.Request) (*http.Response, error) {
		panic("broken")
	}))
	func() {
		defer func() {
			if got := recover(); got != "broken" {
				t.Errorf("recovered %v", got)
			}
		}()
		_, _ = i.call(t.Context(), "http://127.0.0.1/")
	}()
	v := i.breaker.View()
	if v.State != breaker.HalfOpen || v.ProbeAt.IsZero() {
		t.Errorf("after a probe that panicked: %+v", v)
	}
}
