package webserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/serve/webserver"
)

// A header that does not come, or does not end, costs a connection for a moment.
func TestSlowHeader(t *testing.T) {
	t.Parallel()
	s := start(t, webserver.Options{Limits: quick, Handler: http.NotFoundHandler()})
	began := time.Now()
	wantEnd(t, s.send("GET / HTTP/1.1\r\nHost: localhost\r\nX-A: "))
	wantEnd(t, s.dial())
	if took := time.Since(began); took < 200*time.Millisecond || took > time.Minute {
		t.Errorf("it took %v", took)
	}
	// One byte after the other changes nothing.
	c := s.send("GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n > 2000 {
			t.Fatal("a header of 40 s was waited for")
		}
		<-tick.C
		if _, err := io.WriteString(c, "x"); err != nil {
			break
		}
	}
}

// A header of 10 MB is refused long before its end.
func TestLargeHeader(t *testing.T) {
	t.Parallel()
	s := start(t, webserver.Options{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was handled") })})
	for name, head := range map[string]string{
		"one field":   "GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ",
		"the address": "GET /",
	} {
		c := s.send(head)
		sent := 0
		for part := strings.Repeat("x", 64<<10); sent < 10<<20; {
			n, err := io.WriteString(c, part)
			if sent += n; err != nil {
				break
			}
		}
		if sent == 10<<20 {
			t.Errorf("%s: all of it was taken", name)
		}
	}
	c := s.send("GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("x", 36<<10) + "\r\n\r\n")
	if status, body := answer(t, c); status != 431 || body != "431 Request Header Fields Too Large" {
		t.Errorf("%d %q", status, body)
	}
	c = s.send("GET / HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X-A: b\r\n", 6<<10) + "\r\n")
	if status, _ := answer(t, c); status != 431 {
		t.Errorf("many fields: %d, want 431", status)
	}
}

// reading answers with the length of the body, or 408.
var reading = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	switch {
	case errors.Is(err, webserver.ErrSlowBody):
		webserver.Problem(w, http.StatusRequestTimeout, err.Error())
	case err != nil:
		webserver.Problem(w, http.StatusBadRequest, err.Error())
	default:
		fmt.Fprint(w, len(body))
	}
})

const tooSlow = `{"type":"about:blank","title":"Request Timeout","status":408,"detail":"webserver: the body of the request came too slowly"}` + "\n"

// A body that stands still is given up.
func TestStandingBody(t *testing.T) {
	t.Parallel()
	s := start(t, webserver.Options{Limits: quick, Handler: reading})
	for _, head := range []string{"Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "Content-Length: 10\r\n\r\n"} {
		began := time.Now()
		c := s.send("POST / HTTP/1.1\r\nHost: localhost\r\n" + head)
		if status, body := answer(t, c); status != 408 || body != tooSlow {
			t.Errorf("%d %s", status, body)
		}
		if took := time.Since(began); took < 200*time.Millisecond || took > time.Minute {
			t.Errorf("it took %v", took)
		}
		wantEnd(t, c)
	}
}

// A body that comes in drops is given up although it never stands still; one that comes
// fast enough may take as long as it likes.
func TestDrippingBody(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		rate   int
		stall  time.Duration
		status int
		body   string
	}{
		{1 << 20, 200 * time.Millisecond, 408, tooSlow},
		{10, 10 * time.Second, 200, "3000"},
	} {
		s := start(t, webserver.Options{Limits: webserver.Limits{Rate: row.rate, Stall: row.stall}, Handler: reading})
		c := s.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000\r\n\r\n")
		tick := time.NewTicker(10 * time.Millisecond)
		for range 300 { // 3 s
			<-tick.C
			if _, err := io.WriteString(c, "0123456789"); err != nil {
				break
			}
		}
		tick.Stop()
		if status, body := answer(t, c); status != row.status || body != row.body {
			t.Errorf("at %d B/s: %d %s, want %d %s", row.rate, status, body, row.status, row.body)
		}
	}
}

// Time that the handler takes is not the client's: neither before it reads nor after.
func TestSlowHandler(t *testing.T) {
	t.Parallel()
	const stall, longer = 1500 * time.Millisecond, 1800 * time.Millisecond
	asks := make(chan struct{}, 2)
	s := start(t, webserver.Options{Limits: webserver.Limits{Stall: stall}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(longer)
		first := make([]byte, 5)
		if _, err := io.ReadFull(r.Body, first); err != nil {
			t.Error(err)
		}
		<-time.After(longer)
		asks <- struct{}{}
		reading(w, r)
		select {
		case <-time.After(longer):
		case <-r.Context().Done():
			t.Error("the request ended before its handler")
		}
	})})
	c := s.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhello")
	// The rest comes when the handler has begun to ask for it.
	signal(t, "the handler asks for the rest", asks)
	if _, err := io.WriteString(c, "world"); err != nil {
		t.Fatal(err)
	}
	if status, body := answer(t, c); status != 200 || body != "5" {
		t.Errorf("%d %q", status, body)
	}
	// The connection is as good as new.
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"); err != nil {
		t.Fatal(err)
	}
	if status, body := answer(t, c); status != 200 || body != "0" {
		t.Errorf("the second request: %d %q", status, body)
	}
}

