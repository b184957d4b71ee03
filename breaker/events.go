package breaker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Event is one transition of a breaker, in the form that the commands, the HTTP API and its
// stream of events give. Times are on Redis's clock.
type Event struct {
	At   time.Time `json:"at" doc:"When." example:"2030-01-31T14:30:00Z"`
	Name string    `json:"name" doc:"The breaker." example:"deviantart"`
	// Key is "" for the destination's own breaker.
	Key string `json:"key,omitempty" doc:"The key, of a key's breaker." example:"alice"`
	// From and To are equal if an OPEN breaker was tripped, or a CLOSED one with failures was
	// reset.
	From State `json:"from" enum:"CLOSED,OPEN,HALF_OPEN" doc:"The state before." example:"CLOSED"`
	To   State `json:"to" enum:"CLOSED,OPEN,HALF_OPEN" doc:"The state after." example:"OPEN"`
	// Cause is one of the Cause constants.
	Cause    string `json:"cause" doc:"Why." example:"hint"`
	Incident string `json:"incident" doc:"The incident, from opening to closing." example:"4f2a"`
	// By is the instance whose call or report made it, or the operator.
	By         string    `json:"by" doc:"The instance, or the person, that made it." example:"host:4711"`
	Reason     string    `json:"reason,omitempty" doc:"What the person said, or why the API refused the credentials." example:"maintenance"`
	Generation uint64    `json:"generation" doc:"Grows from each transition to the next." example:"17"`
	Failures   int       `json:"failures" doc:"Rate-limited answers in a row after it." example:"3"`
	OpenedAt   time.Time `json:"opened_at,omitzero" doc:"When the incident began." example:"2030-01-31T14:30:00Z"`
	OpenUntil  time.Time `json:"open_until,omitzero" doc:"When an OPEN breaker's time comes; left out: not before it is reset." example:"2030-01-31T14:35:00Z"`
	Probes     int       `json:"probes" doc:"The incident's failed probes so far." example:"0"`
	Wasted     int       `json:"wasted" doc:"Its failed calls so far." example:"3"`
	// Rescheduled is as far as the instances have reported it.
	Rescheduled int `json:"rescheduled" doc:"Jobs rescheduled because of it so far." example:"12"`
	// Permanent is true if the API has refused, in this incident, credentials that only a person
	// can renew; see [Outcome.WithReason].
	Permanent bool `json:"-"`
	// IncidentCause is why the incident began; see [Status.IncidentCause].
	IncidentCause string `json:"-"`
}

// historyPage is how many transitions are read at once.
const historyPage = 64

// events delivers every transition to OnEvent once and in order. Messages carry them; a
// missed transition is read from the history.
type events struct {
	log    *slog.Logger
	handle func(Event)

	mu      sync.Mutex
	started bool
	seen    uint64 // all transitions up to this one are queued
	queue   []Event
	ctx     context.Context //nolint:containedctx // ends with Close; nil before the start
	spawn   func(func()) bool
	running bool
}

func newEvents(log *slog.Logger, handle func(Event)) *events {
	return &events{log: log, handle: handle}
}

// start sets the transition after which others are queued.
func (e *events) start(transition uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.started {
		e.started, e.seen = true, transition
	}
}

// restart is start after Redis has lost its data.
func (e *events) restart(transition uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = min(e.seen, transition)
}

// message queues the event of m. It returns false if a transition before m's is missing: then
// catchUp must follow.
func (e *events) message(m *message) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.started:
		return false
	case m.Transition <= e.seen:
		return true
	case m.Event == nil || m.Before > e.seen:
		return false
	}
	e.push(m.Event.event())
	e.seen = m.Transition
	return true
}

// missed reports whether transitions up to this one are missing.
func (e *events) missed(transition uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started && transition > e.seen
}

// add takes the transitions that readAfter returns. They are complete up to the last one.
func (e *events) add(last uint64, history []transition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range history {
		if t := &history[i]; t.Generation > e.seen {
			e.push(t.event())
			e.seen = t.Generation
		}
	}
	e.seen = max(e.seen, last)
}

