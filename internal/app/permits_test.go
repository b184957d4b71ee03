package app

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// theAPI is RunAPI in this process.
type theAPI struct {
	t    *testing.T
	url  string
	stop func()
}

func runTheAPI(t *testing.T, environ ...string) *theAPI {
	t.Helper()
	cfg, _, err := config.LoadForAPI(environ)
	if err != nil {
		t.Fatal(err)
	}
	addr := make(chan string, 1)
	log := slog.New(slog.NewJSONHandler(writerFunc(func(line []byte) (int, error) {
		var said struct{ Msg, URL string }
		if json.Unmarshal(line, &said) == nil && said.Msg == "api started" {
			addr <- said.URL
		}
		return len(line), nil
	}), nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RunAPI(ctx, cfg, log, Process{Environ: environ}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &theAPI{t, <-addr, cancel}
}

func (a *theAPI) call(method, path, body, prefer string) (int, string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Prefer", prefer)
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		a.t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// await repeats a request until the response is as wanted.
func (a *theAPI) await(want int, path, body, text string) {
	a.t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		status, got := a.call(method, path, body, "")
		if status == want && strings.Contains(got, text) {
			return
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("%s: %d %s, want %d with %q", path, status, got, want, text)
		}
	}
}

// permit asks for a permit once, and returns its id.
func (a *theAPI) permit(want int, body, text string) string {
	a.t.Helper()
	status, got := a.call(http.MethodPost, "/v1/permits", body, "")
	if status != want || !strings.Contains(got, text) {
		a.t.Errorf("%s: %d %s, want %d with %q", body, status, got, want, text)
	}
	var granted struct{ ID string }
	_ = json.Unmarshal([]byte(got), &granted)
	return granted.ID
}

func (a *theAPI) report(id, body string) {
	a.t.Helper()
	if status, got := a.call(http.MethodPost, "/v1/permits/"+id+"/report", body, ""); status != http.StatusOK {
		a.t.Errorf("%s: %d %s", body, status, got)
	}
}

// Permits stand under all that the destinations file says of calls, as the workers have it, and share it with them.
func TestPermitsAreBoundAsWorkersAre(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	_, url := startAPI(t, fakeapi.Options{})
	file := filepath.Join(t.TempDir(), "d.yaml")
	content := "limits:\n  tokens: {rate: 100/1h:100, unit: tokens, key: payload.model}\n" +
		"defaults: {url: " + url + "}\ndestinations:\n" +
		"  few: {fleet_concurrency: 1, token_file: /not/there, answers_file: /not/there}\n" +
		"  keyed: {key_concurrency: 1, reserve: {high: 50%}, rate: 4/1h:4}\n" +
		"  odd: {rate_limited_status: [420], hints: [x-ratelimit], circuit_breaker: {failure_threshold: 2, cooldown_ms: 60000}}\n" +
		"  free: {fair: true}\n" +
		"  priced: {limits: [{name: tokens, estimate: payload.max}]}\n"
	writeDestinations(t, file, 0, content)
	environ := []string{"REDIS_URL=" + server.URL(), "DESTINATIONS_FILE=" + file, "LISTEN_ADDR=127.0.0.1:0"}
	api, other := runTheAPI(t, environ...), runTheAPI(t, environ...)

	first := api.permit(200, `{"destination":"few"}`, "")
	other.permit(429, `{"destination":"few"}`, `"concurrency"`)
	other.report(first, `{"outcome":"success"}`)
	api.permit(200, `{"destination":"few"}`, "")

	api.permit(200, `{"destination":"keyed","key":"a"}`, "")
	other.permit(429, `{"destination":"keyed","key":"a"}`, `"concurrency"`)
	other.permit(200, `{"destination":"keyed","key":"b"}`, "")
	other.permit(429, `{"destination":"keyed","key":"c"}`, `"rate"`) // the rest is kept for urgent jobs

	for _, response := range []string{`{"status":429}`, `{"status":429}`, `{"status":420,"headers":{"Retry-After":"1"}}`, `{"status":420}`} {
		api.report(other.permit(200, `{"destination":"odd"}`, ""), response)
	}
	api.permit(429, `{"destination":"odd"}`, `"breaker_open"`)

	small := other.permit(200, `{"destination":"priced","costs":{"tokens":60},"payload":{"model":"small"}}`, "")
	api.permit(429, `{"destination":"priced","payload":{"model":"small","max":41}}`, `"rate"`)
	api.permit(200, `{"destination":"priced","payload":{"model":"large","max":41}}`, "")
	api.report(small, `{"status":200,"costs":{"tokens":10}}`)
	api.permit(200, `{"destination":"priced","payload":{"model":"small","max":90}}`, "")
	api.permit(422, `{"destination":"priced","payload":{"model":"small"}}`, "not known what the call takes of limit tokens")
	api.permit(422, `{"destination":"priced","costs":{"tokens":101},"payload":{"model":"small"}}`, "can never run")

	if _, err := store.DefaultNamespace.SetOverride(t.Context(), server.Client(t), "free", store.Override{Rate: "1/1h", By: "ann"}, 0); err != nil {
		t.Fatal(err)
	}
	api.await(429, "/v1/permits", `{"destination":"free"}`, `"rate"`)
}

// A request that waits for a permit goes on under changed settings, and ends with the API. A breaker that the workers of
// before have opened holds for it.
func TestWaitingForAPermit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	fake, url := startAPI(t, fakeapi.Options{Latency: 300 * time.Millisecond})
	file := filepath.Join(t.TempDir(), "d.yaml")
	shop := func(n int, settings string) {
		t.Helper()
		writeDestinations(t, file, n, "destinations:\n  shop: {url: "+url+settings+"}\n")
	}
	shop(0, ", fleet_concurrency: 1")
	environ := []string{"REDIS_URL=" + server.URL(), "DESTINATIONS_FILE=" + file, "LISTEN_ADDR=127.0.0.1:0"}
	worker, api := runAsked(t, environ...), runTheAPI(t, environ...)
	type answer struct {
		status int
		body   string
	}
	wait := func() <-chan answer {
		out := make(chan answer, 1)
		go func() {
			status, body := api.call(http.MethodPost, "/v1/permits", `{"destination":"shop","lease":"1h"}`, "wait=60")
			out <- answer{status, body}
		}()
		return out
	}
	client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(silent), jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Enqueue(t.Context(), jobs.New("shop", 1)); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the worker's call", func() bool { return fake.Stats().InFlight == 1 })
	held := <-wait() // after the worker's call
	if n := fake.Stats().InFlight; held.status != http.StatusOK || n != 0 {
		t.Fatalf("beside %d calls of workers: %d %s", n, held.status, held.body)
	}
	waiting := []<-chan answer{wait(), wait()}
	<-time.After(300 * time.Millisecond)
	shop(1, ", fleet_concurrency: 2")
	var got answer
	select {
	case got = <-waiting[0]:
		waiting = waiting[1:]
	case got = <-waiting[1]:
	}
	if got.status != http.StatusOK {
		t.Errorf("after the change: %d %s", got.status, got.body)
	}
	began := time.Now()
	api.stop()
	if got := <-waiting[0]; got.status != http.StatusServiceUnavailable || time.Since(began) > 20*time.Second {
		t.Errorf("at the API's end, after %s: %d %s", time.Since(began), got.status, got.body)
	}
	if err := worker.stop(); err != nil {
		t.Error(err)
	}
}
