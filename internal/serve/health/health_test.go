package health_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tidegate/tidegate/internal/serve/health"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves until the test's end.
func start(t *testing.T, o health.Options) (*health.Server, *loggingtest.Buffer) {
	t.Helper()
	log := &loggingtest.Buffer{}
	o.Logger = slog.New(slog.NewJSONHandler(log, nil))
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Ready == nil {
		o.Ready = func(context.Context) health.Report { return health.Report{Status: health.Ready, Redis: "ok"} }
	}
	if o.Metrics == nil {
		o.Metrics = http.NotFoundHandler()
	}
	s, err := health.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, log
}

// answer is what was answered; status 0 if nothing was.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request.
func ask(ctx context.Context, s *health.Server, method, path string) answer {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Addr()+path, http.NoBody)
	if err != nil {
		return answer{body: err.Error()}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// What lives says so, whatever Redis does, and what is not asked for by GET is refused.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s, log := start(t, health.Options{
		Ready: func(context.Context) health.Report {
			t.Error("/healthz asked for the report")
			return health.Report{}
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "some_metric 1") }),
	})
	for _, row := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/healthz", 200, "ok\n"},
		{"HEAD", "/healthz", 200, ""},
		{"GET", "/metrics", 200, "some_metric 1\n"},
		{"POST", "/healthz", 405, "Method Not Allowed\n"},
		{"POST", "/readyz", 405, "Method Not Allowed\n"},
		{"DELETE", "/metrics", 405, "Method Not Allowed\n"},
		{"GET", "/", 404, "404 page not found\n"},
		{"GET", "/healthz/x", 404, "404 page not found\n"},
		{"GET", "/debug/pprof/", 404, "404 page not found\n"},
	} {
		if got := ask(t.Context(), s, row.method, row.path); got.status != row.status || got.body != row.body {
			t.Errorf("%s %s: %d %q, want %d %q", row.method, row.path, got.status, got.body, row.status, row.body)
		}
	}
	want := []map[string]any{{"level": "INFO", "msg": "health and metrics", "addr": s.Addr()}}
	if diff := cmp.Diff(want, log.Records(t)); diff != "" {
		t.Errorf("log (-want +got)\n%s", diff)
	}
}

// The report is JSON, and the status of the answer says the same as its status.
func TestReadyz(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	for _, row := range []struct {
		report health.Report
		status int
		body   string
	}{
		{
			health.Report{Status: health.Ready, Redis: "ok", Destinations: []health.Destination{}},
			200,
			`{
  "status": "ready",
  "redis": "ok",
  "destinations": []
}
`,
		},
		{
			health.Report{
				Status: health.NotReady, Reason: "shop: Redis: NOPERM", Redis: "ok",
				Destinations: []health.Destination{
					{Name: "blog", State: "waiting", Reason: "its circuit breaker is OPEN", Until: &until, FailedRecently: 3, InFlight: 1, Concurrency: 2},
					{Name: "shop", State: "failing", Reason: "Redis: NOPERM", Concurrency: 10},
				},
			},
			503,
			`{
  "status": "not ready",
  "reason": "shop: Redis: NOPERM",
  "redis": "ok",
  "destinations": [
    {
      "destination": "blog",
      "state": "waiting",
      "reason": "its circuit breaker is OPEN",
      "until": "2026-01-02T03:04:05.678Z",
      "failed_last_15m": 3,
      "in_hand": 1,
      "concurrency": 2
    },
    {
      "destination": "shop",
      "state": "failing",
      "reason": "Redis: NOPERM",
      "failed_last_15m": 0,
      "in_hand": 0,
      "concurrency": 10
    }
  ]
}
`,
		},
	} {
		s, _ := start(t, health.Options{Ready: func(context.Context) health.Report { return row.report }})
		got := ask(t.Context(), s, "GET", "/readyz")
		if got.status != row.status {
			t.Errorf("%s: %d, want %d", row.report.Status, got.status, row.status)
		}
		if diff := cmp.Diff(row.body, got.body); diff != "" {
			t.Errorf("%s (-want +got)\n%s", row.report.Status, diff)
		}
		if kind, cache := got.header.Get("Content-Type"), got.header.Get("Cache-Control"); kind != "application/json" || cache != "no-store" {
			t.Errorf("%s: Content-Type %q, Cache-Control %q", row.report.Status, kind, cache)
		}
	}
}

// However often it is asked, a report is made once a second, and ten times a second
// while it may be about to get better. Who comes together waits for the same one.
func TestReportsAreShared(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status string
		good   time.Duration
	}{{health.Ready, time.Second}, {health.NotReady, 100 * time.Millisecond}} {
		t.Run(row.status, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var made []time.Time
			count := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(made)
			}
			goOn := make(chan struct{})
			s, _ := start(t, health.Options{Ready: func(ctx context.Context) health.Report {
				<-goOn
				if end, ok := ctx.Deadline(); !ok || time.Until(end) > 3*time.Second {
					t.Errorf("the report may take until %v", end)
				}
				mu.Lock()
				defer mu.Unlock()
				made = append(made, time.Now())
				return health.Report{Status: row.status, Redis: "ok"}
			}})
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() { ask(t.Context(), s, "GET", "/readyz") })
			}
			close(goOn)
			group.Wait()
			if row.status == health.Ready && count() != 1 {
				t.Errorf("20 at once had %d reports made", count())
			}
			for overdue := time.Now().Add(2 * time.Minute); count() < 3; {
				ask(t.Context(), s, "GET", "/readyz")
				if time.Now().After(overdue) {
					t.Fatal("the report was never made again")
				}
			}
			for i := range made[1:] {
				if gap := made[i+1].Sub(made[i]); gap < row.good || gap > row.good+5*time.Second {
					t.Errorf("made again after %s, want %s", gap, row.good)
				}
			}
		})
	}
}

