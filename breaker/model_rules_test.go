package breaker

import (
	"fmt"
	"strings"
	"time"
)

// The rules of a breaker as the design states them, for comparison with what the
// breaker does. Everything is in one process, and the time is passed in.

// modelOptions are those of the model's fleet, which is one instance.
var modelOptions = Options{
	NoLearning: true, FailureThreshold: 2, Cooldown: 10 * second, CooldownMultiplier: 2, CooldownJitter: -1, MaxCooldown: minute,
	ProbeTimeout: 20 * second, MaxInFlight: 4,
}

// modelPermit is a call that was allowed.
type modelPermit struct {
	id     int
	key    string
	at     int                    // in the order of all that happened
	known  map[*modelBreaker]bool // who counts it, or has it probe
	landed bool
}

// modelBreaker is one breaker.
type modelBreaker struct {
	name                   string
	state                  State
	failures, level        int
	probes, wasted         int
	cause                  string
	until                  time.Time // zero until reset
	quietSince             time.Time
	lastCooldown           time.Duration
	moved                  int // when it last made a transition
	probe                  *modelPermit
	probeStarted, probeEnd time.Time
	probeAfter             time.Time
	retries                int
	ramp, rampOK           int
	metered                bool
	left, limit            int
	reset                  time.Time
	forced                 bool
	forcedUntil            time.Time
	counted                map[*modelPermit]time.Time // end of the lease
}

// model is a destination's breaker and its keys'.
type model struct {
	now      time.Time
	happened int
	breakers map[string]*modelBreaker // by key
	permits  []*modelPermit
}

func newModel(now time.Time, keys ...string) *model {
	m := &model{now: now, breakers: map[string]*modelBreaker{}}
	for _, key := range append(keys, "") {
		m.breakers[key] = &modelBreaker{name: strings.TrimSuffix("D/"+key, "/"), counted: map[*modelPermit]time.Time{}}
	}
	return m
}

// lose forgets everything that was in Redis.
func (m *model) lose() {
	for key, b := range m.breakers {
		*b = modelBreaker{name: b.name, counted: map[*modelPermit]time.Time{}}
		m.breakers[key] = b
	}
}

func (m *model) transition(b *modelBreaker, to State) {
	m.happened++
	b.state, b.moved, b.retries = to, m.happened, 0
	b.probe, b.probeAfter = nil, time.Time{}
	if to == Closed {
		b.probes, b.wasted, b.cause = 0, 0, ""
	}
}

func (b *modelBreaker) cooldown() time.Duration {
	length := modelOptions.Cooldown
	for range b.level {
		length = min(2*length, modelOptions.MaxCooldown)
	}
	return length
}

func (b *modelBreaker) raise() {
	if b.cooldown() < modelOptions.MaxCooldown {
		b.level++
	}
}

// open opens for a time; 0 is until reset, and below that is its turn.
func (m *model) open(b *modelBreaker, cause string, length time.Duration) {
	ahead := cause == CauseManual || cause == CauseBudget
	if b.state == Closed {
		b.probes, b.wasted = 0, max(1, b.failures)
		if ahead {
			b.wasted = 0
		}
		if b.ramp > 0 && !ahead {
			b.raise()
		}
	}
	m.transition(b, Open)
	b.cause, b.forced, b.ramp, b.metered = cause, false, 0, false
	if length < 0 {
		length = b.cooldown()
	}
	if length > 0 && cause != CauseManual {
		b.lastCooldown = length
	}
	b.until = time.Time{}
	if length > 0 {
		b.until = m.now.Add(length)
	}
}

func (m *model) close(b *modelBreaker) {
	m.transition(b, Closed)
	b.failures, b.quietSince, b.ramp, b.rampOK = 0, m.now, 1, 0
}

func (m *model) probeFailed(b *modelBreaker, earliest time.Time) {
	pause := min(second<<min(b.retries, 20), b.cooldown())
	b.probe, b.probeAfter = nil, b.probeStarted.Add(pause)
	if b.probeAfter.Before(earliest) {
		b.probeAfter = earliest
	}
	b.retries++
}

