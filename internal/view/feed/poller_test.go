package feed

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/breaker"
)

// openKeys opens the breakers of n keys, and returns their names.
func (s *fixture) openKeys(n int) []string {
	s.Helper()
	names := make([]string, n)
	work := make(chan int)
	var openers sync.WaitGroup
	for range 8 {
		openers.Go(func() {
			for i := range work {
				if _, err := breaker.DefaultNamespace.Trip(s.Context(), s.rdb, names[i], breaker.TripOptions{}); err != nil {
					s.Error(err)
				}
			}
		})
	}
	for i := range names {
		names[i] = fmt.Sprintf("deviantart/k%05d", i)
		work <- i
	}
	close(work)
	openers.Wait()
	if s.Failed() {
		s.FailNow()
	}
	return names
}

// look polls once, and returns the events and how many commands Redis ran for it.
func (s *fixture) poll(w *poller) ([]Event, int64) {
	s.Helper()
	s.server.ResetStats(s)
	events, _, err := w.poll(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	var commands int64
	for name, n := range s.server.CommandStats(s) {
		if !strings.HasPrefix(name, "config") && name != "info" {
			commands += n
		}
	}
	return events, commands
}

// nameOf is the breaker that an event is about.
func (s *fixture) nameOf(e Event) string {
	s.Helper()
	var transition breaker.Event
	if err := json.Unmarshal(e.Data, &transition); err != nil || e.Type != Breaker {
		s.Fatalf("%s %s: %v", e.Type, e.Data, err)
	}
	return transition.Name
}

// A poll costs what has changed since the last one, however many breakers are open.
func TestPollWithManyOpenKeys(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	names := s.openKeys(manyKeys)
	w := newPoller(s.rdb, s.client)
	if events, _ := s.poll(w); len(events) != 0 {
		t.Errorf("%d events from before the first look", len(events))
	}
	// Three streams, the pause and the transitions of each of two destinations.
	const idle = 2 * (3 + 1 + 1)
	if events, n := s.poll(w); len(events) != 0 || n > idle {
		t.Errorf("a look at %d open keys took %d commands, want at most %d; %d events", manyKeys, n, idle, len(events))
	}
	for _, by := range []string{"ann", "bob"} {
		if _, err := breaker.DefaultNamespace.Reset(t.Context(), s.rdb, names[7], by); err != nil {
			t.Fatal(err)
		}
	}
	events, n := s.poll(w)
	if len(events) != 2 || s.nameOf(events[0]) != names[7] || n > idle+2 {
		t.Errorf("after two changes: %d events, %d commands: %+v", len(events), n, events)
	}
}

// Each transition comes once and in order, also if many happen between two polls; if there
// were more than the history keeps, a gap and the last of them come.
func TestPollAfterManyTransitions(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	w := newPoller(s.rdb, s.client)
	s.poll(w)
	const kept = 1000
	opened := s.openKeys(kept)
	events, n := s.poll(w)
	if len(events) != kept || n > 50 {
		t.Fatalf("%d events of %d transitions, %d commands", len(events), kept, n)
	}
	published := map[string]bool{}
	for _, e := range events {
		published[s.nameOf(e)] = true
	}
	for _, name := range opened {
		if !published[name] {
			t.Errorf("%s was not published", name)
		}
	}
	for _, name := range append(opened, opened[:1]...) {
		if _, err := breaker.DefaultNamespace.Reset(t.Context(), s.rdb, name, ""); err != nil {
			t.Fatal(err)
		}
	}
	events, _ = s.poll(w)
	if len(events) != kept+1 || events[0].Type != Gap || string(events[0].Data) != gapBesideJobs {
		t.Fatalf("%d events, the first %+v; want a gap and the last %d transitions", len(events), events[0], kept)
	}
	if first, last := s.nameOf(events[1]), s.nameOf(events[kept]); first != opened[1] || last != opened[0] {
		t.Errorf("from %s to %s, want from %s to %s", first, last, opened[1], opened[0])
	}
	if _, ok := instantOf(events[0].ID); !ok {
		t.Errorf("no subscriber can resume after a gap with the id %q", events[0].ID)
	}
	if events, _ := s.poll(w); len(events) != 0 {
		t.Errorf("published again: %+v", events)
	}
}

// After a loss of all data events are published as before, after a gap.
func TestPollAfterALoss(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	w := newPoller(s.rdb, s.client)
	s.poll(w)
	s.openKeys(2)
	s.poll(w)
	if err := s.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.openKeys(1)
	events, _ := s.poll(w)
	if len(events) != 2 || events[0].Type != Gap || s.nameOf(events[1]) != "deviantart/k00000" {
		t.Errorf("%+v", events)
	}
}
