package store

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A subscription on which nothing is published outlives a proxy that cuts idle connections, since
// it is pinged more often.
func TestIdleSubscriptionIsPinged(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 3 s")
	}
	const idle = time.Second
	for name, tc := range map[string]struct {
		silence time.Duration
		cut     bool
	}{
		"pinged":     {idle / 10, false},
		"not pinged": {10 * idle, true}, // the proxy cuts an idle connection
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cut atomic.Int32
			addr := idleProxy(t, redistest.Shared(t).Addr(), idle, &cut)
			rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
			t.Cleanup(func() { _ = rdb.Close() })
			first := make(chan string, 100)
			var work sync.WaitGroup
			work.Go(func() {
				listen(t.Context(), rdb, tc.silence, func(channel string) { first <- channel }, func(*redis.Message) {}, redistest.Name(t, "channel"))
			})
			t.Cleanup(work.Wait)
			<-first
			select {
			case <-first:
			case <-time.After(3 * idle):
			}
			if got := cut.Load() > 0; got != tc.cut {
				t.Errorf("the proxy has cut %d connections", cut.Load())
			}
		})
	}
}

// idleProxy passes on connections, and cuts those on which nothing is sent for so long.
func idleProxy(t *testing.T, to string, idle time.Duration, cut *atomic.Int32) (addr string) {
	t.Helper()
	var dialer net.Dialer
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); work.Wait() })
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := dialer.DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			end := func() { _, _ = client.Close(), server.Close() }
			timer := time.AfterFunc(idle, func() { cut.Add(1); end() })
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				work.Go(func() {
					defer end()
					defer timer.Stop()
					buf := make([]byte, 4096)
					for {
						n, err := way[0].Read(buf)
						if err != nil {
							return
						}
						timer.Reset(idle)
						if _, err := way[1].Write(buf[:n]); err != nil {
							return
						}
					}
				})
			}
		}
	})
	return listener.Addr().String()
}
