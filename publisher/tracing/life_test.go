package tracing_test

import (
	"context"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/tracing"
)

// From the app's own span through the enqueue, an attempt that fails and one that
// succeeds: one trace, which holds nothing that it must not, and of which the API sees
// nothing.
func TestOneTraceFromEnqueueToTheEnd(t *testing.T) {
	t.Parallel()
	b := newFixture(t, tracing.Options{})
	b.api.Queue(fakeapi.Answer{Status: http.StatusInternalServerError, Body: "canary-answer"})
	ctx, request := b.provider.Tracer("app").Start(context.Background(), "request")
	j := b.enqueue(ctx, jobs.Key("alice"), jobs.Batch("b1"), jobs.Prioritize(jobs.PriorityHigh), jobs.Path("/items/7"), jobs.Query("q=canary-query"),
		jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: time.Second}))
	request.End()
	retry := b.want(publisher.Retried)
	b.want(publisher.Completed)

	app := b.named(t, "request", 1)[0]
	enqueue := b.named(t, "enqueue "+b.dest, 1)[0]
	attempts := b.named(t, "process "+b.dest, 2)
	calls := b.named(t, "POST", 2)
	if n := len(b.spans()); n != 6 {
		t.Errorf("%d spans, want 6: %s", n, b.describe())
	}
	for _, tc := range []struct {
		name          string
		child, parent sdktrace.ReadOnlySpan
		kind          trace.SpanKind
	}{
		{"enqueue", enqueue, app, trace.SpanKindProducer},
		{"first attempt", attempts[0], enqueue, trace.SpanKindConsumer},
		{"second attempt", attempts[1], enqueue, trace.SpanKindConsumer},
		{"first call", calls[0], attempts[0], trace.SpanKindClient},
		{"second call", calls[1], attempts[1], trace.SpanKindClient},
	} {
		if !childOf(tc.child, tc.parent) {
			t.Errorf("%s is no child of %s", tc.name, tc.parent.Name())
		}
		if tc.child.SpanKind() != tc.kind {
			t.Errorf("%s: kind %s, want %s", tc.name, tc.child.SpanKind(), tc.kind)
		}
		if tc.child.InstrumentationScope().SchemaURL != "https://opentelemetry.io/schemas/1.43.0" {
			t.Errorf("%s: schema %q", tc.name, tc.child.InstrumentationScope().SchemaURL)
		}
	}

	job := func(operation, kind string, more map[string]string) map[string]string {
		out := map[string]string{
			"messaging.system": "tidegate", "messaging.operation.name": operation, "messaging.operation.type": kind,
			"messaging.destination.name": b.dest, "messaging.message.id": j.ID,
			"tidegate.key": "alice", "tidegate.batch": "b1", "tidegate.priority": "high",
		}
		maps.Copy(out, more)
		return out
	}
	call := func(status string, more map[string]string) map[string]string {
		out := attributesOf(calls[0])
		want := map[string]string{
			"http.request.method": "POST", "http.response.status_code": status, "network.protocol.version": "1.1",
			"server.address": out["server.address"], "server.port": out["server.port"],
			"url.full": "http://" + out["server.address"] + ":" + out["server.port"] + "/REDACTED",
		}
		maps.Copy(want, more)
		return want
	}
	for _, tc := range []struct {
		name   string
		span   sdktrace.ReadOnlySpan
		status sdktrace.Status
		want   map[string]string
	}{
		{"enqueue", enqueue, sdktrace.Status{}, job("enqueue", "send", nil)},
		{
			"first attempt", attempts[0],
			sdktrace.Status{Code: codes.Error, Description: "failed, to be retried"},
			job("process", "process", map[string]string{
				"tidegate.attempt": "0", "tidegate.reschedules": "0", "tidegate.result": "retry", "tidegate.outcome": "failure",
				"tidegate.available_at": attributesOf(attempts[0])["tidegate.available_at"], "error.type": "failure",
			}),
		},
		{
			"second attempt", attempts[1],
			sdktrace.Status{},
			job("process", "process", map[string]string{
				"tidegate.attempt": "1", "tidegate.reschedules": "0", "tidegate.result": "completed", "tidegate.outcome": "success",
			}),
		},
		{"first call", calls[0], sdktrace.Status{Code: codes.Error}, call("500", map[string]string{"error.type": "500"})},
		{"second call", calls[1], sdktrace.Status{}, call("201", nil)},
	} {
		if diff := cmp.Diff(tc.want, attributesOf(tc.span)); diff != "" {
			t.Errorf("%s: attributes (-want +got):\n%s", tc.name, diff)
		}
		if tc.span.Status() != tc.status {
			t.Errorf("%s: status %+v, want %+v", tc.name, tc.span.Status(), tc.status)
		}
	}
	if at := attributesOf(attempts[0])["tidegate.available_at"]; at == "" || retry.AvailableAt.IsZero() {
		t.Errorf("available_at %q, event %v", at, retry.AvailableAt)
	}
	b.noCanaries(t)
	for _, r := range b.api.Receipts() {
		for _, name := range []string{"Traceparent", "Tracestate", "Baggage"} {
			if r.Header.Get(name) != "" {
				t.Errorf("the API was sent %s", name)
			}
		}
	}
}