// tidy ends what has ended by itself.
func (m *model) tidy(b *modelBreaker) {
	if b.forced && !b.forcedUntil.IsZero() && !m.now.Before(b.forcedUntil) {
		b.forced = false
	}
	for b.state == Closed && b.level > 0 && m.now.Sub(b.quietSince) >= b.lastCooldown {
		b.level--
		b.quietSince = b.quietSince.Add(b.lastCooldown)
	}
}

func clampHint(d time.Duration) time.Duration {
	return max(time.Millisecond, min(d, modelOptions.MaxCooldown))
}

// little is the number of calls left from which on they are counted.
const little = 8

// unmetered are the calls in flight that the breaker has not counted.
func (m *model) unmetered(key string) (n int) {
	for _, p := range m.permits {
		if !p.landed && (key == "" || p.key == key) && !p.known[m.breakers[key]] {
			n++
		}
	}
	return n
}

func (m *model) refusal(b *modelBreaker, cause string, until time.Time) string {
	wait := modelOptions.MaxCooldown
	if !until.IsZero() {
		wait = until.Sub(m.now)
	}
	return fmt.Sprintf("%s %s %s for %v", b.name, b.state, cause, wait)
}

// closedTo says why the breaker of a key lets nothing through, if that is plain to
// see: nothing changes by asking. Both breakers are looked at before any is asked.
func (m *model) closedTo(key string) string {
	b := m.breakers[key]
	switch {
	case b.state == Open && (b.until.IsZero() || m.now.Before(b.until)):
		return m.refusal(b, b.cause, b.until)
	case b.state == HalfOpen && b.probe != nil && m.now.Before(b.probeEnd):
		return m.refusal(b, b.cause, b.probeEnd)
	case b.state == HalfOpen && b.probe == nil && m.now.Before(b.probeAfter):
		return m.refusal(b, b.cause, b.probeAfter)
	}
	return ""
}

// ask says why the breaker of a key lets nothing through, or what a call takes from
// it: "counted", "probe" or nothing.
func (m *model) ask(key string) (refused, takes string) {
	b := m.breakers[key]
	m.tidy(b)
	refuse := func(cause string, until time.Time) (string, string) { return m.refusal(b, cause, until), "" }
	if b.forced {
		return "", ""
	}
	if b.state == Closed {
		if b.metered && !b.reset.IsZero() && !m.now.Before(b.reset) { // a new window
			b.left, b.reset = b.limit, time.Time{}
			b.metered = b.limit <= little
		}
		if b.ramp == 0 && !b.metered {
			return "", ""
		}
		for p, end := range b.counted {
			if !m.now.Before(end) {
				delete(b.counted, p)
			}
		}
		if b.ramp > 0 && len(b.counted) >= b.ramp {
			return refuse(CauseSlowStart, m.now.Add(second))
		}
		if b.metered && b.left-len(b.counted)-m.unmetered(key) < 1 {
			if b.left < 1 && !b.reset.IsZero() {
				m.open(b, CauseBudget, clampHint(b.reset.Sub(m.now)))
				return refuse(CauseBudget, b.until)
			}
			wait := m.now.Add(second)
			if !b.reset.IsZero() && b.reset.Before(wait) {
				wait = b.reset
			}
			return refuse(CauseBudget, wait)
		}
		return "", "counted"
	}
	if b.state == Open {
		if b.until.IsZero() || m.now.Before(b.until) {
			return refuse(b.cause, b.until)
		}
		m.transition(b, HalfOpen)
	}
	if b.probe != nil {
		if m.now.Before(b.probeEnd) {
			return refuse(b.cause, b.probeEnd)
		}
		m.probeFailed(b, b.probeEnd)
	}
	if m.now.Before(b.probeAfter) {
		return refuse(b.cause, b.probeAfter)
	}
	return "", "probe"
}

