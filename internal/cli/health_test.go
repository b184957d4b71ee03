package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/serve/health"
)

// serveHealth serves a report as a worker does, and returns where.
func serveHealth(t *testing.T, host string, report health.Report) (addr string) {
	t.Helper()
	s, err := health.Start(t.Context(), health.Options{
		Addr: net.JoinHostPort(host, "0"), Metrics: http.NotFoundHandler(), Logger: slog.New(slog.DiscardHandler),
		Ready: func(context.Context) health.Report { return report },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

var (
	wellReport = health.Report{Status: health.Ready, Redis: "ok", Destinations: []health.Destination{
		{Name: "blog", State: "waiting", Reason: "its circuit breaker is OPEN", Until: new(time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)), Concurrency: 2},
		{Name: "mail", State: "unreachable", Reason: "no such host", Concurrency: 10},
		{Name: "shop", State: "fetching", InFlight: 3, Concurrency: 10},
	}}
	illReport = health.Report{Status: health.NotReady, Reason: "shop: Redis: connection refused", Redis: "ok", Destinations: []health.Destination{
		{Name: "shop", State: "failing", Reason: "Redis: connection refused", Concurrency: 10},
	}}
)

// The worker's own word decides the exit status; people are told why.
func TestHealth(t *testing.T) {
	t.Parallel()
	well, ill := serveHealth(t, "127.0.0.1", wellReport), serveHealth(t, "127.0.0.1", illReport)
	const wellText = `status  ready
redis   ok
mail    UNREACHABLE, 0 of 10 calls in flight; no such host
blog    waiting, 0 of 2 calls in flight; its circuit breaker is OPEN, until 2026-01-02T03:04:05Z
shop    fetching, 3 of 10 calls in flight
`
	const illText = `status  not ready
redis   ok
shop    failing, 0 of 10 calls in flight; Redis: connection refused
`
	const notReady = "tidegate: the worker is not ready: shop: Redis: connection refused\n"
	runIn(t, []string{"OPS_ADDR=" + well}, "", "health").want(t, 0, wellText, "")
	// A worker that listens on all interfaces is asked through this machine's.
	runIn(t, []string{"OPS_ADDR=0.0.0.0:" + well[strings.LastIndex(well, ":")+1:]}, "", "health").want(t, 0, wellText, "")
	runIn(t, []string{"OPS_ADDR=" + ill}, "", "health").want(t, 1, illText, notReady)
	// It lives all the same.
	runIn(t, []string{"OPS_ADDR=" + ill}, "", "health", "--live").want(t, 0, "ok\n", "")
	// The flag outweighs the environment, and what else is in that does not matter.
	broken := []string{"OPS_ADDR=" + ill, "REDIS_URL=nonsense", "DESTINATION_0_NAME=UPPER", "DESTINATION_7_WHAT=x", "SHUTDOWN_TIMEOUT=soon"}
	runIn(t, broken, "", "health", "--addr", well).want(t, 0, wellText, "")
	runIn(t, broken, "", "health").want(t, 1, illText, notReady)
}

// With -o json the report is printed as it came, well or not.
func TestHealthJSON(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		report health.Report
		status int
		stderr string
	}{
		{wellReport, 0, ""},
		{illReport, 1, inJSON("tidegate: the worker is not ready: shop: Redis: connection refused\n")},
	} {
		got := runIn(t, []string{"OPS_ADDR=" + serveHealth(t, "127.0.0.1", row.report)}, "", "health", "-o", "json")
		if got.status != row.status || got.stderr != row.stderr {
			t.Errorf("exit status %d, stderr %q; want %d, %q", got.status, got.stderr, row.status, row.stderr)
		}
		if diff := cmp.Diff(row.report, decode[health.Report](t, got.stdout)); diff != "" {
			t.Errorf("printed (-want +got)\n%s", diff)
		}
	}
	live := runIn(t, []string{"OPS_ADDR=" + serveHealth(t, "127.0.0.1", illReport)}, "", "health", "--live", "-o", "json")
	if diff := cmp.Diff(map[string]string{"status": "alive"}, decode[map[string]string](t, live.ok(t))); diff != "" {
		t.Errorf("--live -o json (-want +got)\n%s", diff)
	}
}

// What cannot be asked is an error that says what to do.
func TestHealthWithoutAWorker(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	free, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	_ = free.Close()
	const badAddress = " is not the address of a worker; write it like 127.0.0.1:9090\n"
	for _, row := range []struct {
		name   string
		env    []string
		args   []string
		status int
		stderr string
	}{
		{
			"off",
			[]string{"OPS_ADDR=off"},
			nil, 2,
			"tidegate: OPS_ADDR is off: the worker serves no health; set it, or use --addr\n",
		},
		{
			"port 0",
			[]string{"OPS_ADDR=127.0.0.1:0"},
			nil, 2,
			"tidegate: OPS_ADDR has port 0, so the worker listens on a free port, which its log names: use --addr\n",
		},
		{"no port", nil, []string{"--addr", "localhost"}, 2, `tidegate: "localhost"` + badAddress},
		{"no address", nil, []string{"--addr", "127.0.0.1:9090/x y"}, 2, `tidegate: "127.0.0.1:9090/x y"` + badAddress},
		{"a timeout of nothing", nil, []string{"--timeout", "0s"}, 2, "tidegate: --timeout must be positive\n"},
		{
			"nobody",
			[]string{"OPS_ADDR=" + nobody},
			nil, 1,
			"tidegate: no worker answers at " + nobody + " (dial tcp " + nobody + ": connect: connection refused); is it running, and is OPS_ADDR the same here?\n",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			runIn(t, row.env, "", append([]string{"health"}, row.args...)...).want(t, row.status, "", row.stderr)
		})
	}
	got := runIn(t, []string{"OPS_ADDR=nonsense"}, "", "health")
	if got.status != exitConfig || !strings.Contains(got.stderr, "OPS_ADDR") || got.stdout != "" {
		t.Errorf("a bad OPS_ADDR: %+v", got)
	}
}

