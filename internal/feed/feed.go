// Package feed tells of what happens to jobs and breakers as it happens, to as many as
// want to hear it for what one costs.
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

	"github.com/tidegate/tidegate/jobs"
)

// The types of events. Those of jobs have the status behind the prefix.
const (
	JobPrefix   = "job."
	Breaker     = "breaker"
	Destination = "destination"
	// Gap says that events may be missing before the next one, and of which kinds:
	// whoever keeps a picture of them makes it anew.
	Gap = "gap"
)

// Event is something that has happened.
type Event struct {
	// ID is the same wherever and however often the event is told. It begins with the
	// unix milliseconds of At.
	ID string
	// Type is "job.completed", "job.failed", "job.cancelled", "job.expired", or one of
	// the constants.
	Type string
	// Destination that it is about; "" of a gap.
	Destination string
	// At is when it happened, on Redis's clock.
	At time.Time
	// Data is a JSON object. That of a gap is {"of":["breaker","destination"]}, with "job"
	// where ends of jobs may be missing, too.
	Data json.RawMessage
}

// Errors of Subscribe.
var (
	// ErrTooMany says that MostSubscribers listen already.
	ErrTooMany = errors.New("too many listen to events already")
	// ErrBadID says that what was given as the last event's id is none.
	ErrBadID = errors.New("no id of an event")
	// ErrClosed says that the hub does not run any more.
	ErrClosed = errors.New("the feed of events is closed")
)

// Bounds of a hub.
const (
	// MostSubscribers is how many listen at once at most.
	MostSubscribers = 1000
	// remembered is how many events are kept for all: who is farther behind reads them
	// from Redis.
	remembered = 4096
	// catchingUp is how many do that at the same time.
	catchingUp = 4
	// firstLook is how long a first subscriber waits for Redis.
	firstLook = 5 * time.Second
)

// Options configure a Hub.
type Options struct {
	// Every is how often Redis is asked while somebody listens. Default 500 ms.
	Every time.Duration
	// Linger is how long Redis is asked after the last one has left, who may come back
	// then without having missed anything. Default 30 s; negative: not at all.
	Linger time.Duration
	// Logger gets what goes wrong. Default: slog.Default().
	Logger *slog.Logger
}

// Hub asks Redis for all who listen.
type Hub struct {
	rdb    redis.UniversalClient
	client *jobs.Client
	o      Options
	wake   chan struct{} // somebody listens
	pages  chan struct{} // held by those who catch up

	mu          sync.Mutex
	closed      bool
	subscribers map[*Subscription]bool
	pumps       sync.WaitGroup
	recent      []Event       // oldest first
	first       uint64        // number of the first of recent
	news        chan struct{} // closed when there is more than recent has
	looked      chan struct{} // closed when what happens from then on is told; nil: nobody listens
	left        time.Time     // when the last one left
	trouble     error         // of the last look
	looks       int
}

// New returns a Hub; Run makes it work.
func New(rdb redis.UniversalClient, client *jobs.Client, o Options) *Hub {
	if o.Every <= 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.Linger == 0 {
		o.Linger = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Hub{
		rdb: rdb, client: client, o: o, wake: make(chan struct{}, 1), pages: make(chan struct{}, catchingUp),
		subscribers: map[*Subscription]bool{}, news: make(chan struct{}),
	}
}

// Run asks Redis while somebody listens, until ctx ends. Then it closes all
// subscriptions.
func (h *Hub) Run(ctx context.Context) {
	defer h.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
			if !h.idle() { // they may have left meanwhile
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

// poll asks until nobody listens.
func (h *Hub) poll(ctx context.Context) {
	w := newWatcher(h.rdb, h.client)
	tick := time.NewTicker(h.o.Every)
	defer tick.Stop()
	failing, blind := false, false
	for {
		call, cancel := context.WithTimeout(ctx, 10*h.o.Every)
		events, more, err := w.look(call)
		cancel()
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !failing:
			h.o.Logger.WarnContext(ctx, "events cannot be read; it is tried again", "error", err)
		case err == nil && failing:
			h.o.Logger.InfoContext(ctx, "events are read again")
		}
		failing = err != nil
		if was := blind; err == nil {
			missing := cmp.Or(w.unseen, w.unwanted)
			if blind = missing != nil; blind && !was {
				h.o.Logger.WarnContext(ctx, "some events cannot be read, and are missing until they can be", "error", missing)
			}
		}
		h.tell(events, err)
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if h.idle() {
			return
		}
	}
}

// idle reports that nobody has listened for a while, and forgets what was said: it is not
// gone on with.
func (h *Hub) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subscribers) > 0 || h.looked != nil && time.Since(h.left) < h.o.Linger {
		return false
	}
	h.first += uint64(len(h.recent))
	h.recent, h.looked = nil, nil
	return true
}

// tell hands out what a look has seen.
func (h *Hub) tell(events []Event, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	h.trouble = err
	if err == nil && h.looked != nil {
		select {
		case <-h.looked:
		default:
			close(h.looked)
		}
	}
	if len(events) == 0 {
		return
	}
	h.recent = append(h.recent, events...)
	if over := len(h.recent) - remembered; over > 0 {
		h.recent = append([]Event(nil), h.recent[over:]...)
		h.first += uint64(over)
	}
	close(h.news)
	h.news = make(chan struct{})
}

// end is the number of the next event. The hub is locked.
func (h *Hub) end() uint64 { return h.first + uint64(len(h.recent)) }

// since returns the events from the number on, or waits for more: then it returns none
// and a channel that is closed when there are some. ok is false if they are not
// remembered any more.
func (h *Hub) since(next uint64) (events []Event, more <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if next < h.first {
		return nil, nil, false
	}
	return h.recent[min(next, h.end())-h.first:], h.news, true
}

// Subscribe begins to hear events; Close must be called. With After it begins behind
// that event: exactly, where this hub remembers it, else with some that were heard
// before, which have the same IDs. Where some may be missing, a Gap comes first. ctx
// bounds the beginning only. Errors: ErrTooMany, ErrBadID, ErrClosed, the context's, or
// Redis's: it must answer once.
func (h *Hub) Subscribe(ctx context.Context, o SubscribeOptions) (*Subscription, error) {
	if o.After != "" {
		if _, ok := instantOf(o.After); !ok {
			return nil, ErrBadID
		}
	}
	// It goes on after ctx, which is the beginning's.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Subscription{c: make(chan Event, buffered), hub: h, o: o, stop: stop, done: make(chan struct{})}
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

// add counts a subscriber in and waits until what happens from now on is told.
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
	if h.looked == nil {
		h.looked = make(chan struct{})
	}
	looked := h.looked
	select {
	case h.wake <- struct{}{}:
	default:
	}
	h.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	var err error
	select {
	case <-looked:
	case <-ctx.Done():
		err = fmt.Errorf("feed: subscribe: %w", ctx.Err())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		s.next, s.last = h.end(), time.Now()
		return nil
	}
	delete(h.subscribers, s)
	h.pumps.Done()
	if h.trouble != nil {
		err = h.trouble
	}
	return err
}
