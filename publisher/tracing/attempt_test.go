package tracing_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/tracing"
)

// What a span says of each thing that can become of a job.
func TestAttemptResults(t *testing.T) {
	t.Parallel()
	failed := func(text string) sdktrace.Status { return sdktrace.Status{Code: codes.Error, Description: text} }
	secret := errors.New("canary")
	at := time.Date(2026, 1, 2, 4, 4, 5, 6e6, time.FixedZone("", 3600))
	for _, tc := range []struct {
		name   string
		event  publisher.JobEvent
		want   map[string]string
		status sdktrace.Status
	}{
		{
			"completed",
			publisher.JobEvent{Result: publisher.Completed, Outcome: publisher.OutcomeSuccess},
			map[string]string{"tidegate.result": "completed", "tidegate.outcome": "success"},
			sdktrace.Status{},
		},
		{
			"rescheduled",
			publisher.JobEvent{Result: publisher.Rescheduled, Outcome: publisher.OutcomeRateLimited, Reason: publisher.ReasonRateLimited, Incident: "d-7", AvailableAt: at, Err: secret},
			map[string]string{
				"tidegate.result": "rescheduled", "tidegate.outcome": "rate_limited", "tidegate.reason": "rate_limited",
				"tidegate.incident": "d-7", "tidegate.available_at": "2026-01-02T03:04:05.006Z",
			},
			sdktrace.Status{},
		},
		{
			"put off by its publisher",
			publisher.JobEvent{Result: publisher.Rescheduled, Outcome: publisher.OutcomeRescheduled, Reason: publisher.ReasonPublisher},
			map[string]string{"tidegate.result": "rescheduled", "tidegate.outcome": "rescheduled", "tidegate.reason": "publisher"},
			sdktrace.Status{},
		},
		{
			"to be retried",
			publisher.JobEvent{Result: publisher.Retried, Outcome: publisher.OutcomeTimeout, Err: secret},
			map[string]string{"tidegate.result": "retry", "tidegate.outcome": "timeout", "error.type": "timeout"},
			failed("failed, to be retried"),
		},
		{
			"no retries left",
			publisher.JobEvent{Result: publisher.FailedFinal, Outcome: publisher.OutcomeFailure, Exhausted: true, Err: secret, LastError: "canary"},
			map[string]string{"tidegate.result": "failed", "tidegate.outcome": "failure", "error.type": "failure"},
			failed("failed, no retries left"),
		},
		{
			"permanent",
			publisher.JobEvent{Result: publisher.FailedFinal, Outcome: publisher.OutcomePermanent},
			map[string]string{"tidegate.result": "failed", "tidegate.outcome": "permanent", "error.type": "permanent"},
			failed("failed for good"),
		},
		{
			"no call was made",
			publisher.JobEvent{Result: publisher.FailedFinal, Err: secret},
			map[string]string{"tidegate.result": "failed", "error.type": "not_called"},
			failed("failed for good"),
		},
		{
			"cancelled",
			publisher.JobEvent{Result: publisher.Cancelled, Outcome: publisher.OutcomeCancelled, Err: secret},
			map[string]string{"tidegate.result": "cancelled", "tidegate.outcome": "cancelled"},
			sdktrace.Status{},
		},
		{
			"handed back",
			publisher.JobEvent{Result: publisher.Requeued, Outcome: publisher.OutcomeInterrupted, Err: secret},
			map[string]string{"tidegate.result": "requeued", "tidegate.outcome": "interrupted"},
			sdktrace.Status{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := record()
			_, end := tracing.New(tracing.Options{TracerProvider: r.provider}).Attempt(context.Background(),
				&jobs.Job{ID: "0199", Destination: "d", Attempt: 2, RescheduleCount: 5, Crashes: 1, Priority: jobs.PriorityDefault})
			end(tc.event)
			span := r.named(t, "process d", 1)[0]
			maps.Copy(tc.want, map[string]string{
				"messaging.system": "tidegate", "messaging.operation.name": "process", "messaging.operation.type": "process",
				"messaging.destination.name": "d", "messaging.message.id": "0199",
				"tidegate.attempt": "2", "tidegate.reschedules": "5", "tidegate.crashes": "1",
			})
			if diff := cmp.Diff(tc.want, attributesOf(span)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if span.Status() != tc.status {
				t.Errorf("status %+v, want %+v", span.Status(), tc.status)
			}
			r.noCanaries(t)
		})
	}
}

// A job that was enqueued without tracing, or with what cannot be read, has attempts with
// traces of their own.
func TestAttemptWithoutParent(t *testing.T) {
	t.Parallel()
	for name, carrier := range map[string]map[string]string{
		"none": nil, "garbage": {"traceparent": "x"}, "zero": {"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"},
	} {
		r := record()
		_, end := tracing.New(tracing.Options{TracerProvider: r.provider}).Attempt(context.Background(), &jobs.Job{Destination: "d", Trace: carrier})
		end(publisher.JobEvent{Result: publisher.Completed})
		if span := r.named(t, "process d", 1)[0]; span.Parent().IsValid() || !span.SpanContext().IsValid() {
			t.Errorf("%s: parent %v", name, span.Parent())
		}
	}
}

// Baggage goes with a job only if its propagator is given.
func TestBaggage(t *testing.T) {
	t.Parallel()
	member, err := baggage.NewMember("tenant", "acme")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	ctx := baggage.ContextWithBaggage(context.Background(), bag)
	for _, tc := range []struct {
		name       string
		propagator propagation.TextMapPropagator
		want       string
	}{
		{"by default", nil, ""},
		{"asked for", propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}), "acme"},
	} {
		tr := tracing.New(tracing.Options{TracerProvider: record().provider, Propagator: tc.propagator})
		carrier, end := tr.Enqueue(ctx, &jobs.Job{Destination: "d"})
		end(nil)
		run, ended := tr.Attempt(context.Background(), &jobs.Job{Destination: "d", Trace: carrier})
		ended(publisher.JobEvent{})
		if got := baggage.FromContext(run).Member("tenant").Value(); got != tc.want {
			t.Errorf("%s: the attempt has tenant %q, want %q", tc.name, got, tc.want)
		}
		if !trace.SpanContextFromContext(run).IsValid() {
			t.Errorf("%s: no span", tc.name)
		}
	}
}

// What Run was called with is not what a job belongs to.
func TestAttemptsDoNotBelongToRun(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	tr := tracing.New(tracing.Options{TracerProvider: provider, Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})})
	of, err := baggage.Parse("of=run")
	if err != nil {
		t.Fatal(err)
	}
	run, start := provider.Tracer("test").Start(baggage.ContextWithBaggage(context.Background(), of), "run")
	for _, carrier := range []map[string]string{nil, {"traceparent": "rubbish"}} {
		spans.Reset()
		ctx, end := tr.Attempt(run, &jobs.Job{Destination: "d", Trace: carrier})
		end(publisher.JobEvent{Result: publisher.Completed})
		got := spans.GetSpans()[0]
		if got.Parent.IsValid() || got.SpanContext.TraceID() == start.SpanContext().TraceID() {
			t.Errorf("with %v: span %+v belongs to Run", carrier, got.SpanContext)
		}
		if b := baggage.FromContext(ctx); b.Len() != 0 {
			t.Errorf("with %v: baggage %s", carrier, b)
		}
	}
}
