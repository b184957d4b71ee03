// Package embedded runs a Redis server for the demo, for development and for tests. [Start] runs it inside this process:
// nothing has to be installed, and everything in it ends with it. It is no server for production, and one thing it does
// worse than Redis: it reads no further while a client leaves its answers unread, so a pipeline whose answers together
// are larger than the socket buffers (some megabytes) ends in a timeout. [StartIn] prefers a redis-server that is
// installed.
package embedded

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Server is a running server. Its TTLs follow the clock.
type Server struct {
	// Kept says that the data outlives the process.
	Kept bool

	url  string
	stop func() error
}

// expireEvery is the least time between two looks at TTLs, whose precision it is, and expireShare that time as a multiple
// of what the last look took: commands wait for it.
const (
	expireEvery = 10 * time.Millisecond
	expireShare = 20
)

// Start starts an empty server on a free port of the loopback interface, with a
// password of its own that keeps others on the machine out.
func Start() (*Server, error) {
	server, password := miniredis.NewMiniRedis(), rand.Text()
	server.RequireAuth(password)
	// Not an in-memory pipe: it has no buffer, so a client that writes a long
	// pipeline before it reads the answers would wait for ever.
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("embedded: start: %w", err)
	}
	life, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		expire(life, server)
	}()
	return &Server{url: fmt.Sprintf("redis://:%s@%s/0", password, server.Addr()), stop: func() error {
		end()
		<-ended
		server.Close()
		return nil
	}}, nil
}

// expire lets TTLs follow the clock until ctx ends. With miniredis's ClockTTL each command would sort all keys.
func expire(ctx context.Context, server *miniredis.Miniredis) {
	last, pause := time.Now(), expireEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		now := time.Now()
		server.FastForward(now.Sub(last))
		last, pause = now, max(expireEvery, expireShare*time.Since(now))
	}
}

// URL is the REDIS_URL of the server, password included: any number of clients
// may be opened with it.
func (s *Server) URL() string { return s.url }

// Close stops the server, closes its connections and waits for them to end.
func (s *Server) Close() error {
	if s.stop == nil {
		return nil
	}
	stop := s.stop
	s.stop = nil
	return stop()
}
