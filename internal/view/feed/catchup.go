package feed

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
)

// Catching up from Redis.
const (
	// overlap is how far before the last received event catching up begins: the order of
	// events of different sources differs between instances.
	overlap = 2 * time.Second
	// pageOf is how many job events of a queue are read at once.
	pageOf = 100
	// retryAfter is the pause after an error of Redis.
	retryAfter = time.Second
)

// catchUp delivers the events since an instant from Redis until it reaches the hub's events. It
// returns false when ctx has ended.
func (s *Subscription) catchUp(ctx context.Context, since time.Time, sent *recentIDs) bool {
	sent.add(s.lastID)
	// A stream may not have existed all the time; Redis stores no pauses, and not all
	// transitions of breakers.
	missing := gapBesideJobs
	if time.Since(since) > store.EventsWantedFor-wantEvery {
		missing = gapOfAll
	}
	if !s.gap(ctx, missing) {
		return false
	}
	began := s.position()
	p := pager{s: s, from: since.Add(-overlap)}
	for {
		// Before the read: an empty page has none of the events that the hub publishes from here on.
		next := s.position()
		events, more, err := p.page(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			select {
			case <-time.After(retryAfter):
				continue
			case <-ctx.Done():
				return false
			}
		}
		if p.lost && !s.gap(ctx, gapOfAll) {
			return false
		}
		p.lost = false
		for _, e := range events {
			s.last = e.At
			if sent.has(e.ID) {
				continue
			}
			sent.add(e.ID)
			if !s.deliver(ctx, e) {
				return false
			}
		}
		if !more {
			return s.join(ctx, began, next, sent)
		}
	}
}

// Data of gaps.
const (
	gapOfAll      = `{"of":["job","breaker","destination"]}`
	gapBesideJobs = `{"of":["breaker","destination"]}`
)

// gap is the event that others may be missing.
func (s *Subscription) gap(ctx context.Context, missing string) bool {
	return s.deliver(ctx, Event{ID: s.lastID, Type: Gap, At: s.last, Data: json.RawMessage(missing)})
}

// position is the number of the next event of the hub.
func (s *Subscription) position() uint64 {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.hub.end()
}

// join continues with the hub's events from next on. Since began the pages had only job
// events.
func (s *Subscription) join(ctx context.Context, began, next uint64, sent *recentIDs) bool {
	events, _, ok := s.hub.since(began)
	// The hub has dropped events meanwhile.
	if !ok && !s.gap(ctx, gapBesideJobs) {
		return false
	}
	for i, e := range events {
		if began+uint64(i) >= next {
			break
		}
		if strings.HasPrefix(e.Type, JobPrefix) || sent.has(e.ID) {
			continue
		}
		if !s.deliver(ctx, e) {
			return false
		}
	}
	s.next = next
	return true
}

// pager reads the events from an instant on, page by page.
type pager struct {
	s           *Subscription
	from        time.Time
	at          map[string]string // last entry read, by queue; nil before the first page
	lost        bool              // job events have been trimmed
	transitions []Event           // of breakers, not delivered yet
	read        bool
}

// page reads the next page, in the order of time. more is false for the last page, which has no
// job events.
func (p *pager) page(ctx context.Context) (events []Event, more bool, err error) {
	h := p.s.hub
	select {
	case h.pages <- struct{}{}:
		defer func() { <-h.pages }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	known, err := h.client.Destinations(ctx)
	if err != nil {
		return nil, false, err
	}
	if !p.read {
		for _, d := range known {
			if err := p.readTransitions(ctx, d.Name); err != nil {
				p.transitions = nil
				return nil, false, err
			}
		}
		p.read = true
		inOrder(p.transitions)
	}
	queues := []string{}
	for _, d := range known {
		queues = append(queues, h.ns.Queues(d.Name)...)
	}
	if p.at == nil {
		if p.lost, err = p.trimmed(ctx, queues); err != nil {
			return nil, false, err
		}
		p.at = map[string]string{}
	}
	found := make([]*redis.XMessageSliceCmd, len(queues))
	if len(queues) > 0 {
		_, err = redispipe.Run(ctx, h.rdb, func(pipe redis.Pipeliner) error {
			for i, q := range queues {
				after := cmp.Or(p.at[q], strconv.FormatInt(max(1, p.from.UnixMilli()-1), 10))
				found[i] = store.QueueRead(ctx, pipe, q, after, pageOf)
			}
			return nil
		})
	}
	if err != nil {
		return nil, false, err
	}
	for i, q := range queues {
		messages := found[i].Val()
		if len(messages) == 0 {
			continue
		}
		p.at[q], more = messages[len(messages)-1].ID, true
		for _, e := range store.ParseEvents(q, messages) {
			events = append(events, jobEvent(e))
		}
	}
	inOrder(events)
	return p.with(events), more, nil
}

// with adds the transitions that are not later than the events; without events all that are
// left.
func (p *pager) with(events []Event) []Event {
	n := len(p.transitions)
	if len(events) > 0 {
		for n = 0; n < len(p.transitions) && !p.transitions[n].At.After(events[len(events)-1].At); n++ {
		}
	}
	events = append(events, p.transitions[:n]...)
	p.transitions = p.transitions[n:]
	inOrder(events)
	return events
}

// readTransitions reads the stored transitions of a destination's breakers, the breakers of its
// keys included.
func (p *pager) readTransitions(ctx context.Context, name string) error {
	transitions, _, _, err := breaker.Namespace(p.s.hub.ns).ReadTransitions(ctx, p.s.hub.rdb, name, 0, transitionsRead)
	if err != nil {
		return err
	}
	for _, e := range transitions {
		if !e.At.Before(p.from) {
			p.transitions = append(p.transitions, breakerEvent(e))
		}
	}
	return nil
}

// trimmed reports whether a stream may have lost entries from the instant on: it is full, and
// its first entry is later.
func (p *pager) trimmed(ctx context.Context, queues []string) (bool, error) {
	for _, q := range queues {
		n, err := p.s.hub.rdb.XLen(ctx, store.EventsKey(q)).Result()
		if err != nil {
			return false, err
		}
		if n < store.EventsKept {
			continue
		}
		first, err := store.ReadEvents(ctx, p.s.hub.rdb, q, "", 1)
		if err != nil {
			return false, err
		}
		if len(first) == 1 && first[0].At.After(p.from) {
			return true, nil
		}
	}
	return false, nil
}
