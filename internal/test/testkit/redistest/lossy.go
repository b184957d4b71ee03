package redistest

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Lossy is a proxy to a server that loses replies: the commands arrive there, and run.
type Lossy struct {
	// Addr is its address.
	Addr string

	mu    sync.Mutex
	conns map[net.Conn]bool // to clients
	muted bool
	lost  float64 // share of replies
	n     int     // of the replies that are lost by that
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

// Lose loses a share of the replies from now on; each breaks its connection.
func (p *Lossy) Lose(share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = share
}

// Lost returns how many replies are lost by Lose.
func (p *Lossy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// Client returns a client that goes through the proxy and gives up a reply after half a second. It does not repeat
// commands.
func (p *Lossy) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: p.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, ReadTimeout: 500 * time.Millisecond,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	closeLater(t, client)
	return client
}

// Blips are what the clients of a server lose of it for a moment, by name; they go through p. With a clock it is
// stepped, too; a blip that is named "mixed" is another one each time.
func Blips(t testing.TB, s *Server, p *Lossy, clock *Clock) map[string]func() {
	t.Helper()
	blips := map[string]func(){
		"replies lost": func() {
			p.Mute()
			<-time.After(200 * time.Millisecond)
			p.Break()
		},
		"connections broken": p.Break,
		"connections killed": func() {
			if err := s.Client(t).ClientKillByFilter(t.Context(), "TYPE", "normal").Err(); err != nil {
				t.Error(err)
			}
		},
		"killed": func() {
			s.Kill()
			<-time.After(300 * time.Millisecond)
			s.Restart()
		},
	}
	if clock == nil {
		return blips
	}
	steps, n := []time.Duration{90 * time.Second, -time.Minute, time.Hour, 1900 * time.Millisecond}, 0
	blips["clock stepped"] = func() {
		clock.Step(steps[n%len(steps)])
		n++
	}
	names, i := slices.Sorted(maps.Keys(blips)), 0
	blips["mixed"] = func() {
		blips[names[i%len(names)]]()
		i++
	}
	return blips
}

// Gauge counts what is under way.
type Gauge struct {
	mu               sync.Mutex
	now, most, total int
}

// Begin counts one more.
func (g *Gauge) Begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now, g.total = g.now+1, g.total+1
	g.most = max(g.most, g.now)
}

// End counts one less.
func (g *Gauge) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

// Counts returns how many were under way at once at most, and how many have begun.
func (g *Gauge) Counts() (most, total int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most, g.total
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
		broken := replies && rand.Float64() < p.lost //nolint:gosec // a test's chance
		if broken {
			p.n++
		}
		p.mu.Unlock()
		if broken {
			return
		}
		if lost {
			continue
		}
		if _, err := to.Write(bytes[:n]); err != nil {
			return
		}
	}
}
