package redistest

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Lossy is a proxy to a server that loses replies: the commands arrive there, and run.
type Lossy struct {
	// Addr is its address.
	Addr string

	mu    sync.Mutex
	conns map[net.Conn]bool // to clients
	muted bool
}

// NewLossy returns a proxy to addr that loses nothing yet.
func NewLossy(t testing.TB, addr string) *Lossy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Lossy{Addr: listener.Addr().String(), conns: map[net.Conn]bool{}}
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		p.Break()
		work.Wait()
	})
	work.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
			if err != nil {
				_ = near.Close()
				continue
			}
			p.mu.Lock()
			p.conns[near] = true
			p.mu.Unlock()
			work.Go(func() { p.copy(far, near, false) })
			work.Go(func() { p.copy(near, far, true) })
		}
	})
	return p
}

// Mute loses all replies until Break.
func (p *Lossy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = true
}

// Break breaks all connections, whose outstanding replies are lost, and lets replies of further ones through.
func (p *Lossy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = false
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *Lossy) copy(to, from net.Conn, replies bool) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	bytes := make([]byte, 64<<10)
	for {
		n, err := from.Read(bytes)
		if err != nil {
			return
		}
		p.mu.Lock()
		lost := replies && (p.muted || !p.conns[to])
		p.mu.Unlock()
		if lost {
			continue
		}
		if _, err := to.Write(bytes[:n]); err != nil {
			return
		}
	}
}
