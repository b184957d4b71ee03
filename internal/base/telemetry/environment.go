package telemetry

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"

	"github.com/tidegate/tidegate/internal/base/secret"
)

// environment holds the OTEL_ variables that are set. One that is empty counts as unset,
// as OpenTelemetry's specification has it.
type environment map[string]string

func environmentOf(environ []string) environment {
	env := environment{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if value = strings.TrimSpace(value); value != "" && strings.HasPrefix(name, "OTEL_") {
			env[name] = value
		}
	}
	return env
}

const prefix = "OTEL_EXPORTER_OTLP_"

// setting returns the variable, and its value, that an exporter's setting is taken from:
// the one for traces, or the one for all signals.
func (e environment) setting(name string) (variable, value string) {
	for _, variable := range []string{prefix + "TRACES_" + name, prefix + name} {
		if value := e[variable]; value != "" {
			return variable, value
		}
	}
	return "", ""
}

// wanted reports whether spans are to be sent.
func (e environment) wanted() bool {
	_, endpoint := e.setting("ENDPOINT")
	return endpoint != "" && !strings.EqualFold(e["OTEL_SDK_DISABLED"], "true") && !slices.Equal(e.list("OTEL_TRACES_EXPORTER"), []string{"none"})
}

// list is a value with commas in it.
func (e environment) list(variable string) []string {
	var out []string
	for item := range strings.SplitSeq(e[variable], ",") {
		if item = strings.ToLower(strings.TrimSpace(item)); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// propagator is what OTEL_PROPAGATORS says. Its default in OpenTelemetry has baggage in
// it; here that is kept with jobs only if it is named, because it can hold anything.
func (e environment) propagator() propagation.TextMapPropagator {
	named := e.list("OTEL_PROPAGATORS")
	if named == nil {
		return propagation.TraceContext{}
	}
	var out []propagation.TextMapPropagator
	for _, name := range named {
		switch name {
		case "tracecontext":
			out = append(out, propagation.TraceContext{})
		case "baggage":
			out = append(out, propagation.Baggage{})
		}
	}
	return propagation.NewCompositeTextMapPropagator(out...)
}

// secrets takes out what must not be logged: what is secret of the exporter's headers.
func (e environment) secrets() *secret.Redactor {
	header := http.Header{}
	for _, variable := range []string{prefix + "HEADERS", prefix + "TRACES_HEADERS"} {
		for pair := range strings.SplitSeq(e[variable], ",") {
			name, value, _ := strings.Cut(pair, "=")
			value = strings.TrimSpace(value)
			header.Add(strings.TrimSpace(name), value)
			if sent, err := url.PathUnescape(value); err == nil {
				header.Add(strings.TrimSpace(name), sent)
			}
		}
	}
	return secret.New(secret.OfHeader(header)...)
}
