package tracing_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
	"github.com/tidegate/tidegate/publisher/tracing"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// recording makes spans and keeps them.
type recording struct {
	*tracetest.SpanRecorder
	provider *sdktrace.TracerProvider
}

func record() recording {
	r := tracetest.NewSpanRecorder()
	return recording{r, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r))}
}

// spans returns the spans that have ended, in the order of their start.
func (r recording) spans() []sdktrace.ReadOnlySpan {
	var out []sdktrace.ReadOnlySpan
	for _, s := range r.Started() {
		if !s.EndTime().IsZero() {
			out = append(out, s)
		}
	}
	return out
}

// named returns the spans of a name, and fails the test unless there are n.
func (r recording) named(t *testing.T, name string, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	var out []sdktrace.ReadOnlySpan
	for _, s := range r.spans() {
		if s.Name() == name {
			out = append(out, s)
		}
	}
	if len(out) != n {
		t.Fatalf("%d spans %q, want %d; there are %s", len(out), name, n, r.describe())
	}
	slices.SortStableFunc(out, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return out
}

func (r recording) describe() string {
	var out []string
	for _, s := range r.spans() {
		out = append(out, fmt.Sprintf("%s %v", s.Name(), attributesOf(s)))
	}
	return strings.Join(out, "\n")
}

// attributesOf gives attributes as text.
func attributesOf(s sdktrace.ReadOnlySpan) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes() {
		out[string(a.Key)] = a.Value.String()
	}
	return out
}

func childOf(child, parent sdktrace.ReadOnlySpan) bool {
	return child.Parent().SpanID() == parent.SpanContext().SpanID() && child.Parent().TraceID() == parent.SpanContext().TraceID()
}

// fixture is one HTTP destination with its API, a client and a worker, all traced.
type fixture struct {
	recording
	t      *testing.T
	dest   string
	rdb    redis.UniversalClient
	api    *fakeapi.API
	client *jobs.Client
	events chan publisher.JobEvent
	early  []publisher.JobEvent // that want has passed over
}

func newFixture(t *testing.T, o tracing.Options) *fixture {
	t.Helper()
	b := &fixture{
		recording: record(), t: t, dest: redistest.Name(t, "d"), rdb: redistest.Shared(t).Client(t),
		api: fakeapi.New(fakeapi.Options{}), events: make(chan publisher.JobEvent, 1000),
	}
	if o.TracerProvider == nil {
		o.TracerProvider = b.provider
	}
	tracer := tracing.New(o)
	url, err := b.api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.api.Close() })
	b.client, err = jobs.NewClient(b.rdb, jobs.WithDestinations(b.dest), jobs.WithTrace(tracer.Enqueue))
	if err != nil {
		t.Fatal(err)
	}
	p, err := publisher.New(b.rdb, publisher.Options{
		Logger: slog.New(slog.DiscardHandler), RetryLoopInterval: 50 * time.Millisecond,
		Observers: []publisher.Observer{{Trace: tracer.Attempt, OnJob: func(e publisher.JobEvent) { b.events <- e }}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h, err := httpdest.New(httpdest.Options{
		URL: url + "/v1?api_key=canary-apikey", AuthToken: "canary-token", Wrap: tracer.Transport,
		Header: map[string][]string{"X-Secret": {"canary-header"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle(b.dest, h, publisher.Breaker(breaker.Options{FailureThreshold: 1, Cooldown: 200 * time.Millisecond})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		_ = h.Close()
	})
	return b
}

func (b *fixture) enqueue(ctx context.Context, opts ...jobs.Option) *jobs.Job {
	b.t.Helper()
	j, err := b.client.Enqueue(ctx, jobs.New(b.dest, "canary-payload", opts...))
	if err != nil {
		b.t.Fatal(err)
	}
	return j
}

// want waits for such a result. The event of an attempt may come after that of the next one.
func (b *fixture) want(result string) publisher.JobEvent {
	b.t.Helper()
	is := func(e publisher.JobEvent) bool { return e.Result == result }
	timeout := time.After(time.Minute)
	for !slices.ContainsFunc(b.early, is) {
		select {
		case e := <-b.events:
			b.early = append(b.early, e)
		case <-timeout:
			b.t.Fatalf("not within a minute: %s; there were %+v", result, b.early)
		}
	}
	i := slices.IndexFunc(b.early, is)
	e := b.early[i]
	b.early = slices.Delete(b.early, i, i+1)
	return e
}

// noCanaries checks that no span holds what it must not.
func (r recording) noCanaries(t *testing.T) {
	t.Helper()
	for _, s := range r.spans() {
		text := fmt.Sprintf("%s %v %+v %+v %v", s.Name(), attributesOf(s), s.Events(), s.Status(), s.SpanContext().TraceState())
		if strings.Contains(text, "canary") {
			t.Errorf("a span holds a secret or the payload: %s", text)
		}
	}
}
