package tracing_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tidegate/tidegate/publisher/tracing"
)

// roundTripper is one of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// client returns a client whose calls are traced.
func client(r recording, next http.RoundTripper) *http.Client {
	return &http.Client{Transport: tracing.New(tracing.Options{TracerProvider: r.provider}).Transport(next)}
}

// Where a call goes is told without user, query and fragment; methods that are none are
// not named.
func TestTarget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		method, url, name string
		want              map[string]string
	}{
		{
			"PUT", "https://user:canary@api.example.com/a%2Fb/%C3%BC?token=canary#canary", "PUT",
			map[string]string{"http.request.method": "PUT", "url.full": "https://api.example.com/REDACTED", "server.address": "api.example.com", "server.port": "443"},
		},
		{
			"", "http://api.example.com", "GET",
			map[string]string{"http.request.method": "GET", "url.full": "http://api.example.com/", "server.address": "api.example.com", "server.port": "80"},
		},
		{
			"CANARY2", "http://[::1]:8090/", "HTTP",
			map[string]string{"http.request.method": "_OTHER", "url.full": "http://[::1]:8090/", "server.address": "::1", "server.port": "8090"},
		},
	} {
		r := record()
		req, err := http.NewRequestWithContext(context.Background(), tc.method, tc.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Method = tc.method
		resp, err := client(r, roundTripper(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusNoContent, ProtoMajor: 2, Body: http.NoBody, Request: req}, nil
		})).Transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		tc.want["http.response.status_code"], tc.want["network.protocol.version"] = "204", "2"
		if diff := cmp.Diff(tc.want, attributesOf(r.named(t, tc.name, 1)[0])); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tc.method, tc.url, diff)
		}
		r.noCanaries(t)
	}
}

// A call that has no answer, or no whole one, is an error of a named type.
func TestCallsThatFail(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	arrived := make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/hang":
			arrived <- struct{}{}
			select {
			case <-hang:
			case <-req.Context().Done():
			}
		case "/cut":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "cut")
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hang) })
	next := &http.Transport{}
	t.Cleanup(next.CloseIdleConnections)
	get := func(ctx context.Context, r recording, url string) error {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client(r, next).Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	for _, tc := range []struct {
		name, path, want string
		ctx              func() (context.Context, context.CancelFunc)
	}{
		{"too slow", "/hang", "timeout", func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 20*time.Millisecond)
		}},
		{"cancelled", "/hang", "canceled", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			go func() { <-arrived; cancel() }()
			return ctx, cancel
		}},
		{"cut off", "/cut", "*errors.errorString", func() (context.Context, context.CancelFunc) {
			return context.WithCancel(context.Background())
		}},
	} {
		r := record()
		ctx, cancel := tc.ctx()
		err := get(ctx, r, server.URL+tc.path)
		cancel()
		if err == nil {
			t.Errorf("%s: no error", tc.name)
		}
		checkFailed(t, tc.name, r, tc.want)
	}
	r := record()
	server.Close()
	if err := get(context.Background(), r, server.URL); err == nil {
		t.Error("closed: no error")
	}
	checkFailed(t, "closed", r, "*net.OpError")
}

func checkFailed(t *testing.T, name string, r recording, want string) {
	t.Helper()
	span := r.named(t, "GET", 1)[0]
	if got := attributesOf(span)["error.type"]; got != want {
		t.Errorf("%s: error.type %q, want %q", name, got, want)
	}
	if span.Status() != (sdktrace.Status{Code: codes.Error}) {
		t.Errorf("%s: status %+v", name, span.Status())
	}
}

// The span lasts until the body has been read or closed, and is ended once.
func TestSpanEndsWithTheBody(t *testing.T) {
	t.Parallel()
	answer := roundTripper(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(strings.NewReader("answer")), Request: req}, nil
	})
	for _, tc := range []struct {
		name string
		end  func(io.ReadCloser) error
	}{
		{"read", func(b io.ReadCloser) error { _, err := io.ReadAll(b); return err }},
		{"closed", func(b io.ReadCloser) error { return b.Close() }},
	} {
		r := record()
		req := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "http://api.example.com/", nil)
		resp, err := client(r, answer).Transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.Ended()); n != 0 {
			t.Errorf("%s: the span has ended before the body", tc.name)
		}
		if err := tc.end(resp.Body); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
		if n := len(r.Ended()); n != 1 {
			t.Errorf("%s: ended %d times, want once", tc.name, n)
		}
	}
}

// The request that came in is not changed.
func TestTransportLeavesTheRequestAlone(t *testing.T) {
	t.Parallel()
	r := record()
	tr := tracing.New(tracing.Options{TracerProvider: r.provider, PropagateToAPI: true})
	req := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "http://api.example.com/", strings.NewReader("x"))
	var sent http.Header
	resp, err := tr.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
		sent = req.Header
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
	})).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if len(req.Header) != 0 || sent.Get("Traceparent") == "" {
		t.Errorf("given %v, sent %v", req.Header, sent)
	}
}
