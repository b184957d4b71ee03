package publisher

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// The phases of a destination in this process.
const (
	phaseNew = iota
	phaseStarted
	phaseStopping
)

// The states of a DestinationStatus.
const (
	// StateStarting: Run has not come to it yet.
	StateStarting = "starting"
	// StateFetching: jobs are fetched as they come.
	StateFetching = "fetching"
	// StateWaiting: its circuit breaker lets nothing through, or one probe.
	StateWaiting = "waiting"
	// StateUnreachable: calls do not leave this process; one job at a time makes a try.
	StateUnreachable = "unreachable"
	// StateFailing: jobs cannot be fetched from Redis.
	StateFailing = "failing"
	// StateStopping: the worker shuts down.
	StateStopping = "stopping"
)

// DestinationStatus is what this process does for a destination.
type DestinationStatus struct {
	Destination string
	// State is one of the State constants.
	State string
	// Reason says why jobs are not fetched, or not freely; "" while they are.
	Reason string
	// Until is when that ends, as far as is known; zero otherwise.
	Until time.Time
	// InFlight is how many jobs this process has in flight, Concurrency their maximum.
	InFlight, Concurrency int
	// Stuck is how many of its handlers have not returned StuckAfter after their context
	// ended.
	Stuck int
}

// Destinations are the names that Handle was called with, sorted.
func (p *Publisher) Destinations() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.destinations))
}

// Worker is the name of this process in records; see Options.
func (p *Publisher) Worker() string { return p.o.Worker }

// Namespace is that of the jobs; see Options.
func (p *Publisher) Namespace() string { return p.o.Namespace }

// Started is closed when Run has begun to serve all destinations.
func (p *Publisher) Started() <-chan struct{} { return p.started }

// Breaker is the circuit breaker of a destination; nil for one that is not handled, and
// before Run has come to it. It stays Run's to close.
func (p *Publisher) Breaker(destination string) *breaker.Breaker {
	d := p.destination(destination)
	if d == nil || d.phase.Load() == phaseNew {
		return nil
	}
	return d.breaker
}

func (p *Publisher) destination(name string) *destination {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.destinations[name]
}

// Status says what this process does for each destination, by name. It sends no command.
func (p *Publisher) Status() []DestinationStatus {
	var out []DestinationStatus
	for _, name := range p.Destinations() {
		out = append(out, p.destination(name).status())
	}
	return out
}

func (d *destination) status() DestinationStatus {
	s := DestinationStatus{Destination: d.name, State: StateStarting, Concurrency: d.s.concurrency}
	phase := d.phase.Load()
	if phase == phaseNew {
		s.Reason = "the worker starts"
		return s
	}
	s.InFlight = d.engine.CountInFlight()
	// The context ends first: shutdown begins when a registration under way has ended.
	if phase == phaseStopping || d.serving.Err() != nil {
		s.State, s.Reason = StateStopping, "the worker shuts down"
		return s
	}
	if _, err := d.engine.Trouble(); err != nil {
		s.State, s.Reason = StateFailing, "Redis: "+clean(err.Error(), maxExcerpt)
		return s
	}
	s.State = StateFetching
	if since, problem, next := d.reach.down(); !since.IsZero() {
		s.State, s.Reason, s.Until = StateUnreachable, unreachableReason(since, problem), next.Round(0)
		return s
	}
	switch view := d.breaker.View(); {
	case view.State == breaker.Open:
		s.State, s.Reason, s.Until = StateWaiting, "its circuit breaker is OPEN", view.OpenUntil.Round(0)
	case view.State == breaker.HalfOpen:
		s.State, s.Reason = StateWaiting, "its circuit breaker is HALF_OPEN: one probe in the whole fleet"
	case !view.Free:
		s.Reason = "each call needs a permit: because of its rate, a low budget, or the slow start after an incident"
	}
	if s.Stuck = int(d.stuck.Load()); s.Stuck > 0 {
		s.Reason = strings.TrimPrefix(fmt.Sprintf("%s; %d of %d slots are occupied by handlers that do not return after their context ended",
			s.Reason, s.Stuck, s.Concurrency), "; ")
	}
	return s
}
