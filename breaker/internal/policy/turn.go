package policy

import (
	"math"
	"slices"
	"strings"
)

// breaker is a State in a turn of Next.
type breaker struct {
	State
	*turn
	key      bool
	dirty    bool
	moved    *Transition // a transition that is not written yet
	opened   [2]string
	inFlight int64
	id       string // of the key
	closed   bool   // the report met it CLOSED,
	probed   bool   // or is of its probe
	emitted  *emitted
	joined   *bool
}

// turn is what the two breakers of a turn have in common.
type turn struct {
	o        Options
	us       int64   // now
	now      float64 // ms
	capacity int64
	version  int64
	effects  []Effect
}

func (t *turn) ms() int64 { return int64(math.Floor(t.now)) }

// next is a number above all that were given so far.
func (t *turn) next() int64 { return max(t.version+1, t.us) }

// write makes what has changed an effect.
func (b *breaker) write() {
	if !b.dirty && b.moved == nil {
		return
	}
	b.version = b.next()
	b.Revision, b.UpdatedAt = b.version, b.ms()
	b.Step++
	b.Pace = 0
	if b.spaces() {
		b.Pace = b.pace()
	}
	b.setWatch()
	e := Effect{OfKey: b.key, Event: b.moved}
	if b.moved != nil {
		b.Generation = b.version
		b.describe(b.moved)
		if b.State.State == Closed {
			over := b.State
			e.Over, e.Opened = &over, b.opened
			b.endIncident()
		}
	}
	e.State = b.State
	b.effects = append(b.effects, e)
	b.dirty, b.moved = false, nil
}

// describe fills in an entry of the history.
func (b *breaker) describe(m *Transition) {
	m.To = b.State.State
	if m.Cause == "manual" || m.Cause == "forced" || m.Cause == "credentials" {
		m.Reason = b.Reason
	}
	m.Failures, m.OpenedAt, m.OpenUntil, m.Probes, m.Wasted, m.Rescheduled = b.Failures, b.OpenedAt, b.OpenUntil, b.Probes, b.Wasted, b.Rescheduled
	m.Permanent, m.IncidentCause = b.Permanent, b.IncidentCause
}

// transition moves the breaker.
func (b *breaker) transition(to, cause string) {
	b.moved = &Transition{From: b.State.State, Cause: cause}
	b.State.State = to
	b.ProbeRetries = 0
	b.clearProbe()
}

func (b *breaker) clearProbe() {
	b.ProbeToken, b.ProbeBy = "", ""
	b.ProbeStarted, b.ProbeUntil, b.ProbeAfter = 0, 0, 0
	b.dirty = true
}

func (b *breaker) clearBudget() {
	b.Metered, b.BudgetLeft, b.BudgetReset, b.Windows = 0, 0, 0, ""
}

func (b *breaker) clearStreak() {
	b.Streak, b.StreakSince, b.StreakLimit, b.StreakOf, b.StreakJobs = 0, 0, 0, "", ""
}

const tookPart = 50 // instances named in an incident

// tookPart adds the instance to the incident.
func (b *breaker) tookPart() {
	if !b.o.Instance || inList(b.Instances, b.o.Caller) || strings.Count(b.Instances, ",") >= tookPart-1 {
		return
	}
	b.Instances = appended(b.Instances, b.o.Caller)
	b.dirty = true
}

func (b *breaker) beginIncident(wasted int64) {
	b.Meter.Incident, b.OpenedAt, b.Probes, b.Rescheduled, b.Instances = "", b.ms(), 0, 0, ""
	b.Wasted, b.Permanent = wasted, 0
}

func (b *breaker) endIncident() {
	b.Meter.Incident, b.IncidentCause, b.Cause, b.Instances, b.Permanent, b.Credentials, b.Missing = "", "", "", "", 0, "", 0
	b.OpenedAt, b.Probes, b.Wasted, b.Rescheduled = 0, 0, 0, 0
	if b.Forced == "" {
		b.Reason, b.TrippedBy = "", ""
	}
}

func inList(list, item string) bool { return slices.Contains(strings.Split(list, ","), item) }

func appended(list, item string) string {
	if list == "" {
		return item
	}
	return list + "," + item
}
