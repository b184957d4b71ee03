package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/tracing"
)

// Why a job was not accepted is named, and not quoted.
func TestEnqueueErrors(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"invalid":  fmt.Errorf("jobs: enqueue: %w", &jobs.ValidationError{Fields: []jobs.FieldError{{Field: "after", Message: "canary"}}}),
		"canceled": fmt.Errorf("canary: %w", context.Canceled),
		"timeout":  fmt.Errorf("canary: %w", context.DeadlineExceeded),
		"redis":    errors.New("canary"),
	} {
		r := record()
		_, end := tracing.New(tracing.Options{TracerProvider: r.provider}).Enqueue(context.Background(), &jobs.Job{Destination: "d"})
		end(err)
		span := r.named(t, "enqueue d", 1)[0]
		if got := attributesOf(span)["error.type"]; got != want {
			t.Errorf("error.type %q, want %q", got, want)
		}
		if span.Status() != (sdktrace.Status{Code: codes.Error, Description: "not enqueued"}) {
			t.Errorf("%s: status %+v", want, span.Status())
		}
		r.noCanaries(t)
	}
}

// A tracestate is kept up to 512 bytes: of a longer one members above 128 go first, then
// the last ones, and the first stay in their order.
func TestTracestateIsBounded(t *testing.T) {
	t.Parallel()
	member := func(name string, size int) string { return name + "=" + strings.Repeat("x", size-len(name)-1) }
	join := func(members ...string) string { return strings.Join(members, ",") }
	for _, tc := range []struct {
		name, state, want string
	}{
		{"none", "", ""},
		{"short", "a=1,b=2", "a=1,b=2"},
		{"just", join(member("a", 255), member("b", 256)), join(member("a", 255), member("b", 256))},
		{"one too long", join(member("a", 256), member("b", 257)), member("a", 256)},
		{"a long one between", join(member("a", 100), member("b", 200), member("c", 100), member("d", 128), member("e", 100)), join(member("a", 100), member("c", 100), member("d", 128), member("e", 100))},
		{"the last ones", join(member("a", 128), member("b", 128), member("c", 128), member("d", 128), "e=1"), join(member("a", 128), member("b", 128), member("c", 128))},
		{"long ones first", join("a=1", member("b", 250), member("c", 250), "d=1", member("e", 128)), join("a=1", member("b", 250), "d=1", member("e", 128))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			state, err := trace.ParseTraceState(tc.state)
			if err != nil {
				t.Fatal(err)
			}
			ctx := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceState: state,
			}))
			carrier, end := tracing.New(tracing.Options{TracerProvider: record().provider}).Enqueue(ctx, &jobs.Job{Destination: "d"})
			end(nil)
			if got := carrier["tracestate"]; got != tc.want {
				t.Errorf("tracestate of %d bytes %q, want %d %q", len(got), got, len(tc.want), tc.want)
			}
			if carrier["traceparent"] == "" {
				t.Error("no traceparent")
			}
		})
	}
}
