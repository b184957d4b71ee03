package fakehttp

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// Recorder is an API that remembers its requests; see [Record].
type Recorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests []Recorded
}

// Recorded is a request as the API saw it.
type Recorded struct {
	*http.Request
	// Sent is the body.
	Sent string
}

// Record starts an API that answers as told, with 204 if answer is nil, until the end of the test.
func Record(t *testing.T, answer http.HandlerFunc) *Recorder {
	t.Helper()
	a := &Recorder{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		a.requests = append(a.requests, Recorded{r, string(b)})
		a.mu.Unlock()
		if answer == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

// Requests lists the requests so far.
func (a *Recorder) Requests() []Recorded {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

// Only returns the one request that must have been made.
func (a *Recorder) Only(t *testing.T) Recorded {
	t.Helper()
	requests := a.Requests()
	if len(requests) != 1 {
		t.Fatalf("%d requests, want 1", len(requests))
	}
	return requests[0]
}

// ClosedPort is the URL of a port that refuses connections until the end of the test.
func ClosedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	// The local port of a connection: no other process can listen on it while that is open.
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return "http://" + c.LocalAddr().String()
}