// Another server that listens there is not taken for a worker.
func TestHealthOfAnotherServer(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a page": "<html>welcome</html>", "other JSON": `{"status":""}`, "a list": `[1]`, "nothing": "", "control characters": "\x1b[2J",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
			t.Cleanup(other.Close)
			addr := strings.TrimPrefix(other.URL, "http://")
			runIn(t, []string{"OPS_ADDR=" + addr}, "", "health").want(t, 1, "",
				"tidegate: what answers at "+addr+" is not a worker of Tidegate: 200 OK\n")
		})
	}
	missing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(missing.Close)
	addr := strings.TrimPrefix(missing.URL, "http://")
	if got := runIn(t, nil, "", "health", "--live", "--addr", addr); got.status != 1 || got.stdout != "" || !strings.Contains(got.stderr, "404 Not Found") {
		t.Errorf("--live of a server without /healthz: %+v", got)
	}
}

// Who does not answer in time is not waited for, and no proxy is asked on the way.
func TestHealthTimeout(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	goOn := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-goOn }))
	defer stuck.Close()
	defer close(goOn)
	addr := strings.TrimPrefix(stuck.URL, "http://")
	began := time.Now()
	runIn(t, []string{"OPS_ADDR=" + addr}, "", "health", "--timeout", "200ms").want(t, 1, "",
		"tidegate: no worker answers at "+addr+" (context deadline exceeded); is it running, and is OPS_ADDR the same here?\n")
	if took := time.Since(began); took < 200*time.Millisecond || took > 30*time.Second {
		t.Errorf("it took %s, want 200 ms", took)
	}
	runIn(t, []string{"OPS_ADDR=" + serveHealth(t, "127.0.0.1", wellReport)}, "", "health", "--live").want(t, 0, "ok\n", "")
}

// A report whose words were made up by somebody else cannot mislead the terminal.
func TestHealthPrintsNoControlCharacters(t *testing.T) {
	t.Parallel()
	addr := serveHealth(t, "127.0.0.1", health.Report{
		Status: health.NotReady, Reason: "Redis: \x1b[31mred", Redis: "\x1b[31mred\nstatus  ready",
		Destinations: []health.Destination{{Name: "shop", State: "failing", Reason: "\x07bell"}},
	})
	got := runIn(t, []string{"OPS_ADDR=" + addr}, "", "health")
	if got.status != 1 || strings.ContainsAny(got.stdout+got.stderr, "\x1b\x07") || strings.Count(got.stdout, "\n") != 3 {
		t.Errorf("%+v", got)
	}
}
