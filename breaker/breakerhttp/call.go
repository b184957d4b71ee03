package breakerhttp

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// call is one request in flight. The request of a probe, or of a metered call, is cancelled
// at the end of the permit's lease unless its header has arrived by then.
//
// A deadline of the context would cut the body too, so a timer cancels it; and as
// the body is read after RoundTrip, the context ends with the body.
type call struct {
	req    *http.Request // the caller's, or a copy with a context of ours
	origin *http.Request
	cancel context.CancelCauseFunc // nil without a lease
	timer  *time.Timer
	over   atomic.Bool // the header has arrived or the lease has ended, whichever was first
}

func newCall(req *http.Request, until time.Time) *call {
	c := &call{req: req, origin: req}
	if until.IsZero() {
		return c
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	c.req, c.cancel = req.WithContext(ctx), cancel
	c.timer = time.AfterFunc(time.Until(until), func() {
		if c.over.CompareAndSwap(false, true) {
			cancel(context.DeadlineExceeded)
		}
	})
	return c
}

// answered ends the wait for the header and reports whether the lease still ran.
func (c *call) answered() bool {
	if c.timer == nil {
		return true
	}
	c.timer.Stop()
	return c.over.CompareAndSwap(false, true)
}

// hasBody reports whether a response goes on behind its header.
func hasBody(resp *http.Response) bool { return resp.Body != nil && resp.Body != http.NoBody }

// handOver passes the call's context to the body. ended is called when that has been read or closed, or
// when the caller's context ends; nil if nothing waits for that.
func (c *call) handOver(resp *http.Response, ended func()) {
	if resp.Request == c.req {
		resp.Request = c.origin
	}
	if !hasBody(resp) {
		c.end()
		return
	}
	if c.cancel == nil && ended == nil {
		return
	}
	end := c.end
	if ended != nil {
		once := sync.OnceFunc(ended)
		stop := context.AfterFunc(c.origin.Context(), once)
		end = func() {
			c.end()
			stop()
			once()
		}
	}
	body := &body{ReadCloser: resp.Body, end: end}
	resp.Body = body
	if w, ok := body.ReadCloser.(io.Writer); ok { // 101 Switching Protocols
		resp.Body = writableBody{body, w}
	}
}

// end releases the call's context.
func (c *call) end() {
	if c.cancel != nil {
		c.timer.Stop()
		c.cancel(nil)
	}
}

// body ends the call when it has been read or closed.
type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

type writableBody struct {
	*body
	io.Writer
}

// leaseError is the error of a request that was cancelled because its permit's lease ended.
type leaseError struct{ cut error }

func (e *leaseError) Error() string {
	return "breakerhttp: no answer within the lease of the breaker's permit (ProbeTimeout): " + e.cut.Error()
}

// Timeout marks the error as a timeout for http.Client.
func (e *leaseError) Timeout() bool { return true }

// Unwrap returns the RoundTripper's error, and context.DeadlineExceeded.
func (e *leaseError) Unwrap() []error { return []error{context.DeadlineExceeded, e.cut} }
