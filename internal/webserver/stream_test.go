package webserver_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/webserver"
)

// Streams never take the connections that other requests need, and one that ends makes
// room for another.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	ended := make(chan struct{}, 100)
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel, err := webserver.Stream(r.Context())
		if errors.Is(err, webserver.ErrTooManyStreams) {
			webserver.Problem(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		fmt.Fprint(w, "x")
		_ = http.NewResponseController(w).Flush()
		<-ctx.Done()
		cancel()
		cancel() // which frees no more than one place
		ended <- struct{}{}
	})
	s := start(t, webserver.Options{MaxConnections: 8, Handler: mux})
	begin := func() (net.Conn, string) {
		t.Helper()
		c := s.send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		head := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, head); err != nil {
			t.Fatal(err)
		}
		return c, string(head[len(head)-3:])
	}
	var first []net.Conn
	for i := range 20 {
		want := "200"
		if i >= 4 {
			want = "503"
		}
		c, status := begin()
		if status != want {
			t.Errorf("stream %d: %s, want %s", i, status, want)
		}
		first = append(first, c)
		if status, body := answer(t, s.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")); status != 200 || body != "ok" {
			t.Errorf("with %d: %d %q", i, status, body)
		}
	}
	_ = first[0].Close()
	signal(t, "a stream has ended", ended)
	if _, status := begin(); status != "200" {
		t.Errorf("after one has ended: %s", status)
	}
	if _, status := begin(); status != "503" {
		t.Errorf("and one more: %s", status)
	}
}

// A request without a use for a body may not bring much of one.
func TestBodyOfGet(t *testing.T) {
	t.Parallel()
	s := start(t, webserver.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, got, " ", err)
	})})
	for _, row := range []struct {
		method string
		length int
		want   string
	}{
		{"GET", 64 << 10, "65536 <nil>"},
		{"GET", 64<<10 + 1, "65536 http: request body too large"},
		{"POST", 64<<10 + 1, "65537 <nil>"},
	} {
		c := s.send(fmt.Sprintf("%s / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", row.method, row.length, strings.Repeat("x", row.length)))
		if _, body := answer(t, c); body != row.want {
			t.Errorf("%s with %d bytes: %q, want %q", row.method, row.length, body, row.want)
		}
	}
}
