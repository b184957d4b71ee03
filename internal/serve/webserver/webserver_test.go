package webserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/serve/webserver"
)

// Every answer has the headers that keep browsers from harm; handlers may say otherwise.
func TestHeaders(t *testing.T) {
	t.Parallel()
	s := start(t, webserver.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/asset" {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		fmt.Fprintln(w, "hello")
	})})
	for path, cache := range map[string]string{"/": "no-store", "/asset": "public, max-age=31536000, immutable"} {
		_, header, _ := s.get("GET", path)
		header.Del("Date")
		want := http.Header{
			"Content-Security-Policy":      {"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
			"X-Content-Type-Options":       {"nosniff"},
			"X-Frame-Options":              {"DENY"},
			"Referrer-Policy":              {"same-origin"},
			"Cross-Origin-Opener-Policy":   {"same-origin"},
			"Cross-Origin-Resource-Policy": {"same-origin"},
			"Cache-Control":                {cache},
			"Content-Type":                 {"text/plain; charset=utf-8"},
			"Content-Length":               {"6"},
		}
		if diff := cmp.Diff(want, header); diff != "" {
			t.Errorf("%s (-want +got)\n%s", path, diff)
		}
	}
}

// A request is logged and measured by the pattern that it matched, never by its path.
func TestOnRequest(t *testing.T) {
	t.Parallel()
	inner := http.NewServeMux()
	inner.HandleFunc("GET /v1/jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		webserver.SetName(r.Context(), "shop")
		fmt.Fprint(w, "job")
	})
	inner.HandleFunc("POST /v1/odd", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})
	outer := http.NewServeMux()
	// As whoever recognises requests does, with a context of its own.
	outer.Handle("/v1/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		webserver.Routed(inner).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), new(int), 1)))
	}))
	outer.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	outer.HandleFunc("example.com/only", func(http.ResponseWriter, *http.Request) {})

	var mu sync.Mutex
	var told []string
	s := start(t, webserver.Options{Handler: webserver.Routed(outer), OnRequest: func(route, method string, code int, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf("%s %s %d", method, route, code))
		if took <= 0 || took > time.Minute {
			t.Errorf("%s took %v", route, took)
		}
	}})
	for _, request := range []string{
		"GET /v1/jobs/secret?token=secret", "POST /v1/jobs/7", "POST /v1/odd", "GET /healthz", "HEAD /healthz", "GET /none/secret", "BREW /healthz",
	} {
		method, path, _ := strings.Cut(request, " ")
		s.get(method, path)
	}
	s.wantClosed()
	want := []string{
		"GET /v1/jobs/{id} 200", "POST /v1/ 405", "POST /v1/odd 201", "GET /healthz 200", "HEAD /healthz 200", "GET other 404", "other other 405",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got)\n%s", diff)
	}
	lines := s.log.Records(t)
	if len(lines) != len(want) || strings.Contains(fmt.Sprint(lines), "secret") {
		t.Fatalf("logged %v", lines)
	}
	first := lines[0]
	delete(first, "took")
	wantLine := map[string]any{"level": "DEBUG", "msg": "request", "method": "GET", "route": "/v1/jobs/{id}", "status": 200.0, "bytes": 3.0, "name": "shop"}
	if diff := cmp.Diff(wantLine, first); diff != "" {
		t.Errorf("logged (-want +got)\n%s", diff)
	}
}

// A handler that panics costs its request, and tells the client nothing.
func TestPanics(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /before", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "7")
		w.Header().Set("Set-Cookie", "a=b")
		panic(errors.New("secret"))
	})
	mux.HandleFunc("GET /during", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half of")
		_ = http.NewResponseController(w).Flush()
		panic("secret")
	})
	mux.HandleFunc("GET /meant", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	s := start(t, webserver.Options{Handler: mux})
	status, header, body := s.get("GET", "/before")
	want := `{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"something went wrong; the server's log says what"}` + "\n"
	if status != http.StatusInternalServerError || body != want || header.Get("Content-Type") != "application/problem+json" ||
		header.Get("Set-Cookie") != "" || header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("%d %q, %v", status, body, header)
	}
	for _, path := range []string{"/during", "/meant"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err == nil {
			_, err = fmt.Fscan(resp.Body, new(string), new(string), new(string))
			resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "EOF") {
			t.Errorf("%s: %v, want the connection cut", path, err)
		}
	}
	s.wantClosed()
	var got []string
	for _, line := range s.log.Records(t) {
		if line["level"] == "ERROR" {
			got = append(got, fmt.Sprint(line["msg"], " ", line["method"], " ", line["route"], " ", line["panic"]))
			if !strings.Contains(line["stack"].(string), "webserver_test.go") {
				t.Errorf("the stack does not say where: %s", line["stack"])
			}
		}
	}
	if diff := cmp.Diff([]string{"a request panicked GET /before secret", "a request panicked GET /during secret"}, got); diff != "" {
		t.Errorf("logged (-want +got)\n%s", diff)
	}
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	s := start(t, webserver.Options{Handler: http.NotFoundHandler()})
	_, err := webserver.Start(t.Context(), webserver.Options{Addr: s.Addr()})
	if want := "webserver: listen: listen tcp " + s.Addr() + ": bind: address already in use"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
