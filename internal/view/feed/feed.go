// Package feed is the event stream of jobs, breakers and destinations: one hub reads Redis when a
// message says that there are events, and fans out to any number of subscribers.
package feed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// The types of events. Types of job events are a prefix and the status.
const (
	JobPrefix   = "job."
	Breaker     = "breaker"
	Destination = "destination"
	// Gap says that events may be missing before the next one; its data names their types.
	// Subscribers that keep state resync.
	Gap = "gap"
)

// Event is an event of a job, a breaker or a destination.
type Event struct {
	// ID is the same at each delivery, by any instance. It begins with the
	// unix milliseconds of At.
	ID string
	// Type is "job.completed", "job.failed", "job.cancelled", "job.expired", or one of
	// the constants.
	Type string
	// Destination of the event; "" for a gap.
	Destination string
	// At is when it happened, on Redis's clock.
	At time.Time
	// Data is a JSON object; of a gap {"of":["breaker","destination"]}, with "job" if job
	// events may be missing too.
	Data json.RawMessage

	queue, job, batch, key string // of a job event
}

// Errors of Subscribe.
var (
	// ErrTooMany: the hub has MostSubscribers already.
	ErrTooMany = errors.New("too many subscribers of events")
	// ErrBadID: After is not the ID of an event.
	ErrBadID = errors.New("not a valid id of an event")
	// ErrClosed: the hub no longer runs.
	ErrClosed = errors.New("the event stream is closed")
)

// Bounds of a hub.
const (
	// MostSubscribers bounds the subscribers of a hub.
	MostSubscribers = 1000
	// buffered is how many events the hub keeps for all subscribers: slower ones catch up
	// from Redis.
	buffered = 4096
	// catchingUp bounds the subscribers that read from Redis at the same time.
	catchingUp = 4
	// firstPoll is how long a first subscriber waits for Redis.
	firstPoll = 5 * time.Second
	// pollWithin bounds a poll, and pollAgain is the pause after one that failed.
	pollWithin, pollAgain = 5 * time.Second, 500 * time.Millisecond
)

// Options configure a Hub.
type Options struct {
	// Every is the interval between polls of all destinations while there are subscribers: they
	// find events whose message was lost. Default 5 s.
	Every time.Duration
	// Linger is how long polling continues after the last subscriber has left: within it a
	// subscriber that reconnects loses no event. Default 30 s; negative: 0.
	Linger time.Duration
	// Logger gets errors. Default: slog.Default().
	Logger *slog.Logger
}

// Hub reads events and fans them out to subscribers.
type Hub struct {
	rdb    redis.UniversalClient
	ns     store.Namespace
	client *jobs.Client
	o      Options
	wake   chan struct{} // gets a value when there is a subscriber
	pages  chan struct{} // semaphore of subscribers that catch up

	mu          sync.Mutex
	closed      bool
	subscribers map[*Subscription]bool
	waiters     map[Awaited]map[chan struct{}]bool
	pumps       sync.WaitGroup
	recent      []Event       // oldest first
	first       uint64        // number of the first of recent
	more        chan struct{} // closed when recent has grown
	ready       chan struct{} // closed after the first poll; nil while the hub is idle
	left        time.Time     // when the last subscriber left
	err         error         // of the last poll
	polls       int
}

// New returns a Hub; Run makes it work.
func New(rdb redis.UniversalClient, client *jobs.Client, o Options) *Hub {
	if o.Every <= 0 {
		o.Every = 5 * time.Second
	}
	o.Linger = cmp.Or(o.Linger, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return &Hub{
		rdb: rdb, ns: store.Namespace(client.Namespace()), client: client, o: o, wake: make(chan struct{}, 1), pages: make(chan struct{}, catchingUp),
		subscribers: map[*Subscription]bool{}, waiters: map[Awaited]map[chan struct{}]bool{}, more: make(chan struct{}),
	}
}

// Run reads events while there are subscribers, until ctx ends. Then it closes all
// subscriptions.
func (h *Hub) Run(ctx context.Context) {
	defer h.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
			if !h.idle() { // subscribers may have left meanwhile
				h.poll(ctx)
			}
		}
	}
}

func (h *Hub) close() {
	h.mu.Lock()
	h.closed = true
	for s := range h.subscribers {
		s.stop()
	}
	h.mu.Unlock()
	h.pumps.Wait()
}

