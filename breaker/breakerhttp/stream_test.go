package breakerhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// With a concurrency a call has its slot until its body has ended: by Close, at the end, or with the
// context.
func TestStreamKeepsItsSlot(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-goOn:
			_, _ = io.WriteString(w, "the end")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	i := join(t, redistest.Shared(t).Client(t), breaker.Options{Destination: redistest.Name(t, "stream"), FleetConcurrency: 2})
	client := &http.Client{Transport: breakerhttp.New(i.breaker, server.Client().Transport)}
	open := func(ctx context.Context) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(req) //nolint:wrapcheck // it is looked at
	}
	stream := func(ctx context.Context, what string) (resp *http.Response) {
		t.Helper()
		redistest.Eventually(t, what, func() bool {
			var err error
			resp, err = open(ctx) //nolint:bodyclose // the caller does
			return err == nil
		})
		return resp
	}
	full := func(what string) {
		t.Helper()
		resp, err := open(t.Context())
		if err == nil {
			_ = resp.Body.Close()
		}
		if refused, ok := errors.AsType[*breaker.OpenError](err); !ok || refused.Cause != breaker.CauseConcurrency {
			t.Fatalf("%s: a third stream: %v, want it refused because of the concurrency", what, err)
		}
	}
	first := stream(t.Context(), "the first stream")
	cut, cancel := context.WithCancel(t.Context())
	second := stream(cut, "the second stream")
	defer func() { _ = second.Body.Close() }()
	full("two streams")
	if err := first.Body.Close(); err != nil {
		t.Fatal(err)
	}
	third := stream(t.Context(), "a slot after Close")
	full("after Close")
	cancel()
	fourth := stream(t.Context(), "a slot after the end of the context")
	defer func() { _ = fourth.Body.Close() }()
	full("after the end of a context")
	close(goOn)
	if text, err := io.ReadAll(third.Body); err != nil || string(text) != "the end" {
		t.Errorf("%q, %v", text, err)
	}
	fifth := stream(t.Context(), "a slot after the end of a body")
	_ = fifth.Body.Close()
	_ = third.Body.Close()
	for range 3 { // closed twice, and after its end: a slot is freed once
		_ = first.Body.Close()
	}
	if status, err := breaker.DefaultNamespace.Get(t.Context(), redistest.Shared(t).Client(t), i.breaker.Name()); err != nil || status.InFlight > 1 {
		t.Errorf("%d in flight, %v", status.InFlight, err)
	}
}
