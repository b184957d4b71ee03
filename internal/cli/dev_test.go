package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// startDev runs "tidegate dev" in this process and returns its URL and what stops it.
func startDev(t *testing.T, env []string, args ...string) (url string, out *loggingtest.Buffer, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, status := &loggingtest.Buffer{}, make(chan int, 1)
	go func() {
		status <- Run(ctx, Process{Args: append([]string{"dev"}, args...), Environ: env, Stdin: strings.NewReader(""), Stdout: out, Stderr: out})
	}()
	redistest.Eventually(t, "it has started", func() bool { return strings.Contains(out.String(), "Ctrl-C stops it") || len(status) > 0 })
	if url = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(out.String()); url == "" {
		t.Fatal(out.String())
	}
	return url, out, func() {
		t.Helper()
		cancel()
		if got := <-status; got != 0 {
			t.Errorf("exit status %d\n%s", got, out.String())
		}
	}
}

// send sends a request; headers are "Name: value".
func send(t *testing.T, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestDev(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	env := []string{"LISTEN_ADDR=127.0.0.1:0", "CIRCUIT_BREAKER_MAX_COOLDOWN_MS=1000", "CIRCUIT_BREAKER_COOLDOWN_MS=200"}
	args := []string{"--fake", "2/1s", "--data", data}
	url, out, stop := startDev(t, env, args...)
	send(t, "POST", url+"/v1/jobs", `{"id":"first","destination":"demo","payload":{}}`)
	for name, header := range map[string]string{"403 to another site": "Sec-Fetch-Site: cross-site", "421 to another name": "Host: evil.example:8080"} {
		status, body := send(t, "POST", url+"/v1/jobs", `{"id":"evil","destination":"demo","payload":{}}`, header, "Origin: https://evil.example")
		if fmt.Sprint(status) != name[:3] {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	runIn(t, env, "", "dev", "--fake", "1/1s", "--data", data).want(t, 1, "",
		"tidegate: another process uses "+data+": stop it, or start in another folder\n")
	// Other commands reach the embedded Redis.
	address, err := os.ReadFile(filepath.Join(data, "redis-url"))
	if err != nil {
		t.Fatal(err)
	}
	beside := []string{"REDIS_URL=" + strings.TrimSpace(string(address))}
	runIn(t, beside, "", "enqueue", "-d", "demo", "--payload", "{}")
	// At once: the machine may be too busy to reach the limit one by one.
	send(t, "POST", url+"/v1/jobs", "["+strings.Repeat(`{"destination":"demo","payload":1},`, 9)+`{"destination":"demo","payload":1}]`)
	redistest.Eventually(t, "the incident is printed", func() bool {
		return regexp.MustCompile(`(?s):\d\d  demo: the API said how long to wait; no calls until .*:\d\d  demo: calls go on after `).MatchString(out.String())
	})
	stop()

	url, _, stop = startDev(t, append(beside, env...), args...)
	defer stop()
	if status, body := send(t, "GET", url+"/v1/jobs/first", ""); status != 200 || !strings.Contains(body, `"completed"`) {
		t.Errorf("after a restart: %d %s", status, body)
	}
	if status, _ := send(t, "GET", url+"/v1/jobs/evil", ""); status != 404 {
		t.Error("another site has enqueued a job")
	}
}

// With --file and a Redis of one's own; the file is watched.
func TestDevWithFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "destinations.yaml")
	write := func(name string) {
		if err := os.WriteFile(file, []byte("destinations: {"+name+": {url: http://127.0.0.1:9/x, retry: none}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("shop")
	b := newBench(t, "LISTEN_ADDR=127.0.0.1:0")
	url, out, stop := startDev(t, b.env, "--file", file, "--data", "/dev/null/unused")
	defer stop()
	if !strings.Contains(out.String(), "Destinations: shop\n") {
		t.Error(out.String())
	}
	write("tickets")
	redistest.Eventually(t, "the change is taken up", func() bool {
		status, _ := send(t, "POST", url+"/v1/jobs", `{"destination":"tickets","payload":{}}`)
		return status == 201 && strings.Count(out.String(), "the destinations file was taken up") == 1
	})
}

func TestDevRefuses(t *testing.T) {
	t.Parallel()
	data := "--data=" + filepath.Join(t.TempDir(), "data")
	runIn(t, nil, "", "dev", data).want(t, 78, "",
		"tidegate: DESTINATION_0_NAME: is not set, and no destination is configured; try: tidegate dev --fake 20/10s; or name a destinations file with --file\n")
	runIn(t, nil, "", "dev", data, "--fake", "many").want(t, 2, "",
		"tidegate: --fake: limit must be calls per time, such as 60/1m, or none, is \"many\"\n")
	if out := runIn(t, []string{"LISTEN_ADDR=:8080"}, "", "dev", data, "--fake", "1/1s"); out.status != 78 || !strings.Contains(out.stderr, "API_TOKENS_FILE") {
		t.Errorf("%+v", out)
	}
}
