// Package embedded runs a Redis server inside this process, for the demo, for development and for
// tests: nothing has to be installed, and everything in it ends with it, unless it keeps
// its data in a folder ([StartIn]). It is no server for production, and one thing it does worse than Redis: it reads no
// further while a client leaves its answers unread, so a pipeline whose answers
// together are larger than the socket buffers (some megabytes) ends in a timeout.
package embedded

import (
	"cmp"
	"crypto/rand"
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Server is a running server. Its TTLs follow the clock.
type Server struct {
	redis    *miniredis.Miniredis
	password string
	folder   *folder // nil: its data ends with it
}

// Start starts an empty server on a free port of the loopback interface, with a
// password of its own that keeps others on the machine out.
func Start() (*Server, error) {
	s, err := startAt("", "")
	if err == nil {
		s.redis.ClockTTL(true)
	}
	return s, err
}

// startAt starts an empty server; "" is a free port, or a new password.
func startAt(address, password string) (*Server, error) {
	s := &Server{redis: miniredis.NewMiniRedis(), password: cmp.Or(password, rand.Text())}
	s.redis.RequireAuth(s.password)
	// Not an in-memory pipe: it has no buffer, so a client that writes a long
	// pipeline before it reads the answers would wait for ever.
	if err := s.redis.StartAddr(cmp.Or(address, "127.0.0.1:0")); err != nil {
		return nil, fmt.Errorf("embedded: start: %w", err)
	}
	return s, nil
}

// URL is the REDIS_URL of the server, password included: any number of clients
// may be opened with it.
func (s *Server) URL() string {
	return fmt.Sprintf("redis://:%s@%s/0", s.password, s.redis.Addr())
}

// Close saves the data if the server has a folder, stops the server, closes its connections and
// waits for them to end.
func (s *Server) Close() error {
	var err error
	if s.folder != nil {
		err, s.folder = s.folder.close(), nil
	}
	s.redis.Close()
	return err
}
