package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
)

// Bounds of what is logged about a collector that fails.
const (
	repeatAfter = 5 * time.Minute // until a failure is logged again
	maxProblem  = 300             // bytes of its text
)

// exporter stands between the SDK and what sends: it logs failures once in a while,
// where the SDK would log each batch, and can be stopped in the middle of one.
type exporter struct {
	next    sdktrace.SpanExporter
	secrets *secret.Redactor
	log     *slog.Logger
	now     func() time.Time

	life    context.Context // ends with abort
	end     context.CancelFunc
	stopped chan struct{} // closed when the SDK is done with it

	failing outage.Log
	mu      sync.Mutex
	lost    int // spans, since the last batch that arrived
}

var _ sdktrace.SpanExporter = (*exporter)(nil)

func newExporter(next sdktrace.SpanExporter, secrets *secret.Redactor, log *slog.Logger) *exporter {
	e := &exporter{next: next, secrets: secrets, log: log, now: time.Now, stopped: make(chan struct{})}
	e.failing.Every = repeatAfter
	e.life, e.end = context.WithCancel(context.Background())
	return e
}

// ExportSpans sends a batch. Failures are logged here, and not returned to the SDK.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unhook := context.AfterFunc(e.life, cancel)
	defer unhook()
	err := e.next.ExportSpans(ctx, spans)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		if _, log := e.failing.Worked(); log {
			e.log.Info("tracing: spans are sent again", "lost", e.lost)
		}
		e.lost = 0
		return nil
	}
	e.lost += len(spans)
	if e.life.Err() != nil {
		return nil // Telemetry.Shutdown logs it
	}
	if _, log := e.failing.Failed(e.now()); log {
		e.log.Warn("tracing: spans could not be sent, and are lost", "error", e.describe(err), "lost", e.lost)
	}
	return nil
}

// Shutdown is called by the SDK when it sends nothing more.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer close(e.stopped)
	return e.next.Shutdown(ctx)
}

// abort ends what is being sent and waits until the SDK has noticed. It returns how many
// spans were lost since the last batch that arrived.
func (e *exporter) abort() (lost int) {
	e.end()
	<-e.stopped
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost
}

// describe returns what went wrong, without secrets, which a collector's answer might repeat,
// and without a URL, which might hold some. A control character in a secret hides it from the
// first redaction, and is gone for the second one.
func (e *exporter) describe(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return text.CutBytes(e.secrets.Redact(text.OneLine(e.secrets.Redact(err.Error()))), maxProblem)
}