func (m *model) take(p *modelPermit, key, takes string) {
	b := m.breakers[key]
	switch takes {
	case "counted":
		b.counted[p] = m.now.Add(modelOptions.ProbeTimeout)
	case "probe":
		b.probe, b.probeStarted, b.probeEnd, b.probeAfter = p, m.now, m.now.Add(modelOptions.ProbeTimeout), time.Time{}
	default:
		return
	}
	p.known[b] = true
}

// allow is Allow for a key, "" for none.
func (m *model) allow(id int, key string) (answer string) {
	if refused := m.closedTo(""); refused != "" {
		return refused
	}
	if key != "" {
		if refused := m.closedTo(key); refused != "" {
			return refused
		}
	}
	refused, takes := m.ask("")
	if refused != "" {
		return refused
	}
	var ofKey string
	if key != "" {
		if refused, ofKey = m.ask(key); refused != "" {
			return refused
		}
	}
	m.happened++
	p := &modelPermit{id: id, key: key, at: m.happened, known: map[*modelBreaker]bool{}}
	m.take(p, "", takes)
	if key != "" {
		m.take(p, key, ofKey)
	}
	m.permits = append(m.permits, p)
	return granted(takes, ofKey)
}

// forKey is ForKey.
func (m *model) forKey(p *modelPermit, key string) string {
	refused, takes := m.ask(key)
	if refused != "" {
		return refused
	}
	m.happened++
	p.key, p.at = key, m.happened
	m.take(p, key, takes)
	own := ""
	if p.known[m.breakers[""]] {
		own = "known"
	}
	return granted(own, takes)
}

func granted(own, ofKey string) string {
	var words []string
	if own != "" {
		words = append(words, own)
	}
	if ofKey != "" {
		words = append(words, "key-"+ofKey)
	}
	if words == nil {
		return "permit"
	}
	return strings.Join(words, " ")
}

// report is Report.
func (m *model) report(p *modelPermit, o Outcome) {
	first := !p.landed
	p.landed = true
	owner := p.key
	if o.scope == ScopeGlobal {
		owner = ""
	}
	m.reportTo("", p, o, owner == "", first)
	if p.key != "" {
		m.reportTo(p.key, p, o, owner == p.key, first)
	}
}

func (m *model) reportTo(key string, p *modelPermit, o Outcome, owner, first bool) {
	b := m.breakers[key]
	m.tidy(b)
	_, counted := b.counted[p]
	delete(b.counted, p)
	if b.forced {
		return
	}
	stale := p.at < b.moved
	switch {
	case b.state == HalfOpen && b.probe == p:
		m.probed(key, o, owner)
	case b.state == Closed:
		m.ended(b, o, counted, stale, owner, first)
		switch {
		case stale:
		case o.kind == limited && owner && first:
			b.failures++
			switch {
			case o.hint > 0:
				m.open(b, CauseHint, clampHint(o.hint))
			case b.ramp > 0:
				m.open(b, CauseRamp, -1)
			case b.failures >= modelOptions.FailureThreshold:
				m.open(b, CauseThreshold, -1)
			}
		case o.kind == success:
			b.failures = 0
			fallthrough
		case o.kind != limited:
			if o.hasBudget && owner {
				m.budget(b, o.budget)
			}
		}
	case o.kind == limited && owner && first:
		b.wasted++
		if b.state == Open && o.hint > 0 && !b.until.IsZero() {
			if later := m.now.Add(clampHint(o.hint)); later.After(b.until) {
				b.until = later
			}
		}
	}
}

// ended counts a call out of a CLOSED breaker.
func (m *model) ended(b *modelBreaker, o Outcome, counted, stale, owner, first bool) {
	told := o.hasBudget && owner
	if b.metered && !told && o.kind != neutral && b.left > 0 && (counted || !stale) && first {
		b.left--
		if b.left == 0 && b.reset.IsZero() {
			b.metered = false
		}
	}
	if counted && b.ramp > 0 && o.kind == success && !stale {
		if b.rampOK++; b.rampOK >= b.ramp {
			b.ramp, b.rampOK = 2*b.ramp, 0
			if b.ramp >= modelOptions.MaxInFlight {
				b.ramp = 0
			}
		}
	}
}

