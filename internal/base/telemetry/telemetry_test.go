package telemetry_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/tidegate/tidegate/internal/base/telemetry"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/telemetrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts with these variables, which are the process's too while the test runs:
// the exporter and the SDK read them there.
func start(t *testing.T, variables ...string) (*telemetry.Telemetry, *loggingtest.Buffer) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, value) // to have it back
			_ = os.Unsetenv(name)
		}
	}
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	l := &loggingtest.Buffer{}
	tel := telemetry.Start(context.Background(), telemetry.Options{
		Environ: os.Environ(), Version: "1.2.3", Instance: "host:7", Logger: slog.New(slog.NewTextHandler(l, nil)),
	})
	t.Cleanup(func() { tel.Shutdown(time.Second) })
	return tel, l
}

// span makes one.
func span(tel *telemetry.Telemetry, name string) {
	_, s := tel.TracerProvider().Tracer("test").Start(context.Background(), name)
	s.End()
}

// Off is the default, and costs nothing.
func TestOff(t *testing.T) {
	for name, variables := range map[string][]string{
		"nothing set":         nil,
		"set, but not where":  {"OTEL_SERVICE_NAME=x", "OTEL_EXPORTER_OTLP_HEADERS=a=b", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://127.0.0.1:1"},
		"empty":               {"OTEL_EXPORTER_OTLP_ENDPOINT=", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT= "},
		"disabled":            {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_SDK_DISABLED=TRUE"},
		"no exporter":         {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=none"},
		"disabled, and wrong": {"OTEL_EXPORTER_OTLP_ENDPOINT=wrong", "OTEL_SDK_DISABLED=true"},
	} {
		t.Run(name, func(t *testing.T) {
			tel, l := start(t, variables...)
			if tel != nil {
				t.Error("it is on")
			}
			if l.String() != "" {
				t.Errorf("logged: %s", l)
			}
			tel.Shutdown(time.Second)
		})
	}
}

// Spans arrive at the collector, with who sent them and the headers it asks for.
func TestSpansArrive(t *testing.T) {
	c := telemetrytest.Start(t)
	for _, tc := range []struct {
		name      string
		variables []string
		path      string
		service   string
	}{
		{"for all signals", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL()}, "/v1/traces", "tidegate"},
		{"for traces", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + c.URL() + "/custom", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, "/custom", "tidegate"},
		{"named", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL() + "/base/", "OTEL_SERVICE_NAME=gate-eu", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip"}, "/base/v1/traces", "gate-eu"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.Reset()
			tel, l := start(t, append(tc.variables, "OTEL_EXPORTER_OTLP_HEADERS=x-api-key=hunter2%3D,x-other=b")...)
			span(tel, "one")
			span(tel, "two")
			tel.Shutdown(5 * time.Second)
			if len(c.Named("one")) != 1 || len(c.Named("two")) != 1 || len(c.Spans()) != 2 {
				t.Fatalf("spans %v", c.Spans())
			}
			post := c.Posts()[0]
			if post.Path != tc.path {
				t.Errorf("sent to %s, want %s", post.Path, tc.path)
			}
			if post.Header.Get("X-Api-Key") != "hunter2=" || post.Header.Get("X-Other") != "b" {
				t.Errorf("headers %v", post.Header)
			}
			from := c.Spans()[0].Resource
			want := map[string]string{"service.name": tc.service, "service.version": "1.2.3", "service.instance.id": "host:7", "telemetry.sdk.language": "go"}
			for k, v := range want {
				if from[k] != v {
					t.Errorf("%s %q, want %q", k, from[k], v)
				}
			}
			if l.String() != "" {
				t.Errorf("logged: %s", l)
			}
		})
	}
}

// Without a Shutdown they are sent too, in batches.
func TestBatches(t *testing.T) {
	c := telemetrytest.Start(t)
	tel, _ := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL(), "OTEL_BSP_SCHEDULE_DELAY=10")
	span(tel, "one")
	wait(t, c, "one")
}

// Attributes of the environment win over ours.
func TestResourceAttributes(t *testing.T) {
	c := telemetrytest.Start(t)
	tel, l := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL(), "OTEL_RESOURCE_ATTRIBUTES=service.name=x,service.instance.id=pod-1,deployment.environment.name=prod,oops")
	span(tel, "one")
	tel.Shutdown(5 * time.Second)
	from := c.Spans()[0].Resource
	for k, v := range map[string]string{"service.name": "x", "service.instance.id": "pod-1", "deployment.environment.name": "prod", "service.version": "1.2.3"} {
		if from[k] != v {
			t.Errorf("%s %q, want %q", k, from[k], v)
		}
	}
	if !strings.Contains(l.String(), "OTEL_RESOURCE_ATTRIBUTES") {
		t.Errorf("not warned of: %s", l)
	}
}

