package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/telemetry"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
	"github.com/tidegate/tidegate/publisher/tracing"
)

// Tracing makes and sends spans; nil makes none.
type Tracing struct {
	telemetry *telemetry.Telemetry
	spans     *tracing.Tracing
}

// StartTracing starts what the OTEL_* variables ask for: nil unless they name a
// collector. Stop must be called.
func StartTracing(ctx context.Context, environ []string, version string, log *slog.Logger) *Tracing {
	t := telemetry.Start(ctx, telemetry.Options{Environ: environ, Version: version, Instance: breaker.ProcessName(), Logger: log})
	if t == nil {
		return nil
	}
	return &Tracing{t, tracing.New(tracing.Options{TracerProvider: t.TracerProvider(), Propagator: t.Propagator()})}
}

// clientOptions have a client make a span of each enqueue.
func (t *Tracing) clientOptions() []jobs.ClientOption {
	if t == nil {
		return nil
	}
	return []jobs.ClientOption{jobs.WithTrace(t.spans.Enqueue)}
}

// observe has a publisher make a span of each attempt.
func (t *Tracing) observe(o *publisher.Options) {
	if t != nil {
		t.spans.Observe(o)
	}
}

// wrap has an HTTP destination make a span of each call.
func (t *Tracing) wrap(o *httpdest.Options) {
	if t != nil {
		o.Wrap = t.spans.Transport
	}
}

// Stop sends what is left, for at most that long.
func (t *Tracing) Stop(within time.Duration) {
	if t != nil {
		t.telemetry.Shutdown(within)
	}
}