// lost queues the closing of a breaker that was not CLOSED and whose data is lost: its
// incident would never end otherwise.
func (e *events) lost(key string, was, is *view, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if was.state != Closed && is.state == Closed {
		r := &was.record
		e.push(Event{
			At: at.UTC(), Name: r.Name, Key: key, From: was.state, To: Closed, Cause: CauseLost,
			Incident: r.Meter.Incident, Generation: r.generation(), OpenedAt: instant(r.OpenedAt),
			Probes: int(r.Probes), Wasted: int(r.Wasted), Rescheduled: int(r.Rescheduled), Permanent: r.Permanent != 0, IncidentCause: r.IncidentCause,
		})
	}
}

// push queues an event. e.mu is held.
func (e *events) push(event Event) {
	e.queue = append(e.queue, event)
	e.handOut()
}

// background delivers the events until ctx ends.
func (e *events) background(ctx context.Context, spawn func(func()) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx, e.spawn = ctx, spawn
	e.handOut()
}

// handOut starts a goroutine that delivers the queue if there is none. e.mu is held.
func (e *events) handOut() {
	if e.ctx != nil && !e.running && len(e.queue) > 0 {
		e.running = e.spawn(e.run)
	}
}

// run delivers events until there are no more, or ctx ends.
func (e *events) run() {
	for {
		e.mu.Lock()
		if len(e.queue) == 0 || e.ctx.Err() != nil {
			e.running = false
			e.mu.Unlock()
			return
		}
		event := e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		e.log.Debug("breaker changed", "breaker", event.Name, "from", event.From, "to", event.To,
			"cause", event.Cause, "incident", event.Incident, "open_until", event.OpenUntil,
			"wasted", event.Wasted, "by", event.By)
		e.handle(event)
	}
}

// onEvent calls the option. It runs in a goroutine of ours, where a panic would end the
// process.
func (c *reader) onEvent(e Event) {
	if c.options.OnEvent != nil {
		c.guard("OnEvent", func() { c.options.OnEvent(e) })
	}
}

// catchUp reads from the history what happened after the last event seen.
func (c *reader) catchUp(ctx context.Context, last uint64) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	c.events.mu.Lock()
	seen := c.events.seen
	c.events.mu.Unlock()
	missed, err := readAfter(ctx, c.rdb, c.place, seen, math.MaxInt64)
	if err != nil {
		return err
	}
	c.events.add(last, missed)
	return nil
}

// readAfter returns the last limit transitions of a destination's breakers after the one
// of a generation, oldest first. Some may be there twice: pages shift while there are new
// ones.
func readAfter(ctx context.Context, rdb redis.Cmdable, p place, after uint64, limit int64) ([]transition, error) {
	var found []transition // newest first
	for from := int64(0); from < limit; from += historyPage {
		to := min(from+historyPage, limit)
		page, err := readHistory(ctx, rdb, p.name, p.events, from, to-1)
		if err != nil {
			return nil, err
		}
		more := int64(len(page)) == to-from
		for _, t := range page {
			if more = more && t.Generation > after; t.Generation <= after {
				break
			}
			found = append(found, t)
		}
		if !more {
			break
		}
	}
	slices.Reverse(found)
	return found, nil
}

// readHistory returns transitions from a list, newest first.
func readHistory(ctx context.Context, rdb redis.Cmdable, name, list string, from, to int64) ([]transition, error) {
	return transitionsOf(rdb.LRange(ctx, list, from, to), name, from)
}

// transitionsOf reads transitions, newest first. The first one is entry from of the list.
func transitionsOf(cmd *redis.StringSliceCmd, name string, from int64) ([]transition, error) {
	entries, err := cmd.Result()
	if err != nil {
		return nil, unavailable("read history of", name, err)
	}
	history := make([]transition, len(entries))
	for i, entry := range entries {
		if err := json.Unmarshal([]byte(entry), &history[i]); err != nil {
			return nil, fmt.Errorf("breaker: read history of %s: entry %d: %w", name, from+int64(i), err)
		}
	}
	return history, nil
}
