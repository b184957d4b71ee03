package modeltest

import (
	"net"
	"sync"
)

// bufferedConn takes what is written without waiting for the other side to read, as
// the kernel does for a socket: net.Pipe has no buffer, and a client that still
// writes a long pipeline would wait for a server that has begun to answer it.
type bufferedConn struct {
	net.Conn
	written chan []byte
	close   sync.Once
}

func buffered(c net.Conn) net.Conn {
	b := &bufferedConn{Conn: c, written: make(chan []byte, 1000)}
	go func() {
		for p := range b.written {
			if _, err := c.Write(p); err != nil {
				return // the reader finds out
			}
		}
	}()
	return b
}

func (b *bufferedConn) Write(p []byte) (int, error) {
	b.written <- append([]byte(nil), p...)
	return len(p), nil
}

func (b *bufferedConn) Close() error {
	b.close.Do(func() { close(b.written) })
	return b.Conn.Close()
}