// poll reads events until the hub is idle: of all queues at first and every Every, and of
// the queues of a message when it comes.
func (h *Hub) poll(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	n := store.NewNews()
	listening.Go(func() { n.Listen(ctx, h.rdb, h.ns.EventsChannel()) })
	w := newPoller(h.rdb, h.client)
	var failing, missing outage.Log
	polled := time.Time{} // the last poll of all
	for {
		began := time.Now()
		queues, names, all := n.Take(began)
		all = all || began.Sub(polled) >= h.o.Every
		call, cancel := context.WithTimeout(ctx, pollWithin)
		var events []Event
		var more bool
		var err error
		if all {
			polled = began
			events, more, err = w.poll(call)
		} else {
			events, more, err = w.look(call, queues, names)
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if _, log := failing.Failed(time.Now()); log {
				h.o.Logger.WarnContext(ctx, "events cannot be read; reading is repeated", "error", err)
			}
		} else {
			if _, log := failing.Worked(); log {
				h.o.Logger.InfoContext(ctx, "events are read again")
			}
			if unread := cmp.Or(w.unread, w.unsubscribed); unread == nil {
				missing.Worked()
			} else if _, log := missing.Failed(time.Now()); log {
				h.o.Logger.WarnContext(ctx, "some events cannot be read, and are missing until they can be", "error", unread)
			}
		}
		h.publish(events, err)
		pause := time.Until(polled.Add(h.o.Every))
		switch {
		case err != nil: // messages have been taken
			n.Resync()
			pause = min(h.o.Every, pollAgain)
		case more:
			n.Resync()
			continue
		}
		if !n.Wait(ctx, began, pause, h.pace(), err == nil) || h.idle() {
			return
		}
	}
}

// idle reports whether there was no subscriber for Linger, and then drops the buffer.
func (h *Hub) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subscribers)+len(h.waiters) > 0 || h.ready != nil && time.Since(h.left) < h.o.Linger {
		return false
	}
	h.first += uint64(len(h.recent))
	h.recent, h.ready = nil, nil
	return true
}

// publish buffers the events of a poll and wakes the subscribers.
func (h *Hub) publish(events []Event, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.polls++
	h.err = err
	if err == nil && h.ready != nil {
		select {
		case <-h.ready:
		default:
			close(h.ready)
		}
	}
	if len(events) == 0 {
		return
	}
	h.notify(events)
	h.recent = append(h.recent, events...)
	if over := len(h.recent) - buffered; over > 0 {
		h.recent = append([]Event(nil), h.recent[over:]...)
		h.first += uint64(over)
	}
	close(h.more)
	h.more = make(chan struct{})
}

// end is the number of the next event. The hub is locked.
func (h *Hub) end() uint64 { return h.first + uint64(len(h.recent)) }

// since returns the events from the number on, or waits for more: then it returns none
// and a channel that is closed when there are some. ok is false if the buffer no longer
// has them.
func (h *Hub) since(next uint64) (events []Event, more <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if next < h.first {
		return nil, nil, false
	}
	return h.recent[min(next, h.end())-h.first:], h.more, true
}

// Subscribe subscribes to events; Close must be called. With After the events begin after that event: exactly if the
// hub buffers it, otherwise with some that were delivered before, which have the same IDs. If events may be missing,
// a Gap comes first. ctx bounds Subscribe only. Errors: ErrTooMany, ErrBadID, ErrClosed, the context's, or the error
// of the hub's first poll.
func (h *Hub) Subscribe(ctx context.Context, o SubscribeOptions) (*Subscription, error) {
	if o.After != "" {
		if _, ok := instantOf(o.After); !ok {
			return nil, ErrBadID
		}
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Subscription{c: make(chan Event, ahead), hub: h, o: o, stop: stop, done: make(chan struct{})}
	s.C = s.c
	if err := h.add(ctx, s); err != nil {
		stop()
		return nil, err
	}
	go func() {
		defer h.pumps.Done()
		defer close(s.done)
		defer close(s.c)
		s.pump(life)
	}()
	return s, nil
}

// add adds a subscriber and waits until the hub has polled once.
func (h *Hub) add(ctx context.Context, s *Subscription) error {
	h.mu.Lock()
	if h.closed || len(h.subscribers) >= MostSubscribers {
		defer h.mu.Unlock()
		if h.closed {
			return ErrClosed
		}
		return ErrTooMany
	}
	h.subscribers[s] = true
	h.pumps.Add(1)
	err := h.polled(ctx)
	defer h.mu.Unlock()
	if err == nil {
		s.next, s.last = h.end(), time.Now()
		return nil
	}
	delete(h.subscribers, s)
	h.pumps.Done()
	return err
}

// polled wakes the hub and waits until it has polled once. The hub is locked before and after, and
// not meanwhile.
func (h *Hub) polled(ctx context.Context) (err error) {
	if h.ready == nil {
		h.ready = make(chan struct{})
	}
	ready := h.ready
	select {
	case h.wake <- struct{}{}:
	default:
	}
	h.mu.Unlock()
	defer h.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, firstPoll)
	defer cancel()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		err = fmt.Errorf("feed: subscribe: %w", ctx.Err())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.err, err)
}
