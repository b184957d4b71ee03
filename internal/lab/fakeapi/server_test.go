package fakeapi_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
)

func TestCloseCutsCallsInFlightAndStartListensAgain(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{})
	api.Queue(fakeapi.Answer{Delay: time.Hour})
	failed := make(chan error)
	go func() {
		_, err := c.do(t.Context(), http.MethodPost, "/", "")
		failed <- err
	}()
	wait(t, api, func(s fakeapi.Stats) bool { return s.InFlight == 1 })
	if err := api.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("a call in flight was answered by Close")
	}
	if got := api.Stats(); got.InFlight != 0 || got.Calls != 1 {
		t.Errorf("stats after Close = %+v, want the one call ended", got)
	}
	if err := api.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	addr := strings.TrimPrefix(c.url, "http://")
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("a closed API accepts connections")
	}
	url, err := api.Start(addr)
	if err != nil || url != c.url {
		t.Fatalf("Start = %q, %v; want %q again", url, err, c.url)
	}
	if got := c.post("/", "").Status; got != 201 {
		t.Errorf("status after the second Start = %d, want 201", got)
	}
	if _, err := api.Start(""); err == nil {
		t.Error("Start of a started API succeeded")
	}
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{":0", "0.0.0.0:0", "192.0.2.1:80", "example.com:80", "127.0.0.1"} {
		api := fakeapi.New(fakeapi.Options{})
		if url, err := api.Start(addr); err == nil {
			t.Errorf("Start(%q) = %s, want an error", addr, url)
			api.Close()
		}
	}
}

func TestAPIIsAHandler(t *testing.T) {
	t.Parallel()
	api := fakeapi.New(fakeapi.Options{})
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/x", strings.NewReader("{}")))
	if r := api.Receipts()[0]; w.Code != 201 || r.Method != http.MethodPut || r.Path != "/x" {
		t.Errorf("answer %d, receipt %+v", w.Code, r)
	}
}
