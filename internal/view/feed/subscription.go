package feed

import (
	"context"
	"slices"
	"strings"
	"time"
)

// ahead is how many events C buffers.
const ahead = 64

// SubscribeOptions select events.
type SubscribeOptions struct {
	// After is the ID of the last event that was received; "": from now on.
	After string
	// Types of events, or "job" for all of jobs. Nil: all.
	Types []string
	// Destination of the events; "": all.
	Destination string
	// May reports whether the subscriber gets the events of a destination and key; the key is "" for events that are
	// not of jobs. Nil: it gets all events.
	May func(destination, key string) bool
}

// sees reports whether the subscriber may know of an event.
func (o *SubscribeOptions) sees(e Event) bool {
	if o.May == nil {
		return true
	}
	destination := e.Destination
	if e.Type == Gap { // its id names the destination, if it is of one
		_, of, named := strings.Cut(e.ID, ":gap:")
		if !named {
			return true
		}
		destination = of
	}
	return o.May(destination, e.key)
}

func (o *SubscribeOptions) wants(e Event) bool {
	if !o.sees(e) {
		return false
	}
	if e.Type == Gap {
		return string(e.Data) != gapBesideJobs || len(o.Types) == 0 || slices.Contains(o.Types, Breaker) || slices.Contains(o.Types, Destination)
	}
	if o.Destination != "" && e.Destination != o.Destination {
		return false
	}
	return len(o.Types) == 0 || slices.ContainsFunc(o.Types, func(t string) bool {
		return t == e.Type || t+"." == JobPrefix && strings.HasPrefix(e.Type, JobPrefix)
	})
}

// Subscription receives events until it is closed. A slow subscriber loses no
// event and delays no other: events that the hub no longer buffers are read from Redis.
type Subscription struct {
	// C has the events. It is closed when the hub ends, or after Close.
	C <-chan Event

	c    chan Event
	hub  *Hub
	o    SubscribeOptions
	stop context.CancelFunc
	done chan struct{} // closed when pump has returned

	next   uint64    // number of the next event
	last   time.Time // of the last event, or of the subscription
	lastID string    // of the last event that was delivered
}

// Close ends the subscription; it may be called twice.
func (s *Subscription) Close() {
	s.stop()
	<-s.done
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subscribers, s)
	s.hub.left = time.Now()
}

// pump delivers events until ctx ends.
func (s *Subscription) pump(ctx context.Context) {
	sent := &recentIDs{}
	if s.o.After != "" && !s.found() {
		since, _ := instantOf(s.o.After) // it was checked
		s.lastID = s.o.After
		if !s.catchUp(ctx, since, sent) {
			return
		}
	}
	for {
		events, more, ok := s.hub.since(s.next)
		if !ok {
			// The subscriber was slow.
			if !s.catchUp(ctx, s.last, sent) {
				return
			}
			continue
		}
		for _, e := range events {
			s.next++
			s.last = e.At
			if !sent.has(e.ID) && !s.deliver(ctx, e) {
				return
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// found continues after the event After, if the hub buffers it.
func (s *Subscription) found() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for i, e := range s.hub.recent {
		if e.ID == s.o.After && s.o.sees(e) {
			s.next = s.hub.first + uint64(i) + 1
			return true
		}
	}
	return false
}

// deliver sends a selected event; false when ctx has ended.
func (s *Subscription) deliver(ctx context.Context, e Event) bool {
	if !s.o.wants(e) {
		return true
	}
	select {
	case s.c <- e:
		s.lastID = e.ID
		return true
	case <-ctx.Done():
		return false
	}
}

// recentIDs are the ids of events delivered while catching up, which may come again.
type recentIDs struct {
	ids   map[string]bool
	order []string
}

// mostRecent bounds recentIDs: an event of a poll comes again at most a moment after it was
// read.
const mostRecent = 4 * buffered

func (r *recentIDs) add(id string) {
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	if r.ids[id] {
		return
	}
	r.ids[id] = true
	r.order = append(r.order, id)
	if len(r.order) > mostRecent {
		delete(r.ids, r.order[0])
		r.order = r.order[1:]
	}
}

func (r *recentIDs) has(id string) bool { return r.ids[id] }