// A job that is put off has not failed: its attempt says why, by which incident and until
// when, and the next one is in the same trace.
func TestTraceOfAReschedule(t *testing.T) {
	t.Parallel()
	b := newFixture(t, tracing.Options{})
	b.api.Queue(fakeapi.Answer{Status: http.StatusTooManyRequests})
	b.enqueue(context.Background())
	event := b.want(publisher.Rescheduled)
	b.want(publisher.Completed)
	attempts := b.named(t, "process "+b.dest, 2)
	enqueue := b.named(t, "enqueue "+b.dest, 1)[0]
	first, second := attributesOf(attempts[0]), attributesOf(attempts[1])
	if event.Incident == "" || first["tidegate.incident"] != event.Incident {
		t.Errorf("incident %q, want %q", first["tidegate.incident"], event.Incident)
	}
	for key, want := range map[string]string{"tidegate.result": "rescheduled", "tidegate.reason": "rate_limited", "tidegate.outcome": "rate_limited"} {
		if first[key] != want {
			t.Errorf("%s %q, want %q", key, first[key], want)
		}
	}
	if first["tidegate.available_at"] == "" || first["error.type"] != "" || attempts[0].Status().Code != codes.Unset {
		t.Errorf("attributes %v, status %+v", first, attempts[0].Status())
	}
	if second["tidegate.reschedules"] != "1" || second["tidegate.attempt"] != "0" || second["tidegate.result"] != "completed" {
		t.Errorf("the second attempt: %v", second)
	}
	if !childOf(attempts[0], enqueue) || !childOf(attempts[1], enqueue) {
		t.Error("the attempts are not children of the enqueue")
	}
	call := b.named(t, "POST", 2)[0]
	if got := attributesOf(call)["error.type"]; got != "429" {
		t.Errorf("error.type of the call %q, want 429", got)
	}
}

// Each job of EnqueueMany has a span, and its attempt finds it.
func TestTracesOfMany(t *testing.T) {
	t.Parallel()
	b := newFixture(t, tracing.Options{})
	const n = 20
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i)
	}
	ctx, request := b.provider.Tracer("app").Start(context.Background(), "request")
	if _, err := b.client.EnqueueMany(ctx, specs); err != nil {
		t.Fatal(err)
	}
	request.End()
	for range n {
		b.want(publisher.Completed)
	}
	app := b.named(t, "request", 1)[0]
	producers := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range b.named(t, "enqueue "+b.dest, n) {
		if !childOf(s, app) {
			t.Error("an enqueue is no child of the app's span")
		}
		producers[attributesOf(s)["messaging.message.id"]] = s
	}
	if len(producers) != n {
		t.Fatalf("enqueues of %d jobs, want %d", len(producers), n)
	}
	for _, s := range b.named(t, "process "+b.dest, n) {
		if !childOf(s, producers[attributesOf(s)["messaging.message.id"]]) {
			t.Error("an attempt is no child of its job's enqueue")
		}
	}
}

// An enqueue with an id that exists says so, and the job stays in the trace that it has.
func TestTraceOfADuplicate(t *testing.T) {
	t.Parallel()
	b := newFixture(t, tracing.Options{})
	id := jobs.ID(b.dest + "-a")
	b.enqueue(context.Background(), id)
	b.enqueue(context.Background(), id)
	b.want(publisher.Completed)
	enqueues := b.named(t, "enqueue "+b.dest, 2)
	first, again := attributesOf(enqueues[0]), attributesOf(enqueues[1])
	if first["tidegate.duplicate"] != "" || again["tidegate.duplicate"] != "true" {
		t.Errorf("duplicate %q and %q, want none and true", first["tidegate.duplicate"], again["tidegate.duplicate"])
	}
	if enqueues[1].Status().Code != codes.Unset {
		t.Errorf("status of the duplicate %+v", enqueues[1].Status())
	}
	if attempt := b.named(t, "process "+b.dest, 1)[0]; !childOf(attempt, enqueues[0]) {
		t.Error("the attempt is no child of the first enqueue")
	}
}

// Only who asks for it sends trace context to the API, which is that of the call's span.
func TestPropagateToAPI(t *testing.T) {
	t.Parallel()
	b := newFixture(t, tracing.Options{PropagateToAPI: true})
	b.enqueue(context.Background())
	b.want(publisher.Completed)
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(b.api.Receipts()[0].Header))
	got, want := trace.SpanContextFromContext(ctx), b.named(t, "POST", 1)[0].SpanContext()
	if got.SpanID() != want.SpanID() || got.TraceID() != want.TraceID() {
		t.Errorf("the API was sent %s/%s, want %s/%s", got.TraceID(), got.SpanID(), want.TraceID(), want.SpanID())
	}
}

// A job's own header of that name is the job's business.
func TestTheJobsOwnTraceparent(t *testing.T) {
	t.Parallel()
	b := newFixture(t, tracing.Options{})
	b.enqueue(context.Background(), jobs.Header("Traceparent", "mine"))
	b.want(publisher.Completed)
	if got := b.api.Receipts()[0].Header.Get("Traceparent"); got != "mine" {
		t.Errorf("the API was sent Traceparent %q, want the job's own", got)
	}
}

// What a sampler leaves out at the enqueue is left out for the whole life of the job.
func TestUnsampled(t *testing.T) {
	t.Parallel()
	r := record()
	b := newFixture(t, tracing.Options{TracerProvider: sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(r.SpanRecorder),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample(), sdktrace.WithRemoteParentSampled(sdktrace.AlwaysSample()))),
	)})
	j := b.enqueue(context.Background())
	b.want(publisher.Completed)
	if n := len(r.Started()); n != 0 {
		t.Errorf("%d spans, want none", n)
	}
	if parent := j.Trace["traceparent"]; len(parent) != 55 || parent[53:] != "00" {
		t.Errorf("traceparent %q, want one that is not sampled", parent)
	}
}
