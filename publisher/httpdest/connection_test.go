package httpdest_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// A 407 is a proxy's, and says nothing of the API or the job.
func TestHTTPProxyThatRefuses(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusProxyAuthRequired)
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{"http://api.example.com/posts", "https://api.example.com/posts"} {
		transport := &http.Transport{Proxy: http.ProxyURL(at)}
		t.Cleanup(transport.CloseIdleConnections)
		h := newHTTP(t, httpdest.Options{URL: base, Transport: transport})
		got, err := publisher.Attempt(t.Context(), h, &jobs.Job{ID: "j", Destination: "shop", Payload: []byte("{}")}, time.Now())
		if err != nil || got.Result != publisher.Rescheduled || got.Reason != publisher.ReasonUnreachable || !strings.Contains(got.Error, "roxy") {
			t.Errorf("%s: %s, %s, %q, %v; want it rescheduled as unreachable because of the proxy", base, got.Result, got.Reason, got.Error, err)
		}
	}
}

// closing is a server that closes each connection when its second request comes, before it answers.
type closing struct {
	*httptest.Server
	requests atomic.Int64
	mu       sync.Mutex
	served   map[net.Conn]int
	keys     map[string]int
}

type connKey struct{}

func newClosing(t *testing.T, always bool) *closing {
	t.Helper()
	s := &closing{served: map[net.Conn]int{}, keys: map[string]int{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.requests.Add(1)
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		s.mu.Lock()
		s.served[conn]++
		second := s.served[conn] > 1
		s.keys[r.Header.Get("Idempotency-Key")]++
		s.mu.Unlock()
		if second || always {
			_ = conn.Close()
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// A kept connection that the other end has closed is no failure of the job: the call is made once more.
func TestHTTPStaleConnection(t *testing.T) {
	t.Parallel()
	s := newClosing(t, false)
	h := newHTTP(t, httpdest.Options{URL: s.URL})
	for i := range 6 {
		job := &jobs.Job{ID: string(rune('a' + i)), Destination: "shop", Payload: []byte(`{"n":1}`)}
		if err := h.Publish(t.Context(), job); err != nil || job.Response.Status != http.StatusCreated {
			t.Errorf("job %d: %v, %+v", i, err, job.Response)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, calls := range s.keys {
		if calls > 2 {
			t.Errorf("the call with the key %q was made %d times", key, calls)
		}
	}
}

// A connection that was made for the call proves nothing, and is not tried again; nor is a call that is
// refused a second permit.
func TestHTTPBrokenConnectionIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	s := newClosing(t, true)
	h := newHTTP(t, httpdest.Options{URL: s.URL})
	if err := h.Publish(t.Context(), &jobs.Job{ID: "a", Destination: "shop"}); err == nil || s.requests.Load() != 1 {
		t.Errorf("%v after %d requests, want an error after 1", err, s.requests.Load())
	}
}
