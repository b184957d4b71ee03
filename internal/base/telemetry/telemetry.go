// Package telemetry sends spans to a collector by OTLP over HTTP, as the OTEL_ variables
// of the environment say.
//
// What concerns all of a process is set here and nowhere else: OpenTelemetry's own log is
// silenced, because its exporter writes the value of a header that it cannot read there.
package telemetry

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Options say where Start reads its settings, and how the process is named in traces.
type Options struct {
	// Environ has the form of os.Environ, which it should be: what Start decides and
	// checks it takes from here, but OpenTelemetry's exporter and SDK read the settings
	// of their own (headers, timeouts, certificates, sampler, batches, resource
	// attributes) from the process's environment themselves.
	Environ []string
	// Version of this program: service.version.
	Version string
	// Instance names this process: service.instance.id. "": it is left out.
	Instance string
	// Logger gets warnings: settings that cannot be used, and a collector that cannot be
	// reached. Required.
	Logger *slog.Logger
}

// Telemetry is what Start has started.
type Telemetry struct {
	provider   *sdktrace.TracerProvider
	batches    sdktrace.SpanProcessor
	propagator propagation.TextMapPropagator
	exporter   *exporter
	log        *slog.Logger
}

// Start makes what sends spans, or returns nil: tracing is off unless
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, and with
// OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none. Settings that cannot be used are
// warned of and passed over; where nothing could be sent with the rest, it returns nil.
//
// Nothing is sent yet, and a slow or missing collector delays no caller: spans are
// dropped then.
func Start(ctx context.Context, o Options) *Telemetry {
	env := environmentOf(o.Environ)
	if !env.wanted() {
		return nil
	}
	silence(o.Logger)
	problems, usable := env.check()
	for _, p := range problems {
		o.Logger.WarnContext(ctx, "tracing: a setting cannot be used", "variable", p.variable, "problem", p.text)
	}
	if !usable {
		o.Logger.WarnContext(ctx, "tracing is off: no spans can be sent with these settings")
		return nil
	}
	client, err := otlptracehttp.New(ctx)
	if err != nil {
		o.Logger.WarnContext(ctx, "tracing is off: no spans can be sent with these settings", "error", err)
		return nil
	}
	t := &Telemetry{exporter: newExporter(client, env.secrets(), o.Logger), propagator: env.propagator(), log: o.Logger}
	t.batches = sdktrace.NewBatchSpanProcessor(t.exporter)
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(t.batches), sdktrace.WithResource(describe(ctx, o)))
	_, endpoint := env.setting("ENDPOINT")
	o.Logger.DebugContext(ctx, "tracing: spans are sent", "endpoint", withoutCredentials(endpoint))
	return t
}

// silence keeps OpenTelemetry from writing to stderr by itself. Both settings are the
// process's.
func silence(log *slog.Logger) {
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("tracing", "error", err)
	}))
}

// describe names this process. The environment has the last word.
func describe(ctx context.Context, o Options) *resource.Resource {
	attrs := []resource.Option{resource.WithAttributes(semconv.ServiceName("tidegate"), semconv.ServiceVersion(o.Version))}
	if o.Instance != "" {
		attrs = append(attrs, resource.WithAttributes(semconv.ServiceInstanceID(o.Instance)))
	}
	attrs = append(attrs, resource.WithTelemetrySDK(), resource.WithFromEnv())
	r, err := resource.New(ctx, attrs...)
	if err != nil {
		o.Logger.WarnContext(ctx, "tracing: a setting cannot be used", "variable", "OTEL_RESOURCE_ATTRIBUTES", "problem", err)
	}
	return r
}

// TracerProvider makes spans that are sent.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.provider }

// Propagator is what OTEL_PROPAGATORS says: W3C Trace Context by default, and baggage only
// if it is named.
func (t *Telemetry) Propagator() propagation.TextMapPropagator { return t.propagator }

// Shutdown sends the spans that have ended, for at most that long, and stops: nothing is
// sent when it has returned. It may be called on nil.
func (t *Telemetry) Shutdown(within time.Duration) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	// Not the provider: it would stop nothing if the time were over already. The error is
	// the context's; the exporter logs other ones.
	_ = t.batches.Shutdown(ctx)
	if lost := t.exporter.abort(); lost > 0 && ctx.Err() != nil {
		t.log.Warn("tracing: the collector did not take the last spans in time", "lost", lost)
	}
}

// withoutCredentials is an endpoint without its user and its query.
func withoutCredentials(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
