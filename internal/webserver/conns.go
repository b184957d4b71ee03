package webserver

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// conns knows the open connections. When there are many, it closes connections that wait for
// their client, so that clients that only keep connections open, or send half a header, cannot block
// others.
type conns struct {
	slots   *semaphore.Weighted // of open connections
	most    int                 // number of slots
	perPeer int                 // connections of one address; 0: no bound

	mu    sync.Mutex
	open  map[net.Conn]*conn
	peers map[string]int // open connections by address
}

// conn is the state of a connection.
type conn struct {
	peer  string
	fresh bool      // has sent nothing yet
	since time.Time // when it began to wait for its client; zero while a request is served
}

type connKey struct{}

// limited accepts a connection once there is a slot for it. (netutil.LimitListener would hide
// CloseWrite, without which clients lose the response to a header that is too large.)
type limited struct {
	net.Listener
	slots   *semaphore.Weighted
	closing context.Context //nolint:containedctx // ends the wait for a slot
}

// Accept returns the next connection, with a slot that [conns] releases.
func (l limited) Accept() (net.Conn, error) {
	if l.slots.Acquire(l.closing, 1) != nil {
		return nil, net.ErrClosed
	}
	nc, err := l.Listener.Accept()
	if err != nil {
		l.slots.Release(1)
	}
	return nc, err //nolint:wrapcheck // the server looks at it
}

// context is the server's ConnContext hook.
func (c *conns) context(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, nc)
}

// waits notes since when the connection of a request waits for its client; the zero time while
// the request is handled. After that the server may still wait for the rest of its body.
func (c *conns) waits(ctx context.Context, since time.Time) {
	nc, _ := ctx.Value(connKey{}).(net.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[nc]; known != nil {
		known.since = since
	}
}

// changed is the server's ConnState hook.
func (c *conns) changed(nc net.Conn, state http.ConnState) {
	if victim := c.note(nc, state); victim != nil {
		_ = victim.Close() // a closed connection may be closed again
	}
}

// note records a change and returns a connection to close, nil for none.
func (c *conns) note(nc net.Conn, state http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.open[nc]
	switch {
	case state == http.StateNew:
		return c.opened(nc)
	case known == nil:
	case state == http.StateActive:
		known.fresh = false
	case state == http.StateIdle:
		known.since = time.Now()
		if len(c.open) >= c.most {
			return nc // others wait to be accepted
		}
	case state == http.StateClosed, state == http.StateHijacked:
		delete(c.open, nc)
		c.slots.Release(1)
		if c.peers[known.peer]--; c.peers[known.peer] == 0 {
			delete(c.peers, known.peer)
		}
	}
	return nil
}

// opened adds a connection and returns one to close for it, nil for none. The caller holds mu.
func (c *conns) opened(nc net.Conn) net.Conn {
	peer, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		peer = nc.RemoteAddr().String()
	}
	var victim net.Conn
	switch {
	case c.perPeer > 0 && c.peers[peer] >= c.perPeer:
		if victim = c.oldest(peer); victim == nil {
			victim = nc // all the others are being served
		}
	case len(c.open)+1 >= max(1, c.most*3/4):
		victim = c.oldest("")
	}
	c.open[nc] = &conn{peer: peer, fresh: true, since: time.Now()}
	c.peers[peer]++
	if victim != nil {
		c.open[victim].since = time.Time{} // not chosen again until it is closed
	}
	return victim
}

// oldest is the connection of an address that has waited longest; for "" of the address with the
// most connections. Nil if none waits. The caller holds mu.
func (c *conns) oldest(peer string) net.Conn {
	var found net.Conn
	var best *conn
	for nc, known := range c.open {
		if known.since.IsZero() || peer != "" && known.peer != peer {
			continue
		}
		if best != nil {
			more := c.peers[known.peer] - c.peers[best.peer]
			if more < 0 || more == 0 && !known.since.Before(best.since) {
				continue
			}
		}
		found, best = nc, known
	}
	return found
}

// closeFresh closes the connections that have sent nothing yet, as browsers open in advance.
func (c *conns) closeFresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for nc, known := range c.open {
		if known.fresh {
			_ = nc.Close() // a closed connection may be closed again
		}
	}
}
