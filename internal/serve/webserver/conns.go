package webserver

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// bounded accepts a number of connections; more wait in the kernel's backlog until one ends. So that they do not wait for
// clients that only keep a connection, the server keeps none open between requests while three quarters are taken. It
// cuts none that serves a request: slow clients are held to the times of Limits.
type bounded struct {
	net.Listener
	server  *http.Server
	slots   *semaphore.Weighted
	most    int64
	open    atomic.Int64
	closing context.Context // ends the wait for a slot
}

// Accept returns the next connection, with a slot that its Close releases.
func (l *bounded) Accept() (net.Conn, error) {
	if l.slots.Acquire(l.closing, 1) != nil {
		return nil, net.ErrClosed
	}
	nc, err := l.Listener.Accept()
	if err != nil {
		l.slots.Release(1)
		return nil, err //nolint:wrapcheck // the server looks at it
	}
	if l.open.Add(1) == max(1, l.most*3/4) {
		l.server.SetKeepAlivesEnabled(false) // which closes those between requests
	}
	return &conn{TCPConn: nc.(*net.TCPConn), listener: l}, nil //nolint:forcetypeassert // Options says so
}

// conn is a connection with a slot. Unlike a connection of netutil.LimitListener it has CloseWrite, without which
// clients lose the response to a header that is too large.
type conn struct {
	*net.TCPConn
	listener *bounded
	closed   atomic.Bool
}

// Close closes the connection once.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	c.listener.slots.Release(1)
	if c.listener.open.Add(-1) == c.listener.most/2 {
		c.listener.server.SetKeepAlivesEnabled(true)
	}
	return c.TCPConn.Close() //nolint:wrapcheck // the server looks at it
}

type connKey struct{}

// closedBefore reports whether the server has closed the connection of a request just when the request came: it must not
// be handled, for nobody would get the response.
func closedBefore(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*conn)
	return ok && c.closed.Load()
}
