// Package telemetrytest is a collector of traces for tests: OTLP 1.x in protobuf over HTTP. It keeps the spans that
// it receives.
package telemetrytest

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector is a running collector; its methods may be called at any time.
type Collector struct {
	server *httptest.Server

	mu      sync.Mutex
	spans   []Span
	posts   []Post
	changed chan struct{} // closed at the next request
	status  int           // of the answers; 0: 200
	body    string        // of refusals
	hold    chan struct{} // closed when requests need not wait any more; nil: they need not
}

// Span is a span that was sent.
type Span struct {
	*trace.Span
	// Attributes of the span and the Resource that sent it, as text.
	Attributes, Resource map[string]string
}

// Trace is the id of the span's trace, as text.
func (s Span) Trace() string { return fmt.Sprintf("%x", s.GetTraceId()) }

// ID is the span's own id, as text.
func (s Span) ID() string { return fmt.Sprintf("%x", s.GetSpanId()) }

// Parent is the id of the span's parent, as text; "" without one.
func (s Span) Parent() string { return fmt.Sprintf("%x", s.GetParentSpanId()) }

// Post is a request that was made.
type Post struct {
	Path   string
	Header http.Header
}

// Start runs a collector until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{changed: make(chan struct{})}
	c.server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.server.Close)
	return c
}

// URL is for OTEL_EXPORTER_OTLP_ENDPOINT.
func (c *Collector) URL() string { return c.server.URL }

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	request, err := decode(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.posts = append(c.posts, Post{r.URL.Path, r.Header})
	c.keep(request)
	status, body, hold := c.status, c.body, c.hold
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	if status != 0 {
		http.Error(w, body, status)
	}
}

func decode(r *http.Request) (*collector.ExportTraceServiceRequest, error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		body = unpacked
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	request := &collector.ExportTraceServiceRequest{}
	if err := proto.Unmarshal(text, request); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return request, nil
}

// keep notes the spans of a request; c.mu is held.
func (c *Collector) keep(request *collector.ExportTraceServiceRequest) {
	for _, rs := range request.GetResourceSpans() {
		resource := textOf(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				c.spans = append(c.spans, Span{s, textOf(s.GetAttributes()), resource})
			}
		}
	}
}

func textOf(attributes []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[a.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *common.AnyValue_BoolValue:
			out[a.GetKey()] = strconv.FormatBool(v.BoolValue)
		default:
			out[a.GetKey()] = fmt.Sprint(v)
		}
	}
	return out
}

// Answer has requests answered with a status and a body; 0 accepts them.
func (c *Collector) Answer(status int, body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.body = status, body
}

// Hang has requests wait until the test ends.
func (c *Collector) Hang(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	hold := make(chan struct{})
	c.hold = hold
	t.Cleanup(func() { close(hold) })
}

// Reset forgets what was sent.
func (c *Collector) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans, c.posts = nil, nil
}

// Posts are the requests, in the order of their arrival.
func (c *Collector) Posts() []Post {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Post(nil), c.posts...)
}

// Spans returns the spans that were sent, in the order of their arrival.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Named returns the spans with a name.
func (c *Collector) Named(name string) []Span {
	var out []Span
	for _, s := range c.Spans() {
		if s.GetName() == name {
			out = append(out, s)
		}
	}
	return out
}

// Wait waits until what was sent satisfies cond, or for ctx.
func (c *Collector) Wait(ctx context.Context, cond func() bool) error {
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
