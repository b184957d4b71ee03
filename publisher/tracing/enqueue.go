package tracing

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidegate/tidegate/jobs"
)

// Enqueue starts the span of an enqueue; it is for jobs.WithTrace. The span is a child of
// the one in ctx and ends when the job has been accepted or refused. Jobs of one
// EnqueueMany have a span each. It panics if the job is nil.
func (t *Tracing) Enqueue(ctx context.Context, job *jobs.Job) (carrier map[string]string, end func(error)) {
	mustJob("enqueue", job)
	ctx, span := t.tracer.Start(ctx, "enqueue "+job.Destination,
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attributesOf(job, "enqueue", semconv.MessagingOperationTypeSend)...))
	carrier = map[string]string{}
	t.propagator.Inject(ctx, propagation.MapCarrier(carrier))
	boundTracestate(carrier)
	return carrier, func(err error) {
		if job.Duplicate {
			span.SetAttributes(duplicateKey.Bool(true))
		}
		if err != nil {
			span.SetAttributes(enqueueErrorType(err))
			span.SetStatus(codes.Error, "not enqueued")
		}
		span.End()
	}
}

// enqueueErrorType classifies why a job was refused, without the text of the error, which can
// quote the job.
func enqueueErrorType(err error) attribute.KeyValue {
	switch {
	case jobs.Refused(err):
		return semconv.ErrorTypeKey.String("invalid")
	case errors.Is(err, context.Canceled):
		return semconv.ErrorTypeKey.String("canceled")
	case errors.Is(err, context.DeadlineExceeded):
		return semconv.ErrorTypeKey.String("timeout")
	}
	return semconv.ErrorTypeKey.String("redis")
}

// Bounds of a tracestate (W3C Trace Context, section 3.3.1.5): at most 512 characters; members
// above 128 characters are dropped first, then the last members.
const (
	maxTracestate       = 512
	longTracestateEntry = 128
)

// boundTracestate shortens the tracestate that is stored with a job.
func boundTracestate(carrier map[string]string) {
	const name = "tracestate"
	state := carrier[name]
	if len(state) <= maxTracestate {
		return
	}
	members := strings.Split(state, ",")
	for i := len(members) - 1; i >= 0 && joined(members) > maxTracestate; i-- {
		if len(members[i]) > longTracestateEntry {
			members = append(members[:i], members[i+1:]...)
		}
	}
	for joined(members) > maxTracestate {
		members = members[:len(members)-1]
	}
	if len(members) == 0 {
		delete(carrier, name)
		return
	}
	carrier[name] = strings.Join(members, ",")
}

// joined is the length of the members with commas between them.
func joined(members []string) int {
	n := max(len(members)-1, 0)
	for _, m := range members {
		n += len(m)
	}
	return n
}
