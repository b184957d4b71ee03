package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/internal/feed"
	"github.com/tidegate/tidegate/internal/webserver"
)

const (
	// mostViewers bounds the pages with a stream of changes; others poll every few
	// seconds.
	mostViewers = 2000
	// heartbeat keeps proxies from cutting a stream on which nothing happens.
	heartbeat = 15 * time.Second
	// quick is the least time between two notifications of breaker events.
	quick = time.Second
)

// live notifies viewers that the page has changed; they fetch it again. All viewers share one
// subscription.
type live struct {
	hub *feed.Hub
	log *slog.Logger
	// expire expires the cache.
	expire func()

	mu      sync.Mutex
	viewers map[*listener]struct{}
	stop    context.CancelFunc
	done    chan struct{} // closed when the subscription has ended
}

// listener is a viewer's stream. changed holds at most one change of each kind.
type listener struct {
	changed chan struct{}
	breaker chan struct{} // breaker events, sent without delay
	ended   chan struct{} // closed when the subscription has ended
	once    sync.Once
}

func newLive(hub *feed.Hub, log *slog.Logger, expire func()) *live {
	return &live{hub: hub, log: log, expire: expire, viewers: map[*listener]struct{}{}}
}

var errTooManyViewers = errors.New("too many viewers")

// join adds a viewer; leave must be called.
func (l *live) join() (*listener, error) {
	v := &listener{changed: make(chan struct{}, 1), breaker: make(chan struct{}, 1), ended: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.viewers) >= mostViewers {
		return nil, errTooManyViewers
	}
	l.viewers[v] = struct{}{}
	if l.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		l.stop, l.done = cancel, make(chan struct{})
		go l.listen(ctx, l.done)
	}
	return v, nil
}

// leave removes a viewer. For the last viewer it waits until the subscription has ended.
func (l *live) leave(v *listener) {
	l.mu.Lock()
	delete(l.viewers, v)
	var done chan struct{}
	if len(l.viewers) == 0 && l.stop != nil {
		l.stop()
		done = l.done
		l.stop = nil
	}
	l.mu.Unlock()
	if done != nil {
		<-done
	}
}

// listen subscribes to the hub until ctx ends. When the hub ends, viewers are disconnected;
// their browsers reconnect.
func (l *live) listen(ctx context.Context, done chan struct{}) {
	defer close(done)
	if err := l.receive(ctx); ctx.Err() == nil && !errors.Is(err, feed.ErrClosed) {
		l.log.Debug("dashboard: pages are not notified of changes", "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done != done || l.stop == nil {
		return // the last viewer has left; later ones have another subscription
	}
	for v := range l.viewers {
		v.once.Do(func() { close(v.ended) })
	}
	l.stop()
	l.stop = nil
}

func (l *live) receive(ctx context.Context) error {
	sub, err := l.hub.Subscribe(ctx, feed.SubscribeOptions{})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer sub.Close()
	var soon <-chan time.Time // when viewers are notified of a breaker or a pause
	var last time.Time
	for {
		select {
		case e, ok := <-sub.C:
			switch {
			case !ok:
				return feed.ErrClosed
			case e.Type != feed.Breaker && e.Type != feed.Destination && e.Type != feed.Gap:
				l.notify(false)
			case soon == nil:
				soon = time.After(quick - time.Since(last))
			}
		case <-soon:
			soon, last = nil, time.Now()
			l.expire()
			l.notify(true)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notify notifies all viewers of a change.
func (l *live) notify(now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for v := range l.viewers {
		c := v.changed
		if now {
			c = v.breaker
		}
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// events notifies the script of changes, by server-sent events.
func (d *Dashboard) events(w http.ResponseWriter, r *http.Request) error {
	if d.live.hub == nil {
		w.WriteHeader(http.StatusNoContent) // which ends the browser's tries
		return nil
	}
	ctx, cancel, err := webserver.Stream(r.Context())
	if err != nil {
		w.WriteHeader(http.StatusNoContent)
		return nil // the page polls instead
	}
	defer cancel()
	v, err := d.live.join()
	if err != nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	defer d.live.leave(v)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
	id, _ := access.From(ctx)
	out := &eventWriter{w: w, flush: http.NewResponseController(w).Flush}
	out.send("retry: 2000\nevent: ready\ndata: {}\n\n")
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	var due <-chan time.Time // when a change is sent
	for out.err == nil {
		changed := v.changed
		if due != nil {
			changed = nil
		}
		select {
		case <-v.breaker:
			out.send(change)
		case <-due:
			due = nil
			out.send(change)
		case <-changed:
			// By then no cached data is older than the event.
			due = time.After(fresh)
		case <-beat.C:
			if !id.Valid() {
				return nil // the page reconnects and gets the login
			}
			out.send(": \n\n")
		case <-v.ended:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// change is the event that viewers get.
const change = "event: change\ndata: {}\n\n"

// eventWriter writes a stream until the first error.
type eventWriter struct {
	w     io.Writer
	flush func() error
	err   error
}

func (e *eventWriter) send(text string) {
	if e.err == nil {
		_, e.err = io.WriteString(e.w, text)
	}
	if e.err == nil {
		e.err = e.flush()
	}
}