func (m *model) probed(key string, o Outcome, owner bool) {
	b := m.breakers[key]
	switch {
	case o.kind == success:
		m.close(b)
		if o.hasBudget && owner {
			m.budget(b, o.budget)
		}
	case o.kind == limited && (owner || o.scope == ScopeUnknown):
		b.probes, b.wasted = b.probes+1, b.wasted+1
		b.raise()
		if o.hint > 0 {
			hint := max(o.hint, time.Second)
			if b.cause == CauseHint {
				hint = max(hint, 2*b.lastCooldown)
			}
			m.open(b, CauseHint, clampHint(hint))
		} else {
			m.open(b, CauseProbe, -1)
		}
	case o.kind == failure:
		m.probeFailed(b, time.Time{})
	default:
		b.probe, b.probeAfter = nil, time.Time{}
	}
}

func (m *model) budget(b *modelBreaker, said Budget) {
	ends := m.now.Add(said.Reset)
	current := b.metered && b.reset.After(m.now)
	switch {
	case current && ends.Before(b.reset.Add(-2*second)): // of another window, but it cost one
		b.left = max(0, b.left-1)
	case current && !ends.After(b.reset.Add(2*second)):
		b.left = min(b.left, said.Remaining)
		if ends.After(b.reset) {
			b.reset = ends
		}
	default:
		b.metered, b.left, b.reset = said.Remaining <= little, said.Remaining, ends
	}
	b.limit = said.Limit
	if b.metered && b.left < 1 {
		if b.reset.After(ends) {
			ends = b.reset
		}
		m.open(b, CauseBudget, clampHint(ends.Sub(m.now)))
	}
}

// release is Release.
func (m *model) release(p *modelPermit) {
	p.landed = true
	for _, key := range []string{"", p.key} {
		b := m.breakers[key]
		delete(b.counted, p)
		if b.state == HalfOpen && b.probe == p {
			b.probe, b.probeAfter = nil, time.Time{}
		}
	}
}

func (m *model) trip(key string, length time.Duration) {
	b := m.breakers[key]
	m.tidy(b)
	m.open(b, CauseManual, length)
}

func (m *model) resetBreaker(key string) {
	b := m.breakers[key]
	m.tidy(b)
	if b.state == Closed && b.failures == 0 && b.ramp == 0 && !b.metered && !b.forced {
		return
	}
	was := b.state
	m.close(b)
	b.forced, b.level, b.metered = false, 0, false
	if was == Closed {
		b.ramp = 0
	}
}

func (m *model) force(key string, length time.Duration) {
	b := m.breakers[key]
	m.close(b)
	b.ramp, b.metered, b.forced, b.forcedUntil = 0, false, true, time.Time{}
	if length > 0 {
		b.forcedUntil = m.now.Add(length)
	}
}

// describe is a breaker in the words of the rows.
func (m *model) describe(key string) string {
	b := m.breakers[key]
	m.tidy(b)
	s := Status{
		State: b.state, Failures: b.failures, Cause: b.cause, Probes: b.probes, Wasted: b.wasted, SlowStart: b.ramp, Level: b.level,
		UntilReset: b.state == Open && b.until.IsZero() && b.cause == CauseManual,
	}
	if b.state == Open && !b.until.IsZero() {
		s.OpenUntilRedis, s.Remaining = b.until, b.until.Sub(m.now)
		if s.Remaining <= 0 {
			s.State, s.Remaining = HalfOpen, 0
		}
	}
	if b.metered {
		s.Budget = &Budget{Remaining: b.left, Limit: b.limit}
		if !b.reset.IsZero() {
			s.Budget.Reset = max(0, b.reset.Sub(m.now))
		}
	}
	if b.forced {
		s.Forced = "closed"
	}
	return fmt.Sprintf("%s level=%d", describe(s), b.level)
}
