package telemetry

import (
	"net/url"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
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

// secrets are what must not be logged: the values of headers, as they are written and as
// they are sent, and the halves of what an Authorization header has.
func (e environment) secrets() []string {
	var out []string
	for _, variable := range []string{prefix + "HEADERS", prefix + "TRACES_HEADERS"} {
		for pair := range strings.SplitSeq(e[variable], ",") {
			_, value, _ := strings.Cut(pair, "=")
			out = append(out, strings.TrimSpace(value))
			if sent, err := url.PathUnescape(value); err == nil {
				out = append(out, strings.TrimSpace(sent))
				out = append(out, strings.Fields(sent)...)
			}
		}
	}
	const shortest = 4 // bytes; what is shorter is no secret, and stands in any text
	out = slices.DeleteFunc(out, func(s string) bool { return len(s) < shortest })
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(out)
}
