package webserver_test

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is one that is closed at the end of the test, at the latest.
type server struct {
	*webserver.Server
	log *loggingtest.Buffer
	t   *testing.T
}

// quick are limits that tests can wait for.
var quick = webserver.Limits{Header: time.Second, Stall: 200 * time.Millisecond, Write: 500 * time.Millisecond}

func start(t *testing.T, o webserver.Options) *server {
	t.Helper()
	s := &server{log: &loggingtest.Buffer{}, t: t}
	o.Addr = "127.0.0.1:0"
	o.Logger = slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if s.Server, err = webserver.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // tests that care close it themselves
	return s
}

// dial opens a connection whose reads and writes fail after 10 s.
func (s *server) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// send opens a connection and sends a text.
func (s *server) send(text string) net.Conn {
	s.t.Helper()
	c := s.dial()
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// answer reads an answer: its status line and its body.
func answer(t *testing.T, c net.Conn) (status int, body string) {
	t.Helper()
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// wantEnd reads to the end of a connection, which must come without another byte.
func wantEnd(t *testing.T, c net.Conn) {
	t.Helper()
	rest, err := io.ReadAll(c)
	if len(rest) > 0 || err != nil && !strings.Contains(err.Error(), "reset by peer") {
		t.Errorf("read %q, %v, want the end of the connection", rest, err)
	}
}

// get sends a request on a connection of its own.
func (s *server) get(method, path string) (status int, header http.Header, text string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.Addr()+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// wantClosed closes the server, which is not held up.
func (s *server) wantClosed() {
	const within = 9 * time.Second // the default of CloseWithin is 10 s
	s.t.Helper()
	began := time.Now()
	if err := s.Close(); err != nil {
		s.t.Error(err)
	}
	if took := time.Since(began); took > within {
		s.t.Errorf("closing took %v, want %v at most", took, within)
	}
}

// signal waits for a channel to close or give something.
func signal[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
		panic("unreachable")
	}
}