// Who leaves does not spoil the report for those that wait for it too.
func TestReportOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	making, goOn := make(chan struct{}), make(chan struct{})
	s, _ := start(t, health.Options{Ready: func(ctx context.Context) health.Report {
		close(making) // it is made once
		<-goOn
		if err := ctx.Err(); err != nil {
			return health.Report{Status: health.NotReady, Reason: err.Error()}
		}
		return health.Report{Status: health.Ready, Redis: "ok"}
	}})
	leaving, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		ask(leaving, s, "GET", "/readyz")
	}()
	<-making
	leave()
	<-left
	answers := make(chan int, 1)
	go func() {
		answers <- ask(t.Context(), s, "GET", "/readyz").status
	}()
	close(goOn)
	if status := <-answers; status != http.StatusOK {
		t.Errorf("who stayed got %d", status)
	}
}

// Where the default is taken a free port will do, and one line says which.
func TestTakenDefault(t *testing.T) {
	t.Parallel()
	first, _ := start(t, health.Options{})
	second, log := start(t, health.Options{Addr: first.Addr(), OrFree: true})
	if host, port, err := net.SplitHostPort(second.Addr()); err != nil || host != "127.0.0.1" || port == "0" || second.Addr() == first.Addr() {
		t.Errorf("the second listens on %s", second.Addr())
	}
	if got := ask(t.Context(), second, "GET", "/healthz"); got.status != http.StatusOK || got.body != "ok\n" {
		t.Errorf("the second answers %d %q", got.status, got.body)
	}
	want := []map[string]any{
		{"level": "WARN", "msg": "the default of OPS_ADDR is taken; a free port is used: set OPS_ADDR", "taken": first.Addr(), "addr": second.Addr()},
		{"level": "INFO", "msg": "health and metrics", "addr": second.Addr()},
	}
	if diff := cmp.Diff(want, log.Records(t)); diff != "" {
		t.Errorf("log (-want +got)\n%s", diff)
	}
}

// An address that was asked for is an error if it cannot be had, and nothing else is
// listened on.
func TestTakenAddress(t *testing.T) {
	t.Parallel()
	first, _ := start(t, health.Options{})
	for _, row := range []struct {
		name, addr string
		orFree     bool
		want       error
	}{
		{"taken", first.Addr(), false, syscall.EADDRINUSE},
		{"not of this machine", "192.0.2.1:9090", true, syscall.EADDRNOTAVAIL},
		{"no such host", "tidegate.invalid:9090", true, nil},
	} {
		log := &loggingtest.Buffer{}
		s, err := health.Start(t.Context(), health.Options{
			Addr: row.addr, OrFree: row.orFree, Metrics: http.NotFoundHandler(), Logger: slog.New(slog.NewJSONHandler(log, nil)),
		})
		if s != nil || err == nil || !strings.HasPrefix(err.Error(), "health: listen: ") || !strings.Contains(err.Error(), strings.TrimSuffix(row.addr, ":9090")) {
			t.Errorf("%s: %v, %v", row.name, s, err)
		}
		if row.want != nil && !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
		if lines := log.Records(t); len(lines) != 0 {
			t.Errorf("%s: logged %v", row.name, lines)
		}
	}
}

// A request that does not end holds Close up for a second, no longer.
func TestCloseDoesNotWaitForLong(t *testing.T) {
	t.Parallel()
	inside, ended := make(chan struct{}), make(chan struct{})
	s, _ := start(t, health.Options{Metrics: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
		close(ended)
	})})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		ask(context.Background(), s, "GET", "/metrics")
	}()
	<-inside
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 900*time.Millisecond || took > 30*time.Second {
		t.Errorf("Close took %s, want a second", took)
	}
	<-ended
	<-answered
}

// Any number of clients that send nothing, or half a request, keep nobody from an answer
// and are hung up on, after two seconds at the latest.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	const header = "GET /healthz HTTP/1.1\r\nHost: x\r\n"
	for name, halves := range map[string][]string{
		"headers": {"", header + "X-Slow"},
		"bodies":  {header + "Content-Length: 10\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			besideHalfOpen(t, halves)
		})
	}
}

func besideHalfOpen(t *testing.T, halves []string) {
	t.Helper()
	s, log := start(t, health.Options{})
	var conns []net.Conn
	var dialer net.Dialer
	for i := range 400 {
		c, err := dialer.DialContext(t.Context(), "tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, halves[i%len(halves)]) // or it is closed already
		conns = append(conns, c)
	}
	for i := range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // as a probe has
		if got := ask(ctx, s, "GET", "/healthz"); got.status != http.StatusOK || got.body != "ok\n" {
			t.Errorf("probe %d beside half-open connections: %d %q", i, got.status, got.body)
		}
		cancel()
	}
	overdue := time.Now().Add(2 * time.Minute)
	for i, c := range conns {
		if err := c.SetReadDeadline(overdue); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(c)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("client %d was not hung up on: %v", i, err)
		}
		_, status, _ := strings.Cut(string(rest), " ")
		if len(rest) > 0 && !slices.Contains([]string{"408", "400", "200"}, status[:min(3, len(status))]) {
			t.Errorf("client %d got %q", i, rest)
		}
	}
	if lines := log.Records(t); len(lines) != 1 {
		t.Errorf("they are talked of in the log: %v", lines[1:])
	}
}
