package webserver_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/serve/webserver"
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

// Files of forms reach neither the memory nor the disk, whatever the handler asks for and
// however many copies of the request were made on the way.
func TestFormsWithFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s := start(t, webserver.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(t.Context())
		_, _, err := r.FormFile("f")
		next, file := r.FormValue("next"), r.FormValue("f")
		_, _ = io.Copy(io.Discard, r.Body) // so that the client has sent all before it is answered
		fmt.Fprintf(w, "%q %q %v", next, file, err)
	})})
	const before, after = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n", "\r\n--b--\r\n"
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
	for _, row := range []struct {
		method string
		size   int
	}{{"GET", 10}, {"POST", 10}, {"POST", 40 << 20}} { // the last is more than is kept in memory
		body := io.MultiReader(strings.NewReader(before), io.LimitReader(zeros{}, int64(row.size)), strings.NewReader(after))
		req, err := http.NewRequestWithContext(t.Context(), row.method, "http://"+s.Addr()+"/?next=there", body)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = int64(len(before) + row.size + len(after))
		req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := `"there" "" http: no such file`; err != nil || string(got) != want {
			t.Errorf("%s with %d bytes: %s, %v, want %s", row.method, row.size, got, err, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("on the disk: %v, %v", left, err)
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