// The sampler is the SDK's to read; one that it does not know is warned of.
func TestSampler(t *testing.T) {
	c := telemetrytest.Start(t)
	tel, l := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL(), "OTEL_TRACES_SAMPLER=always_off")
	span(tel, "one")
	tel.Shutdown(5 * time.Second)
	if n := len(c.Spans()); n != 0 || l.String() != "" {
		t.Errorf("%d spans, logged %s", n, l)
	}
	_, l = start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL(), "OTEL_TRACES_SAMPLER=sometimes")
	if !strings.Contains(l.String(), "unsupported sampler: sometimes") {
		t.Errorf("logged %s", l)
	}
}

// What a job is given to carry.
func TestPropagators(t *testing.T) {
	for value, want := range map[string]string{
		"": "traceparent tracestate", "tracecontext": "traceparent tracestate", "none": "",
		"tracecontext, baggage": "baggage traceparent tracestate", "b3,tracecontext": "traceparent tracestate",
	} {
		t.Run(value, func(t *testing.T) {
			tel, l := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_PROPAGATORS="+value)
			if got := fields(tel.Propagator()); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if warned := strings.Contains(l.String(), "OTEL_PROPAGATORS"); warned != strings.Contains(value, "b3") {
				t.Errorf("logged %s", l)
			}
		})
	}
}

func fields(p propagation.TextMapPropagator) string {
	return strings.Join(slices.Sorted(slices.Values(p.Fields())), " ")
}

// A collector that is away or refuses is told of once, not once a batch; publishing does
// not wait for it; and when it is back, so are the spans.
func TestCollectorInTrouble(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	c := telemetrytest.Start(t)
	for _, tc := range []struct {
		name, endpoint, want string
		status               int
	}{
		{"nobody there", "http://" + closed.Addr().String(), "connection refused", 0},
		{"unauthorized", c.URL(), "401 Unauthorized (body: who are you, [redacted]?)", http.StatusUnauthorized},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.Answer(tc.status, "who are you, hunter22?")
			defer c.Answer(0, "")
			tel, l := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+tc.endpoint, "OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20hunter22")
			for range 20 {
				span(tel, "lost")
				waitFor(t, l, "could not be sent")
			}
			tel.Shutdown(5 * time.Second)
			text := l.String()
			if n := strings.Count(text, "could not be sent"); n != 1 {
				t.Errorf("told %d times, want once: %s", n, text)
			}
			if !strings.Contains(text, tc.want) || strings.Contains(text, "hunter2") {
				t.Errorf("logged %s, want %q and no secret", text, tc.want)
			}
		})
	}
	t.Run("back again", func(t *testing.T) {
		c.Answer(http.StatusForbidden, "no")
		tel, l := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL(), "OTEL_BSP_SCHEDULE_DELAY=1")
		span(tel, "lost")
		waitFor(t, l, "could not be sent")
		c.Answer(0, "")
		span(tel, "found")
		waitFor(t, l, "are sent again")
		if !strings.Contains(l.String(), "lost=1") || len(c.Named("found")) != 1 {
			t.Errorf("logged %s", l)
		}
	})
}

// A collector that does not answer holds up neither who makes spans, more than any buffer
// has room for, nor the end of the process.
func TestCollectorThatHangs(t *testing.T) {
	c := telemetrytest.Start(t)
	c.Hang(t)
	tel, l := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL(), "OTEL_BSP_SCHEDULE_DELAY=1")
	span(tel, "first")
	wait(t, c, "first")
	tracer := tel.TracerProvider().Tracer("test")
	began := time.Now()
	for range 20_000 {
		_, s := tracer.Start(context.Background(), "more", trace.WithSpanKind(trace.SpanKindConsumer))
		s.End()
	}
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("20,000 spans took %s", took)
	}
	began = time.Now()
	tel.Shutdown(200 * time.Millisecond)
	if took := time.Since(began); took < 200*time.Millisecond || took > 40*time.Second {
		t.Errorf("Shutdown took %s, want about 200ms", took)
	}
	if !strings.Contains(l.String(), "did not take the last spans in time") {
		t.Errorf("logged %s", l)
	}
	tel.Shutdown(time.Second) // a second time does nothing
	tel.Shutdown(0)
}

