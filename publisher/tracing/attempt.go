package tracing

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Observe adds the spans of attempts to the observers of a publisher. Use it before
// publisher.New. It panics if o is nil.
func (t *Tracing) Observe(o *publisher.Options) { o.Observe(publisher.Observer{Trace: t.Attempt}) }

// Attempt starts the span of an attempt; it is a publisher.Observer's Trace. The span is a
// child of the job's enqueue, or the root of a trace of its own if the job was enqueued
// without one, and ends when the outcome of the job is decided.
//
// Attempts that fail have the status error, also if the job is retried. A job that was
// deferred, cancelled or requeued by a worker that stops has not failed. Attempt panics if the
// job is nil.
func (t *Tracing) Attempt(ctx context.Context, job *jobs.Job) (context.Context, func(publisher.JobEvent)) {
	mustJob("attempt", job)
	// Run's context may have a span and baggage of its own, which are not the job's.
	ctx = baggage.ContextWithoutBaggage(trace.ContextWithSpanContext(ctx, trace.SpanContext{}))
	ctx = t.propagator.Extract(ctx, propagation.MapCarrier(job.Trace))
	attrs := append(attributesOf(job, "process", semconv.MessagingOperationTypeProcess),
		attemptKey.Int(job.Attempt), reschedulesKey.Int(job.RescheduleCount))
	if job.Crashes > 0 {
		attrs = append(attrs, crashesKey.Int(job.Crashes))
	}
	ctx, span := t.tracer.Start(ctx, "process "+job.Destination,
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attrs...))
	return ctx, func(e publisher.JobEvent) {
		span.SetAttributes(attributesOfEvent(e)...)
		if e.Result == publisher.Retried || e.Result == publisher.FailedFinal {
			kind := cmp.Or(e.Outcome, "not_called")
			span.SetAttributes(semconv.ErrorTypeKey.String(kind))
			span.SetStatus(codes.Error, statusOf(e))
		}
		span.End()
	}
}

// attributesOfEvent describes the outcome of the job.
func attributesOfEvent(e publisher.JobEvent) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, 5)
	add := func(key attribute.Key, value string) {
		if value != "" {
			out = append(out, key.String(value))
		}
	}
	add(resultKey, e.Result)
	add(outcomeKey, e.Outcome)
	add(reasonKey, e.Reason)
	add(incidentKey, e.Incident)
	if !e.AvailableAt.IsZero() {
		add(availableAtKey, e.AvailableAt.UTC().Format(time.RFC3339Nano))
	}
	return out
}

// statusOf describes a failure without the response and the text of errors, which can quote
// the payload.
func statusOf(e publisher.JobEvent) string {
	switch {
	case e.Result == publisher.Retried:
		return "failed, to be retried"
	case e.Exhausted:
		return "failed, no retries left"
	}
	return "failed for good"
}
