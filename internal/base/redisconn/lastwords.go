package redisconn

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lastWords is a connection that reports why the server has closed it: Redis writes an error,
// such as that it has too many clients, and closes without a command. go-redis takes such an
// error for the reply to its HELLO, and goes on.
type lastWords struct {
	net.Conn

	mu    sync.Mutex
	reads int
	first string // what the first read returned, if it is an error
}

const (
	// lastWordsWithin bounds the wait for the error of a connection that is closed already.
	lastWordsWithin = 100 * time.Millisecond
	maxLastWords    = 1024 // bytes
)

// serverError is an error that the server wrote before it closed the connection.
type serverError struct {
	text  string
	cause error
}

func (e *serverError) Error() string { return e.text }
func (e *serverError) Unwrap() error { return e.cause }

func (c *lastWords) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.read(b[:n])
	}
	return n, c.explain(err, n > 0)
}

func (c *lastWords) read(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = min(c.reads+1, 2)
	c.first = ""
	if c.reads == 1 && b[0] == '-' {
		c.first = string(b[:min(len(b), maxLastWords)])
	}
}

func (c *lastWords) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil {
		return n, nil
	}
	c.mu.Lock()
	unread := c.reads == 0
	c.mu.Unlock()
	if unread && closedByServer(err) && c.SetReadDeadline(time.Now().Add(lastWordsWithin)) == nil {
		if said, _ := io.ReadAll(io.LimitReader(c.Conn, maxLastWords)); len(said) > 0 {
			c.read(said)
		}
	}
	return n, c.explain(err, false)
}

func closedByServer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// explain returns the server's error, if that is all it said before it closed the connection.
func (c *lastWords) explain(err error, more bool) error {
	if err == nil || more || !closedByServer(err) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	line, _, _ := strings.Cut(c.first, "\r\n")
	if line == "" {
		return err
	}
	return &serverError{text: line[1:], cause: err}
}

// SyscallConn lets go-redis see whether the connection is alive.
func (c *lastWords) SyscallConn() (syscall.RawConn, error) {
	if conn, is := c.Conn.(syscall.Conn); is {
		return conn.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
