// Package feed tells of what happens to jobs and breakers as it happens, to as many as
// want to hear it for what one costs Redis.
package feed

import (
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
	// Gap says that events may be missing before the next one: whoever keeps a picture
	// makes it anew.
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
	// Data is a JSON object.
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
	// remembered is how many events are kept for those who come back.
	remembered = 4096
	// buffered is how many events a slow reader may be behind.
	buffered = 1024
	// mostReplayed is how many events are told again to one who comes back.
	mostReplayed = 10_000
	// firstLook is how long a first subscriber waits for Redis.
	firstLook = 5 * time.Second
	// overlap is how far before the last event another hub begins to tell again: events
	// of different sources are not in the same order everywhere.
	overlap = 2 * time.Second
)

// Options configure a Hub.
type Options struct {
	// Every is how often Redis is asked while somebody listens. Default 500 ms.
	Every time.Duration
	// Logger gets what goes wrong. Default: slog.Default().
	Logger *slog.Logger
}

// Hub asks Redis for all who listen.
type Hub struct {
	rdb    redis.UniversalClient
	client *jobs.Client
	o      Options
	wake   chan struct{} // somebody listens

	mu          sync.Mutex
	closed      bool
	subscribers map[*Subscription]bool
	recent      []Event       // oldest first
	looked      chan struct{} // closed when what happens from then on is told; nil: nobody listens
	trouble     error         // of the last look
	looks       int
}

// New returns a Hub; Run makes it work.
func New(rdb redis.UniversalClient, client *jobs.Client, o Options) *Hub {
	if o.Every <= 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Hub{rdb: rdb, client: client, o: o, wake: make(chan struct{}, 1), subscribers: map[*Subscription]bool{}}
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
	defer h.mu.Unlock()
	h.closed = true
	for s := range h.subscribers {
		h.drop(s, false)
	}
}

// poll asks until nobody listens.
func (h *Hub) poll(ctx context.Context) {
	w := newWatcher(h.rdb, h.client)
	tick := time.NewTicker(h.o.Every)
	defer tick.Stop()
	failing := false
	for {
		call, cancel := context.WithTimeout(ctx, 10*h.o.Every)
		events, err := w.look(call)
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
		h.tell(events, err)
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

// idle reports that nobody listens, and forgets what was said: it is not gone on with.
func (h *Hub) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subscribers) > 0 {
		return false
	}
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
	}
	for s := range h.subscribers {
		for _, e := range events {
			if !s.offer(e) {
				h.drop(s, true)
				break
			}
		}
	}
}

// drop ends a subscription. The hub is locked.
func (h *Hub) drop(s *Subscription, lost bool) {
	if h.subscribers[s] {
		delete(h.subscribers, s)
		s.lost = lost
		close(s.c)
	}
}

// Subscribe begins to hear events; Close must be called. With After it begins behind
// that event: exactly, where this hub has told it, else with some that were heard
// before, which have the same IDs. Where some may be missing, a Gap comes first. Errors:
// ErrTooMany, ErrBadID, ErrClosed, the context's, or Redis's: it must answer once.
func (h *Hub) Subscribe(ctx context.Context, o SubscribeOptions) (*Subscription, error) {
	var since time.Time
	if o.After != "" {
		at, ok := instantOf(o.After)
		if !ok {
			return nil, ErrBadID
		}
		since = at
	}
	s := &Subscription{c: make(chan Event, buffered+mostReplayed), hub: h, o: o, told: map[string]bool{}}
	if o.After == "" {
		s.c = make(chan Event, buffered)
	}
	s.C = s.c
	known, err := h.add(s)
	if err != nil {
		return nil, err
	}
	if err := h.awaitLook(ctx); err != nil {
		s.Close()
		return nil, err
	}
	if o.After == "" || known {
		return s, nil
	}
	again, err := replay(ctx, h.rdb, h.client, since.Add(-overlap), o.After)
	if err != nil {
		s.Close()
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// What came meanwhile comes behind what is told again.
	var meanwhile []Event
	for len(s.c) > 0 {
		meanwhile = append(meanwhile, <-s.c)
	}
	s.told = map[string]bool{}
	for _, e := range again {
		s.offer(e)
		s.told[e.ID] = true
	}
	for _, e := range meanwhile {
		s.offer(e)
	}
	return s, nil
}

// awaitLook waits until what happens from now on is told.
func (h *Hub) awaitLook(ctx context.Context) error {
	h.mu.Lock()
	looked := h.looked
	h.mu.Unlock()
	if looked == nil {
		return ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	select {
	case <-looked:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trouble != nil {
		return h.trouble
	}
	return fmt.Errorf("feed: subscribe: %w", ctx.Err())
}

// add counts a subscriber in, and tells it at once what it has missed, if this hub knows
// the event that it heard last.
func (h *Hub) add(s *Subscription) (known bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return false, ErrClosed
	case len(h.subscribers) >= MostSubscribers:
		return false, ErrTooMany
	}
	h.subscribers[s] = true
	if h.looked == nil {
		h.looked = make(chan struct{})
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
	if s.o.After == "" {
		return true, nil
	}
	for i, e := range h.recent {
		if e.ID == s.o.After {
			for _, missed := range h.recent[i+1:] {
				s.offer(missed)
			}
			return true, nil
		}
	}
	return false, nil
}
