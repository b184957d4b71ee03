package feed

import "strings"

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
		return true
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

// Subscription hears events until it is closed.
type Subscription struct {
	// C gives the events. It is closed when the hub ends, or when the reader was so slow
	// that events would be missing; see Lost. Who comes back with the last ID misses none.
	C <-chan Event

	c    chan Event
	hub  *Hub
	o    SubscribeOptions
	told map[string]bool // ids that were told again and may come anew
	lost bool
}

// Lost reports, after C was closed, that the reader was too slow.
func (s *Subscription) Lost() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.lost
}

// Close ends the subscription; it may be called twice.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.drop(s, false)
}

// offer hands an event out, if there is room. The hub is locked.
func (s *Subscription) offer(e Event) bool {
	if !s.o.wants(e) {
		return true
	}
	if s.told[e.ID] {
		delete(s.told, e.ID)
		return true
	}
	select {
	case s.c <- e:
		return true
	default:
		return false
	}
}
