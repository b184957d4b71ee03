package feed

import (
	"context"
	"slices"
	"strings"
	"time"
)

// buffered is how many events are handed out ahead.
const buffered = 64

// SubscribeOptions say what to hear.
type SubscribeOptions struct {
	// After is the ID of the last event that was heard; "": from now on.
	After string
	// Types to hear: whole ones, or "job" for all of jobs. Nil: all.
	Types []string
	// Destination to hear of; "": all.
	Destination string
}

func (o *SubscribeOptions) wants(e Event) bool {
	if e.Type == Gap {
		return string(e.Data) != gapBesideJobs || len(o.Types) == 0 || slices.Contains(o.Types, Breaker) || slices.Contains(o.Types, Destination)
	}
	if o.Destination != "" && e.Destination != o.Destination {
		return false
	}
	if len(o.Types) == 0 {
		return true
	}
	for _, t := range o.Types {
		if t == e.Type || t+"." == JobPrefix && strings.HasPrefix(e.Type, JobPrefix) {
			return true
		}
	}
	return false
}

// Subscription hears events until it is closed. However slow its reader is, it misses
// none and keeps nobody waiting: what is not remembered any more is read from Redis.
type Subscription struct {
	// C gives the events. It is closed when the hub ends, or after Close.
	C <-chan Event

	c    chan Event
	hub  *Hub
	o    SubscribeOptions
	stop context.CancelFunc
	done chan struct{} // closed when nothing is done for it any more

	next   uint64    // number of the event to tell next
	last   time.Time // of the last event that was looked at, or when it began
	lastID string    // of the last event that was handed out
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

// pump hands events out until ctx ends.
func (s *Subscription) pump(ctx context.Context) {
	told := &recently{}
	if s.o.After != "" && !s.found() {
		since, _ := instantOf(s.o.After) // it was checked
		s.lastID = s.o.After
		if !s.catchUp(ctx, since, told) {
			return
		}
	}
	for {
		events, more, ok := s.hub.since(s.next)
		if !ok {
			// The reader was slow, or waited for others to catch up.
			if !s.catchUp(ctx, s.last, told) {
				return
			}
			continue
		}
		for _, e := range events {
			s.next++
			s.last = e.At
			if !told.has(e.ID) && !s.give(ctx, e) {
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

// found goes on behind the event that was heard last, if the hub remembers it.
func (s *Subscription) found() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for i, e := range s.hub.recent {
		if e.ID == s.o.After {
			s.next = s.hub.first + uint64(i) + 1
			return true
		}
	}
	return false
}

// give hands an event out, if it is wanted; false when ctx has ended.
func (s *Subscription) give(ctx context.Context, e Event) bool {
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

// recently has the ids that were told last while catching up, and may come again.
type recently struct {
	ids   map[string]bool
	order []string
}

// mostRecently bounds what recently has: what a look of the hub may bring is told again
// at most a moment after it was read.
const mostRecently = 4 * remembered

func (r *recently) add(id string) {
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	if r.ids[id] {
		return
	}
	r.ids[id] = true
	r.order = append(r.order, id)
	if len(r.order) > mostRecently {
		delete(r.ids, r.order[0])
		r.order = r.order[1:]
	}
}

func (r *recently) has(id string) bool { return r.ids[id] }
