package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Transport makes a span of each request that goes through next, a child of the one in
// the request's context: for a call of an HTTP destination the attempt. It ends when the
// body has been read or closed. By the conventions for HTTP clients, responses from 400
// have the status error, 429 included.
//
// The span has the scheme, host and port of the URL, and REDACTED for a path. A nil next is
// http.DefaultTransport.
func (t *Tracing) Transport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport //nolint:forbidigo // net/http's default for nil
	}
	return &transport{t, next}
}

type transport struct {
	*Tracing
	next http.RoundTripper
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, errors.New("tracing: round trip: the request is nil")
	}
	name, method := methodOf(req.Method)
	ctx, span := t.tracer.Start(req.Context(), name,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(append(target(req.URL), method)...))
	if t.toAPI {
		req = req.Clone(ctx) // a RoundTripper must not change the request
		t.propagator.Inject(ctx, propagation.HeaderCarrier(req.Header))
	} else {
		req = req.WithContext(ctx)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		fail(span, errorType(err))
		span.End()
		return resp, err
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(resp.StatusCode), versionOf(resp))
	if resp.StatusCode >= http.StatusBadRequest {
		fail(span, strconv.Itoa(resp.StatusCode))
	}
	if _, switched := resp.Body.(io.Writer); switched || resp.Body == nil {
		span.End() // a switched protocol has no end that belongs to the call
		return resp, nil
	}
	resp.Body = &body{ReadCloser: resp.Body, span: span}
	return resp, nil
}

// methodOf returns the name of the span and the attribute. An unknown method is not named, to
// bound the names of spans.
func methodOf(method string) (string, attribute.KeyValue) {
	switch method {
	case "":
		return http.MethodGet, semconv.HTTPRequestMethodGet
	case http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
		http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace:
		return method, semconv.HTTPRequestMethodKey.String(method)
	}
	return "HTTP", semconv.HTTPRequestMethodOther
}

// versionOf is the version of HTTP: "1.1", "2".
func versionOf(resp *http.Response) attribute.KeyValue {
	version := strconv.Itoa(resp.ProtoMajor)
	if resp.ProtoMajor < 2 {
		version += "." + strconv.Itoa(resp.ProtoMinor)
	}
	return semconv.NetworkProtocolVersion(version)
}

// target is the address of a request without its path, which can be a credential of bots and
// webhooks.
func target(u *url.URL) []attribute.KeyValue {
	plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/"}
	if strings.Trim(u.Path, "/") != "" {
		plain.Path += "REDACTED"
	}
	out := make([]attribute.KeyValue, 0, 4)
	out = append(out, semconv.URLFull(plain.String()), semconv.ServerAddress(u.Hostname()))
	port, err := strconv.Atoi(u.Port())
	switch {
	case err == nil:
	case u.Scheme == "https":
		port = 443
	default:
		port = 80
	}
	return append(out, semconv.ServerPort(port))
}

func fail(span trace.Span, kind string) {
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	span.SetStatus(codes.Error, "") // the conventions: no description if error.type suffices
}

// errorType classifies a missing or incomplete response.
func errorType(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
		return "timeout"
	}
	return fmt.Sprintf("%T", err)
}

// body ends the span of its request.
type body struct {
	io.ReadCloser
	span trace.Span
	once sync.Once
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.once.Do(func() { b.span.End() })
	case err != nil:
		b.once.Do(func() {
			fail(b.span, errorType(err))
			b.span.End()
		})
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() { b.span.End() })
	return err
}
