package webserver

import (
	"fmt"
	"net"
	"sync"
)

// limited bounds the open connections. Connections of net/netutil cannot be closed in one
// direction only: a client that is still sending when it is refused would see a broken
// connection instead of the response.
type limited struct {
	net.Listener
	room   chan struct{} // has a value for each free slot
	closed chan struct{}
	once   sync.Once
}

func limit(l net.Listener, most int) *limited {
	room := make(chan struct{}, most)
	for range most {
		room <- struct{}{}
	}
	return &limited{Listener: l, room: room, closed: make(chan struct{})}
}

// Accept waits for a free slot, then for a connection.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case <-l.room:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		l.room <- struct{}{}
		return nil, err //nolint:wrapcheck // http.Server checks its type
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		l.room <- struct{}{}
		return nil, fmt.Errorf("webserver: accepted a %T", c)
	}
	return &place{TCPConn: tcp, free: sync.OnceFunc(func() { l.room <- struct{}{} })}, nil
}

// Close ends Accept.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close() //nolint:wrapcheck // http.Server's own call
}

// place is a connection that has a slot.
type place struct {
	*net.TCPConn
	free func()
}

// Close closes the connection and frees its slot.
func (p *place) Close() error {
	defer p.free()
	return p.TCPConn.Close() //nolint:wrapcheck // http.Server's own call
}
