package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/internal/testkit/telemetrytest"
	"github.com/tidegate/tidegate/jobs"
)

// traced makes a fleet send its spans to a collector.
func traced(f *fleet, c *telemetrytest.Collector) {
	f.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = c.URL()
	f.env["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=Bearer%20canary-collector"
	f.env["OTEL_BSP_SCHEDULE_DELAY"] = "50"
}

// A job is one trace, from the command that enqueues it through its attempts, made by two
// workers, to its end. The collector hears of no secret, the API of no trace, and people
// who look at the job see it as ever.
func TestTracingFromTheCommandToTheEnd(t *testing.T) {
	t.Parallel()
	c := telemetrytest.Start(t)
	f := newFleet(t, redistest.Start(t), fakeapi.Options{})
	traced(f, c)
	f.env["DESTINATION_0_URL"] += "/v1?api_key=canary-token"
	f.api.Queue(
		fakeapi.Answer{Status: http.StatusTooManyRequests},
		fakeapi.Answer{Status: http.StatusInternalServerError, Body: "canary-answer"},
	)
	out, stderr, code := f.tidegate("enqueue", "--destination", f.dest, "--payload", `"canary-payload"`, "--query", "q=canary-query",
		"--header", "X-Secret:canary-header", "--retry", "max=3,initial=1s", "-o", "json")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if strings.Contains(strings.ToLower(out), "trace") {
		t.Errorf("enqueue shows the trace: %s", out)
	}
	var job jobs.Job
	if err := json.Unmarshal([]byte(out), &job); err != nil {
		t.Fatal(err)
	}
	// The command has sent its span before it ended.
	enqueues := c.Named("enqueue " + f.dest)
	if len(enqueues) != 1 {
		t.Fatalf("%d spans of the enqueue, want 1", len(enqueues))
	}
	enqueue := enqueues[0]

	first := f.start()
	redistest.Await(t, 2*time.Minute, "the first call", func() bool { return len(f.api.Receipts()) > 0 })
	if code, _ := first.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit status %d", code)
	}
	second := f.start()
	f.waitCompleted([]string{job.ID}, 30*time.Second)
	if code, _ := second.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit status %d", code)
	}

	attempts, calls := c.Named("process "+f.dest), c.Named("POST")
	if len(attempts) != 3 || len(calls) != 3 || len(c.Spans()) != 7 {
		t.Fatalf("%d attempts, %d calls, %d spans; want 3, 3 and 7", len(attempts), len(calls), len(c.Spans()))
	}
	instances := map[string]bool{enqueue.Resource["service.instance.id"]: true}
	for i, want := range []struct{ result, reason, attempt, reschedules, status string }{
		{"rescheduled", "rate_limited", "0", "0", "429"},
		{"retry", "", "0", "1", "500"},
		{"completed", "", "1", "1", "201"},
	} {
		a := attempts[i]
		instances[a.Resource["service.instance.id"]] = true
		if a.Trace() != enqueue.Trace() || a.Parent() != enqueue.ID() {
			t.Errorf("attempt %d is no child of the enqueue", i)
		}
		got := a.Attributes
		if got["messaging.message.id"] != job.ID || got["tidegate.result"] != want.result || got["tidegate.reason"] != want.reason ||
			got["tidegate.attempt"] != want.attempt || got["tidegate.reschedules"] != want.reschedules {
			t.Errorf("attempt %d: %v, want %+v", i, got, want)
		}
		if a.Resource["service.name"] != "tidegate" || a.Resource["service.version"] == "" {
			t.Errorf("attempt %d: from %v", i, a.Resource)
		}
		var call *telemetrytest.Span
		for j := range calls {
			if calls[j].Parent() == a.ID() {
				call = &calls[j]
			}
		}
		if call == nil || call.Attributes["http.response.status_code"] != want.status || call.Attributes["url.full"] != f.url+"/REDACTED" {
			t.Errorf("attempt %d: its call is %v, want status %s", i, call, want.status)
		}
	}
	if len(instances) != 3 {
		t.Errorf("spans came from %d processes, want the command and two workers", len(instances))
	}
	for _, s := range c.Spans() {
		if text := fmt.Sprint(s.Span, s.Resource); strings.Contains(text, "canary") {
			t.Errorf("a span holds what it must not: %s", text)
		}
	}
	for _, p := range c.Posts() {
		if p.Header.Get("Authorization") != "Bearer canary-collector" {
			t.Errorf("the collector was sent Authorization %q", p.Header.Get("Authorization"))
		}
	}
	for _, r := range f.api.Receipts() {
		if r.Header.Get("Traceparent")+r.Header.Get("Tracestate")+r.Header.Get("Baggage") != "" {
			t.Errorf("the API was sent %v", r.Header)
		}
	}
	for _, w := range []*worker{first, second} {
		if strings.Contains(w.log.String(), "canary") {
			t.Errorf("a secret is logged: %s", w.log)
		}
	}
	for _, args := range [][]string{{"get", job.ID, "-o", "json"}, {"get", job.ID}, {"list", "-o", "json"}} {
		out, _, code := f.tidegate(args...)
		if code != 0 || strings.Contains(strings.ToLower(out), "trace") {
			t.Errorf("%v: exit %d, %s", args, code, out)
		}
	}
}
