package breaker

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// queued are the generations of the events that wait to be told.
func (e *events) queued() []uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	var generations []uint64
	for _, event := range e.queue {
		generations = append(generations, event.Generation)
	}
	return generations
}

func TestMissingMessageIsNoticed(t *testing.T) {
	t.Parallel()
	change := func(version, previous uint64) *message {
		return &message{Version: version, Before: previous, Transition: version, Event: &transition{Event: Event{Generation: version}, Previous: previous}}
	}
	count := func(version, generation uint64) *message {
		return &message{Version: version, Before: generation, Transition: generation}
	}
	e := newEvents(slog.New(slog.DiscardHandler), nil)
	step := func(what string, got, want bool, queue ...uint64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: contiguous %v, want %v", what, got, want)
		}
		if diff := cmp.Diff(queue, e.queued()); diff != "" {
			t.Errorf("%s: queue (-want +got):\n%s", what, diff)
		}
	}
	step("nothing is known yet", e.message(change(5, 0)), false)
	e.start(10)
	step("before the start", e.message(change(9, 5)), true)
	step("the next transition", e.message(change(20, 9)), true, 20)
	step("the same again", e.message(change(20, 9)), true, 20)
	step("a count", e.message(count(21, 20)), true, 20)
	step("a transition after one that was missed", e.message(change(40, 30)), false, 20)
	step("a count after it", e.message(count(41, 40)), false, 20)
	if !e.missed(40) || e.missed(20) {
		t.Error("a later transition is not said to be missed, or an earlier one is")
	}
	e.add(41, []transition{{Event: Event{Generation: 20}}, {Event: Event{Generation: 30}, Previous: 20}, {Event: Event{Generation: 40}, Previous: 30}})
	step("read from the history", e.message(count(41, 40)), true, 20, 30, 40)
	step("the next transition", e.message(change(50, 40)), true, 20, 30, 40, 50)
}

// The pages of a history shift while new transitions come in front of it.
func TestTransitionsReadTwiceAreToldOnce(t *testing.T) {
	t.Parallel()
	e := newEvents(slog.New(slog.DiscardHandler), nil)
	e.start(10)
	e.add(60, []transition{
		{Event: Event{Generation: 20}}, {Event: Event{Generation: 30}}, {Event: Event{Generation: 40}}, // the older page, read later
		{Event: Event{Generation: 30}}, {Event: Event{Generation: 40}}, {Event: Event{Generation: 50}}, {Event: Event{Generation: 70}},
	})
	if diff := cmp.Diff([]uint64{20, 30, 40, 50, 70}, e.queued()); diff != "" {
		t.Errorf("queue (-want +got):\n%s", diff)
	}
	if e.missed(70) || !e.missed(71) {
		t.Error("what was told last is not known")
	}
}
