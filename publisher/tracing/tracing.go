// Package tracing makes OpenTelemetry spans of jobs: one of kind producer for each
// enqueue, one of kind consumer for each attempt, and one of kind client for the call of
// an HTTP destination. The attempts are children of the enqueue, whose trace context is
// stored with the job: the life of a job is one trace.
//
//	t := tracing.New(tracing.Options{TracerProvider: provider})
//	client, err := jobs.NewClient(rdb, jobs.WithTrace(t.Enqueue))
//	options := publisher.Options{…}
//	t.Observe(&options)
//	p, err := publisher.New(rdb, options)
//
// A program that does not import this package does not link OpenTelemetry.
//
// Names and attributes follow the semantic conventions for messaging and HTTP, version 1.43, with messaging.system
// "tidegate". Other attributes have the prefix "tidegate.". No span has a payload, a token, a header, a query string
// or a response of an API; docs/tracing.md lists all attributes.
package tracing

import (
	"cmp"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidegate/tidegate/jobs"
)

// scope names this package to OpenTelemetry.
const scope = "github.com/tidegate/tidegate/publisher/tracing"

// system is the messaging system of all spans.
const system = "tidegate"

// Attributes that the semantic conventions have no name for.
const (
	// attemptKey counts earlier retries: 0 in the first attempt, as "attempt" in the output
	// of `tidegate get`.
	attemptKey     = attribute.Key("tidegate.attempt")
	reschedulesKey = attribute.Key("tidegate.reschedules") // made before
	crashesKey     = attribute.Key("tidegate.crashes")     // before; only if there were some
	keyKey         = attribute.Key("tidegate.key")         // of a job with one
	batchKey       = attribute.Key("tidegate.batch")       // of a job in one
	priorityKey    = attribute.Key("tidegate.priority")    // unless it is the default
	duplicateKey   = attribute.Key("tidegate.duplicate")   // true if the id existed

	resultKey      = attribute.Key("tidegate.result")       // as publisher.JobEvent.Result
	outcomeKey     = attribute.Key("tidegate.outcome")      // of the call; publisher.JobEvent.Outcome
	reasonKey      = attribute.Key("tidegate.reason")       // of a reschedule
	incidentKey    = attribute.Key("tidegate.incident")     // that deferred the job
	availableAtKey = attribute.Key("tidegate.available_at") // RFC 3339; earliest next attempt
)

// Options say where spans go.
type Options struct {
	// TracerProvider makes the spans. Default: the global one of otel.
	TracerProvider trace.TracerProvider
	// Propagator writes the trace context into a job and reads it. Default: W3C Trace
	// Context. Baggage is not kept with jobs unless its propagator is part of this one.
	Propagator propagation.TextMapPropagator
	// PropagateToAPI has Transport send the trace context to the API too. Default: it is
	// not sent: an external API belongs to another party, which the identifiers would let
	// correlate its calls.
	PropagateToAPI bool
}

// Tracing makes the spans. Its methods can be called by many goroutines at once.
type Tracing struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	toAPI      bool
}

// New returns a Tracing.
func New(o Options) *Tracing {
	o.TracerProvider = cmp.Or(o.TracerProvider, otel.GetTracerProvider())
	o.Propagator = cmp.Or[propagation.TextMapPropagator](o.Propagator, propagation.TraceContext{})
	return &Tracing{
		tracer:     o.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),
		propagator: o.Propagator,
		toAPI:      o.PropagateToAPI,
	}
}

// mustJob panics if the job of a span is nil.
func mustJob(function string, job *jobs.Job) {
	if job == nil {
		panic("tracing: " + function + ": the job is nil; pass the job of the span")
	}
}

// attributesOf identifies the job of a span.
func attributesOf(job *jobs.Job, operation string, kind attribute.KeyValue) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, 12)
	out = append(out,
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingOperationName(operation),
		kind,
		semconv.MessagingDestinationName(job.Destination),
		semconv.MessagingMessageID(job.ID),
	)
	if job.Key != "" {
		out = append(out, keyKey.String(job.Key))
	}
	if job.Batch != "" {
		out = append(out, batchKey.String(job.Batch))
	}
	if job.Priority != "" && job.Priority != jobs.PriorityDefault {
		out = append(out, priorityKey.String(string(job.Priority)))
	}
	return out
}
