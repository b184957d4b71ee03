package redisconn

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// dialer makes the connections of one client. go-redis dials in goroutines of
// its own, which closing the client does not end, and over TLS it dials without
// a context; this one ends with stop.
type dialer struct {
	net net.Dialer
	tls *tls.Config // nil for an unencrypted connection

	life    context.Context
	endLife context.CancelFunc

	mu      sync.Mutex
	stopped bool
	dialing sync.WaitGroup
}

func newDialer(timeout time.Duration, config *tls.Config) *dialer {
	d := &dialer{net: net.Dialer{Timeout: timeout}, tls: config}
	d.life, d.endLife = context.WithCancel(context.Background())
	return d
}

// dial makes one connection, within ctx and the life of the client.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	if d.stopped {
		d.mu.Unlock()
		return nil, net.ErrClosed
	}
	d.dialing.Add(1)
	d.mu.Unlock()
	defer d.dialing.Done()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	forget := context.AfterFunc(d.life, cancel)
	defer forget()
	if d.tls == nil {
		conn, err := d.net.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &lastWords{Conn: conn}, nil
	}
	secure := tls.Dialer{NetDialer: &d.net, Config: d.tls} // takes a name that the config lacks from addr
	return secure.DialContext(ctx, network, addr)
}

// stop ends what is being dialled, waits for it, and refuses more.
func (d *dialer) stop() {
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
	d.endLife()
	d.dialing.Wait()
}