// A body that nobody reads is not waited for.
func TestUnreadBody(t *testing.T) {
	t.Parallel()
	s := start(t, webserver.Options{Limits: quick, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})})
	for _, length := range []int{100, 100 << 20} {
		began := time.Now()
		c := s.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\nx", length))
		if status, _ := answer(t, c); status != 401 {
			t.Errorf("%d, want 401", status)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		wantEnd(t, c)
	}
}

// A client that takes no answer is not waited for.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	s := start(t, webserver.Options{Limits: quick, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 256<<20))
		failed <- err
	})})
	s.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	err := signal(t, "writing has failed", failed)
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		t.Errorf("writing ended with %v, want a timeout", err)
	}
}

// A large answer may take longer than the limit, as long as it goes on; so may a stream,
// and what is flushed late has the whole time again.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	tick := time.NewTicker(limit / 4)
	defer tick.Stop()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 32<<20)) })
	mux.HandleFunc("GET /late", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "x")
		<-time.After(limit * 5 / 4)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("a late flush: %v", err)
		}
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel, err := webserver.Stream(r.Context())
		if err != nil {
			t.Error(err)
			return
		}
		defer cancel()
		for range 6 { // longer than the limit
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				fmt.Fprint(w, "x")
				_ = http.NewResponseController(w).Flush()
			}
		}
	})
	s := start(t, webserver.Options{Limits: webserver.Limits{Write: limit}, Handler: mux})
	ask := func(path string) net.Conn {
		return s.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	}
	late := ask("/late")
	if status, body := answer(t, ask("/stream")); status != 200 || body != "xxxxxx" {
		t.Errorf("stream: %d %q", status, body)
	}
	if status, body := answer(t, late); status != 200 || body != "x" {
		t.Errorf("late: %d %q", status, body)
	}
	resp, err := http.ReadResponse(bufio.NewReader(ask("/large")), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := 0
	part := make([]byte, 1<<20)
	for pause := time.NewTicker(100 * time.Millisecond); ; <-pause.C { // 3 s
		n, err := io.ReadFull(resp.Body, part)
		got += n
		if err != nil {
			pause.Stop()
			break
		}
	}
	if got != 32<<20 {
		t.Errorf("%d bytes of the large answer came", got)
	}
}

// Whoever only keeps connections open keeps nobody out.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	s := start(t, webserver.Options{Limits: quick, MaxConnections: 8, Handler: reading})
	// Half of them never send a request, half have had one and stay.
	for i := range 40 {
		c := s.dial()
		if i%2 == 0 {
			continue
		}
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if status, body := answer(t, c); status != 200 || body != "0" {
			t.Errorf("%d %q", status, body)
		}
	}
	if _, _, body := s.get("GET", "/"); body != "0" {
		t.Errorf("%q", body)
	}
}

// Clients that send half a header, or half a body, and no more have their connections until their time is over; others
// beside them get their answers, at once while there is a connection left, and else after that time.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"room for all": 128, "full": 8} {
		s := start(t, webserver.Options{Limits: quick, MaxConnections: most, Handler: reading})
		for i := range 80 {
			s.send([]string{"GET / HTTP/1.1\r\nHost: local", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhello"}[i%2])
			if i%20 == 0 {
				if status, _, body := s.get("GET", "/"); status != 200 || body != "0" {
					t.Errorf("%s: %d %q", name, status, body)
				}
			}
		}
		if status, _, body := s.get("GET", "/"); status != 200 || body != "0" {
			t.Errorf("%s: %d %q", name, status, body)
		}
	}
}

// However many requests come at once, each that is handled has its answer, and none is cut: those for which there is no
// connection wait, also for clients that keep theirs.
func TestMoreRequestsThanConnections(t *testing.T) {
	t.Parallel()
	var handled atomic.Int64
	s := start(t, webserver.Options{MaxConnections: 32, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handled.Add(1)
		reading(w, r)
	})})
	var clients sync.WaitGroup
	const many = 400
	for range many {
		c := s.dial()
		clients.Go(func() {
			if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"); err != nil {
				t.Error(err)
				return
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Error(err)
				return
			}
			body, err := io.ReadAll(resp.Body)
			if resp.Body.Close(); err != nil || string(body) != "5" {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
	clients.Wait()
	if n := handled.Load(); n != many {
		t.Errorf("%d requests were handled, %d answered", n, many)
	}
}
