package tracing_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/tracing"
)

// What the three spans of a job cost that succeeds at once, with batches that are thrown
// away.
func BenchmarkSpansOfAJob(b *testing.B) {
	for _, tc := range []struct {
		name    string
		sampler sdktrace.Sampler
	}{{"sampled", sdktrace.AlwaysSample()}, {"unsampled", sdktrace.ParentBased(sdktrace.NeverSample())}} {
		b.Run(tc.name, func(b *testing.B) {
			provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()), sdktrace.WithSampler(tc.sampler))
			defer func() { _ = provider.Shutdown(context.Background()) }()
			t := tracing.New(tracing.Options{TracerProvider: provider})
			call := t.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusCreated, ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody, Request: req}, nil
			}))
			req := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "http://api.example.com/v1/items", http.NoBody)
			job := jobs.Job{ID: "01990000-0000-7000-8000-000000000000", Destination: "gallery", Key: "alice"}
			b.ReportAllocs()
			for b.Loop() {
				carrier, accepted := t.Enqueue(context.Background(), &job)
				accepted(nil)
				job.Trace = carrier
				ctx, ended := t.Attempt(context.Background(), &job)
				resp, err := call.RoundTrip(req.WithContext(ctx))
				if err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
				ended(publisher.JobEvent{Result: publisher.Completed, Outcome: publisher.OutcomeSuccess})
			}
		})
	}
}
