package webserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/serve/webserver"
)

// Closing ends streams first and lets requests finish.
func TestClose(t *testing.T) {
	t.Parallel()
	inHand, streams, streamEnded := make(chan struct{}), make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel, err := webserver.Stream(r.Context())
		if err != nil {
			t.Error(err)
			return
		}
		defer cancel()
		fmt.Fprint(w, "first;")
		_ = http.NewResponseController(w).Flush()
		close(streams)
		<-ctx.Done()
		if r.Context().Err() != nil {
			t.Error("the request was cut off")
		}
		fmt.Fprint(w, "last")
		close(streamEnded)
	})
	mux.HandleFunc("GET /work", func(w http.ResponseWriter, r *http.Request) {
		close(inHand)
		<-streamEnded
		if r.Context().Err() != nil {
			t.Error("the request was cut off")
		}
		fmt.Fprint(w, "done")
	})
	s := start(t, webserver.Options{Handler: mux})
	events := s.send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	work := s.send("GET /work HTTP/1.1\r\nHost: localhost\r\n\r\n")
	signal(t, "the stream has begun", streams)
	signal(t, "the work has begun", inHand)
	s.wantClosed()
	if status, body := answer(t, events); status != 200 || body != "first;last" {
		t.Errorf("events: %d %q", status, body)
	}
	if status, body := answer(t, work); status != 200 || body != "done" {
		t.Errorf("work: %d %q", status, body)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

// Connections on which nothing was asked do not hold up the end.
func TestCloseWithIdleConnections(t *testing.T) {
	t.Parallel()
	s := start(t, webserver.Options{Handler: reading})
	fresh, used := s.dial(), s.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if status, _ := answer(t, used); status != 200 {
		t.Errorf("%d", status)
	}
	s.wantClosed()
	wantEnd(t, fresh)
	wantEnd(t, used)
}

// A request that takes too long is cut off, and its handler is waited for.
func TestCloseCutsOff(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan struct{}), make(chan struct{})
	s := start(t, webserver.Options{CloseWithin: 100 * time.Millisecond, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	})})
	c := s.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	signal(t, "the request has begun", begun)
	s.wantClosed()
	select {
	case <-ended:
	default:
		t.Error("Close returned before the handler")
	}
	wantEnd(t, c)
	found := false
	for _, line := range s.log.Records(t) {
		found = found || line["msg"] == "requests under way are cut off" && line["requests"] == 1.0
	}
	if !found {
		t.Errorf("logged %v", s.log.Records(t))
	}
}

// A handler that will not end is told of.
func TestCloseWithAStubbornHandler(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	s := start(t, webserver.Options{CloseWithin: 10 * time.Millisecond, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-end
	})})
	defer close(end)
	s.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	signal(t, "the request has begun", begun)
	if err := s.Close(); err == nil || err.Error() != "webserver: close: 1 requests did not end" {
		t.Errorf("%v", err)
	}
}

// A request on its way is read to the end.
func TestCloseWhileABodyComes(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	s := start(t, webserver.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		reading(w, r)
	})})
	c := s.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhello")
	signal(t, "the request has begun", begun)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	if _, err := io.WriteString(c, "world"); err != nil {
		t.Fatal(err)
	}
	if status, body := answer(t, c); status != 200 || body != "10" {
		t.Errorf("%d %q", status, body)
	}
	if err := signal(t, "the server is closed", closed); err != nil {
		t.Error(err)
	}
}

// Outside of a Server what is noted of a request goes nowhere, and streams end with it.
func TestOutsideOfAServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	webserver.SetName(ctx, "a")
	if remote := webserver.RemoteAddr(ctx); remote != "" {
		t.Errorf("remote address %q", remote)
	}
	stream, free, err := webserver.Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	cancel()
	signal(t, "the stream has ended", stream.Done())
}
