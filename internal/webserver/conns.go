package webserver

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// conns tracks the open connections. When there are many, it closes connections that wait for
// their client, so that clients that only keep connections open, or send half a header, cannot
// block others.
type conns struct {
	slots   *semaphore.Weighted // of open connections
	closing context.Context     //nolint:containedctx // ends the wait for a slot
	crowded int                 // number of connections from which waiting ones are closed
	perPeer int                 // the same for the connections of one address; 0: no bound

	mu    sync.Mutex
	open  map[net.Conn]*conn
	peers map[string]int // open connections by address
}

// conn is the state of a connection.
type conn struct {
	peer  string
	fresh bool      // has sent nothing yet
	since time.Time // when it began to wait for its client; zero while a request is served
	slot  bool      // has one
}

type connKey struct{}

// context is the server's ConnContext hook.
func (c *conns) context(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, nc)
}

// serves notes that the header of a request has come on a connection.
func (c *conns) serves(ctx context.Context) {
	nc, _ := ctx.Value(connKey{}).(net.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[nc]; known != nil {
		known.since = time.Time{}
	}
}

// served notes that a request has been handled: the server may still wait for the rest of
// its body.
func (c *conns) served(ctx context.Context) {
	nc, _ := ctx.Value(connKey{}).(net.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[nc]; known != nil {
		known.since = time.Now()
	}
}

// changed is the server's ConnState hook. The server accepts no other connection before it returns
// for a new one, so it waits for a slot.
func (c *conns) changed(nc net.Conn, state http.ConnState) {
	if victim := c.note(nc, state); victim != nil {
		_ = victim.Close() // a closed connection may be closed again
	}
	if state == http.StateNew && c.slots.Acquire(c.closing, 1) == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open[nc].slot = true
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
	case state == http.StateClosed, state == http.StateHijacked:
		delete(c.open, nc)
		if known.slot {
			c.slots.Release(1)
		}
		if c.peers[known.peer]--; c.peers[known.peer] == 0 {
			delete(c.peers, known.peer)
		}
	}
	return nil
}

// opened adds a connection and returns one to close for it, nil for none. The caller holds mu.
func (c *conns) opened(nc net.Conn) net.Conn {
	if c.open == nil {
		c.open, c.peers = map[net.Conn]*conn{}, map[string]int{}
	}
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
	case len(c.open)+1 >= c.crowded:
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
	var victims []net.Conn
	for nc, known := range c.open {
		if known.fresh {
			victims = append(victims, nc)
		}
	}
	c.mu.Unlock()
	for _, nc := range victims {
		_ = nc.Close() // a closed connection may be closed again
	}
}
