package tracing_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/tracing"
)

// The enqueue and the attempts of a job are one trace.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	spans := tracetest.NewSpanRecorder() // yours sends them to a collector
	tracer := tracing.New(tracing.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})

	// The app.
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("gallery"), jobs.WithTrace(tracer.Enqueue))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Enqueue(ctx, jobs.New("gallery", "Dusk")); err != nil {
		log.Fatal(err)
	}

	// The worker.
	p, err := publisher.New(rdb, publisher.Options{
		Logger:    slog.New(slog.DiscardHandler),
		Observers: []publisher.Observer{{Trace: tracer.Attempt}, {OnJob: func(publisher.JobEvent) { cancel() }}},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = p.Handle("gallery", publisher.Func(func(context.Context, *jobs.Job) error { return nil }))
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}

	all := spans.Ended()
	for _, s := range all {
		fmt.Println(s.SpanKind(), s.Name(), s.SpanContext().TraceID() == all[0].SpanContext().TraceID())
	}
	// Output:
	// producer enqueue gallery true
	// consumer process gallery true
}
