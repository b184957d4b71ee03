package webserver

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// conns knows the open connections. When there are many, idle ones give way: whoever
// only keeps connections open keeps nobody else out.
type conns struct {
	crowded int // from this many on idle ones are closed

	mu    sync.Mutex
	open  int
	fresh map[net.Conn]bool      // has sent nothing yet
	idle  map[net.Conn]time.Time // since when
}

// changed is the server's ConnState hook.
func (c *conns) changed(conn net.Conn, state http.ConnState) {
	if victim := c.note(conn, state); victim != nil {
		_ = victim.Close() // a closed connection may be closed again
	}
}

// note keeps the books and returns a connection to close, nil for none.
func (c *conns) note(conn net.Conn, state http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open++
		if c.fresh == nil {
			c.fresh, c.idle = map[net.Conn]bool{}, map[net.Conn]time.Time{}
		}
		c.fresh[conn] = true
		if c.open >= c.crowded {
			return c.oldest()
		}
	case http.StateActive:
		delete(c.fresh, conn)
		delete(c.idle, conn)
	case http.StateIdle:
		c.idle[conn] = time.Now()
	case http.StateClosed, http.StateHijacked:
		delete(c.fresh, conn)
		delete(c.idle, conn)
		c.open--
	}
	return nil
}

// oldest is the connection that has been idle longest, nil if none is. The caller
// holds mu.
func (c *conns) oldest() net.Conn {
	var found net.Conn
	var since time.Time
	for conn, at := range c.idle {
		if found == nil || at.Before(since) {
			found, since = conn, at
		}
	}
	delete(c.idle, found)
	return found
}

// closeFresh closes the connections that have sent nothing yet, as browsers keep them
// ready.
func (c *conns) closeFresh() {
	c.mu.Lock()
	victims := slices.Collect(maps.Keys(c.fresh))
	c.mu.Unlock()
	for _, conn := range victims {
		_ = conn.Close() // a closed connection may be closed again
	}
}