// Settings that cannot be used are named, with what to write instead, and no value that
// could be secret appears; with the rest spans are sent if that is possible.
func TestWrongSettings(t *testing.T) {
	dir := t.TempDir()
	noPEM := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(noPEM, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	const good = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for _, tc := range []struct {
		variables []string
		want      []string // texts of the log
		off       bool
	}{
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318"}, []string{"variable=OTEL_EXPORTER_OTLP_ENDPOINT", "write it like http://127.0.0.1:4318", "tracing is off"}, true},
		{[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=grpc://hunter2:4317"}, []string{"variable=OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "tracing is off"}, true},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://u:hunter2@127.0.0.1:4318/?a=hunter2"}, []string{"user, password and query are not sent; set OTEL_EXPORTER_OTLP_HEADERS"}, false},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317"}, []string{"variable=OTEL_EXPORTER_OTLP_ENDPOINT", "usually 4318"}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_HEADERS=hunter2"}, []string{"variable=OTEL_EXPORTER_OTLP_HEADERS", "without \\\"=\\\""}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_HEADERS=a b=hunter2"}, []string{"without a valid name of a header"}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_TRACES_HEADERS=x-key=hunter2%zz"}, []string{"variable=OTEL_EXPORTER_OTLP_TRACES_HEADERS", "the value of x-key is not percent-encoded"}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_HEADERS=x-key=hunter2%0Ax"}, []string{"characters that a header must not have", "tracing is off"}, true},
		{[]string{good, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, []string{"variable=OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf is used"}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_COMPRESSION=zstd"}, []string{"variable=OTEL_EXPORTER_OTLP_COMPRESSION"}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_TIMEOUT=10s"}, []string{"variable=OTEL_EXPORTER_OTLP_TIMEOUT", "in milliseconds"}, false},
		{[]string{good, "OTEL_BSP_MAX_QUEUE_SIZE=many"}, []string{"variable=OTEL_BSP_MAX_QUEUE_SIZE", "is not a whole number"}, false},
		{[]string{good, "OTEL_SDK_DISABLED=yes"}, []string{"variable=OTEL_SDK_DISABLED", "false is assumed"}, false},
		{[]string{good, "OTEL_TRACES_EXPORTER=console"}, []string{"variable=OTEL_TRACES_EXPORTER", "otlp and none", "tracing is off"}, true},
		{[]string{good, "OTEL_TRACES_EXPORTER=otlp,console"}, []string{"variable=OTEL_TRACES_EXPORTER"}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_CERTIFICATE=" + filepath.Join(dir, "none")}, []string{"variable=OTEL_EXPORTER_OTLP_CERTIFICATE", "no such file"}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_CERTIFICATE=" + noPEM}, []string{"no certificate in PEM form"}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE=" + noPEM}, []string{"is set without OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY"}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_CLIENT_KEY=" + noPEM}, []string{"is set without OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"}, false},
		{[]string{good, "OTEL_EXPORTER_OTLP_CLIENT_KEY=" + noPEM, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=" + noPEM}, []string{"and OTEL_EXPORTER_OTLP_CLIENT_KEY cannot be used"}, false},
	} {
		t.Run(strings.Join(tc.variables, " "), func(t *testing.T) {
			tel, l := start(t, tc.variables...)
			if (tel == nil) != tc.off {
				t.Errorf("off %v, want %v", tel == nil, tc.off)
			}
			for _, want := range tc.want {
				if !strings.Contains(l.String(), want) {
					t.Errorf("not logged: %s", want)
				}
			}
			if strings.Contains(l.String(), "hunter2") {
				t.Error("a value is logged that could be secret")
			}
			if t.Failed() {
				t.Logf("logged: %s", l)
			}
		})
	}
}

// wait waits until a span has been sent.
func wait(t *testing.T, c *telemetrytest.Collector, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := c.Wait(ctx, func() bool { return len(c.Named(name)) > 0 }); err != nil {
		t.Fatalf("span %s was not sent within two minutes", name)
	}
}

// waitFor waits until a text has been logged.
func waitFor(t *testing.T, l *loggingtest.Buffer, text string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !strings.Contains(l.String(), text) {
		select {
		case <-deadline:
			t.Fatalf("not logged within a minute: %s; logged: %s", text, l)
		case <-time.After(time.Millisecond):
		}
	}
}
