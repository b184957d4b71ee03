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
	// StateStarting: Run has not started it yet.
	StateStarting = "starting"
	// StateFetching: jobs are fetched as they become available.
	StateFetching = "fetching"
	// StateWaiting: its circuit breaker permits no call, or one probe.
	StateWaiting = "waiting"
	// StateUnreachable: calls do not leave this process; one job at a time tries.
	StateUnreachable = "unreachable"
	// StateFailing: jobs cannot be fetched from Redis.
	StateFailing = "failing"
	// StateStopping: the worker shuts down.
	StateStopping = "stopping"
)

// DestinationStatus is the status of a destination in this process.
type DestinationStatus struct {
	Destination string
	// State is one of the State constants.
	State string
	// Reason why jobs are not fetched, or one at a time; "" otherwise.
	Reason string
	// Until is when that ends; zero if unknown.
	Until time.Time
	// InFlight is the number of jobs in flight in this process, Concurrency its maximum.
	InFlight, Concurrency int
	// Stuck is the number of handlers that have not returned StuckAfter after their context
	// ended.
	Stuck int
}

// Destinations returns the names that Handle was called with, sorted.
func (p *Publisher) Destinations() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.destinations))
}

// Worker returns the name of this process in records; see Options.
func (p *Publisher) Worker() string { return p.o.Worker }

// Namespace returns the namespace of the jobs; see Options.
func (p *Publisher) Namespace() string { return p.o.Namespace }

// Started is closed when Run serves all destinations and has registered them in Redis, so that a new
// client knows them.
func (p *Publisher) Started() <-chan struct{} { return p.started }

// Breaker returns the circuit breaker of a destination; nil if the destination is not handled
// or not started yet. Run closes it.
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

// Status returns the status of each destination, by name. It sends no command to Redis.
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
	// The context ends first: shutdown waits for a registration in progress.
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
		s.State, s.Reason, s.Until = StateUnreachable, fmt.Sprintf("calls do not leave this worker since %s: %s", since.UTC().Format(time.RFC3339), problem), next.Round(0)
		return s
	}
	switch view := d.breaker.View(); {
	case view.State == breaker.Open:
		s.State, s.Reason, s.Until = StateWaiting, "its circuit breaker is OPEN", view.OpenUntil.Round(0)
	case view.State == breaker.HalfOpen:
		s.State, s.Reason = StateWaiting, "its circuit breaker is HALF_OPEN: one probe in the whole fleet"
	case !view.Free:
		s.Reason = "each call needs a permit: because of its rate, its concurrency, a low budget, or the slow start after an incident"
	}
	if s.Stuck = int(d.stuck.Load()); s.Stuck > 0 {
		s.Reason = strings.TrimPrefix(fmt.Sprintf("%s; %d of %d slots are occupied by handlers that do not return after their context ended",
			s.Reason, s.Stuck, s.Concurrency), "; ")
	}
	return s
}
