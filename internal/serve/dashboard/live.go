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

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/view/feed"
)

const (
	// mostViewers bounds the pages with a stream of changes; others poll every few
	// seconds.
	mostViewers = 2000
	// heartbeat keeps proxies from cutting a stream on which nothing happens.
	heartbeat = 15 * time.Second
	// quick is the least time between two notifications of breaker events.
	quick = time.Second
	// fresh is how long cached data may be served.
	fresh = time.Second
)

// live notifies viewers that the page has changed; they fetch it again. All viewers share one
// subscription, which lasts as long as there are some.
type live struct {
	hub *feed.Hub
	log *slog.Logger
	// expire expires the cache.
	expire func()

	mu      sync.Mutex
	viewers int
	stop    context.CancelFunc // of the subscription
	ended   chan struct{}      // closed when the subscription has ended
	jobs    chan struct{}      // closed when jobs have changed
	breaker chan struct{}      // closed when a breaker or a pause has changed
}

func newLive(hub *feed.Hub, log *slog.Logger, expire func()) *live {
	return &live{hub: hub, log: log, expire: expire, jobs: make(chan struct{}), breaker: make(chan struct{})}
}

// join adds a viewer, unless there are too many, and returns when the subscription has ended; leave
// must be called.
func (l *live) join() (ended <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.viewers == mostViewers {
		return nil, false
	}
	if l.viewers++; l.viewers == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		l.stop, l.ended = cancel, done
		go func() {
			defer close(done)
			if err := l.listen(ctx); ctx.Err() == nil && !errors.Is(err, feed.ErrClosed) {
				l.log.Debug("dashboard: pages are not notified of changes", "error", err)
			}
		}()
	}
	return l.ended, true
}

// leave removes a viewer. For the last viewer it waits until the subscription has ended.
func (l *live) leave() {
	l.mu.Lock()
	ended := l.ended
	l.viewers--
	last := l.viewers == 0
	if last {
		l.stop()
	}
	l.mu.Unlock()
	if last {
		<-ended
	}
}

// listen notifies viewers of the hub's events until ctx or the hub ends. In the latter case viewers are
// disconnected; their browsers reconnect.
func (l *live) listen(ctx context.Context) error {
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
				l.notify(&l.jobs)
			case soon == nil:
				soon = time.After(quick - time.Since(last))
			}
		case <-soon:
			soon, last = nil, time.Now()
			l.expire()
			l.notify(&l.breaker)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notify notifies all viewers of a change.
func (l *live) notify(changed *chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(*changed)
	*changed = make(chan struct{})
}

// changes are closed by the next change of jobs, and of a breaker.
func (l *live) changes() (jobs, breaker <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs, l.breaker
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
	ended, ok := d.live.join()
	if !ok {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	defer d.live.leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
	id, _ := access.From(ctx)
	control := http.NewResponseController(w)
	send := func(text string) { // until the first error
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err == nil {
			err = control.Flush()
		}
	}
	send("retry: 2000\nevent: ready\ndata: {}\n\n")
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	jobs, breaker := d.live.changes()
	var due <-chan time.Time // when a change is sent
	for err == nil {
		select {
		case <-breaker:
			_, breaker = d.live.changes()
			send(change)
		case <-due:
			due = nil
			jobs, _ = d.live.changes()
			send(change)
		case <-jobs:
			// By then no cached data is older than the event.
			due, jobs = time.After(fresh), nil
		case <-beat.C:
			if !id.Valid() {
				return nil // the page reconnects and gets the login
			}
			send(": \n\n")
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// change is the event that viewers get.
const change = "event: change\ndata: {}\n\n"
