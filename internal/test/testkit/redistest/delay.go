package redistest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Delayed is the address of a proxy to addr on which every byte arrives d later, both ways: commands
// that are sent together arrive together, and a round trip takes 2 d more.
func Delayed(t testing.TB, addr string, d time.Duration) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err != nil {
				_ = near.Close()
				continue
			}
			end := context.AfterFunc(ctx, func() { _ = near.Close(); _ = far.Close() })
			work.Go(func() { defer end(); delay(far, near, d) })
			work.Go(func() { delay(near, far, d) })
		}
	})
	return listener.Addr().String()
}

// delay copies from one connection to the other until one of them ends, and closes both.
func delay(to, from net.Conn, d time.Duration) {
	type part struct {
		bytes []byte
		due   time.Time
	}
	parts := make(chan part, 10_000)
	go func() {
		defer close(parts)
		for {
			bytes := make([]byte, 64<<10)
			n, err := from.Read(bytes)
			if n > 0 {
				parts <- part{bytes[:n], time.Now().Add(d)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range parts {
		<-time.After(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range parts { // the reader ends, as its connection is closed
	}
}
