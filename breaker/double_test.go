package breaker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/breaker/internal/learner"
	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// double is a breaker and its meter without Redis: what lua/learn.lua and package policy do with the numbers of a Meter. Tests
// play limits with it in virtual time, and hold it against the scripts.
type double struct {
	cooldown float64 // s
	capacity float64 // calls in flight that end a slow start

	known     learner.State
	meter     learner.Meter
	state     State
	opened    float64
	since     float64 // of the state: reports of earlier calls are late
	until     float64 // of open
	confirms  bool    // the call that is to confirm a limit is in flight
	learns    bool
	flying    []float64 // when the calls in flight began that the meter has
	early     bool      // openings are tested early
	slowStart int       // calls accepted of the present step
}

// ask says whether a call may start beside others, and whether its outcome decides, as a probe's; else when to ask again.
func (d *double) ask(now float64, others int) (start, decides bool, wait float64) {
	m := &d.meter
	switch {
	case d.state == Open && now < d.until:
		return false, false, d.until - now
	case d.state == Open:
		d.state = HalfOpen
		return true, true, 0
	case d.state == HalfOpen, m.Room > 0 && others >= m.Room:
		return false, false, 1
	case !d.learns:
		return true, false, 0
	case m.Confirm > 0:
		if d.confirms = others == 0 && !d.confirms; d.confirms {
			d.flying = append(d.flying, now)
		}
		return d.confirms, d.confirms, 1
	}
	g := d.known.Gate(d.cooldown)
	if g.Most > 0 && others >= g.Most || g.Careful > 0 && others >= max(1, int(m.Used)/g.Careful) {
		return false, false, 1
	}
	before := *m
	if g.Quota > 0 {
		wait = d.asTheyCome(&g, now) - now
	} else {
		wait = d.due(&g, now, others) - now
	}
	if wait > 0 {
		*m = before // no call begins, and no round
		return false, false, wait
	}
	d.flying = append(d.flying, now)
	return true, false, 0
}

func (d *double) due(g *learner.Gate, now float64, others int) float64 {
	if g.Gap == 0 {
		return now
	}
	m := &d.meter
	burst := max(1, math.Round(g.Length/g.Gap))
	if now >= m.Round+g.Length {
		used := m.Used + float64(others)
		left := (now-m.Anchor)/g.Gap - used
		ends := left >= max(2, burst/4)
		if m.Anchor < m.Round && now < m.Round+2*g.Length {
			left, ends = max(0, burst-used), true
		}
		if ends {
			m.Round, m.Anchor, m.Used = now, now, 0
			m.Anchor = now - min(left, burst)*g.Gap
		}
	}
	return m.Anchor + (m.Used+float64(others))*g.Gap
}

// begun is how many calls in flight began at an instant or later.
func (d *double) begun(at float64) (n float64) {
	for _, sent := range d.flying {
		if sent >= at {
			n++
		}
	}
	return n
}

func (d *double) end(sent float64) {
	if i := slices.Index(d.flying, sent); i >= 0 {
		d.flying = slices.Delete(d.flying, i, i+1)
	}
}

// most is how many calls that began in the round may be in flight while a quota is known.
func (d *double) most(g *learner.Gate, now float64) float64 {
	left := float64(g.Quota) - d.meter.Used
	if g.Asks {
		if left <= 0 {
			left = min(-left, float64(g.Quota)/8)
		}
		left /= 2
	}
	if now < d.meter.Round+g.Length/8 {
		left = min(left, d.meter.Used)
	}
	return max(1, math.Floor(left))
}

func (d *double) asTheyCome(g *learner.Gate, now float64) float64 {
	m, quota := &d.meter, float64(g.Quota)
	over := m.Round + g.Length
	if now >= over {
		if m.Used >= quota {
			if d.begun(over) <= math.Floor((now-over)/(g.Length/8)) {
				return now
			}
			return now + 1
		}
		m.Round, m.Anchor, m.Used, m.Hold = now, now, 0, 0
		over = now + g.Length
	}
	switch {
	case !g.Asks && m.Used >= quota:
		return over
	case now < m.Round+m.Hold:
		return m.Round + m.Hold
	case d.begun(m.Round) >= d.most(g, now):
		return now + 1
	}
	return now
}

func (d *double) emit(e learner.Event) {
	var pause float64
	room := d.meter.Room
	d.known, d.meter, pause = d.known.Next(d.meter, e, d.cooldown)
	if d.meter.Room != room {
		d.slowStart = 0
	}
	if unmeasured := d.known.Pace.Stage == learner.Unmeasured; pause == learner.Early || pause > 0 && unmeasured && !d.early {
		pause = max(pause, d.cooldown)
		if d.early {
			began, probes := e.Now, 0
			if d.state != Closed {
				began, probes = d.opened, d.meter.Refused
			}
			pause = policy.UntilTest(1000*e.Now, 1000*began, 1000*d.meter.Round, 1000*d.cooldown, int64(probes)) / 1000
		}
	}
	if pause > 0 {
		d.open(e.Now, e.Now+pause)
	}
}

func (d *double) open(now, until float64) {
	if d.state == Closed {
		d.meter.Refused, d.opened = 0, now
	}
	d.state, d.since, d.until, d.confirms = Open, now, until, false
	d.meter.Confirm, d.meter.Room = 0, 0
}

// accepted reports a call that was sent at that instant; decides as ask said, and others are the calls in flight now.
func (d *double) accepted(now, sent float64, decides bool, others int) {
	d.end(sent)
	m := &d.meter
	count := func() {
		if sent >= m.Round {
			m.Used++
			m.Total++
		}
	}
	switch {
	case decides && d.state == HalfOpen:
		d.state, d.since, m.Room, d.slowStart = Closed, now, 1, 0
		late := sent-d.until > max(learner.Late, (d.until-m.Round)/8) ||
			d.known.Pace.Stage == learner.Unmeasured && sent-d.opened < learner.RefusedPart*(sent-m.Round)
		d.emit(learner.Event{Kind: learner.Recovered, Now: now, Sent: sent, Dry: d.opened, Others: others, Late: late})
		return
	case (d.state != Closed || sent < d.since) && d.learns:
		if sent > m.Round {
			count()
		}
		return
	case d.state != Closed, sent < d.since:
		return
	case !d.learns:
		m.Refused = 0
		return
	case decides:
		d.confirms = false
		d.emit(learner.Event{Kind: learner.Confirmed, Now: now, Sent: sent, Others: others})
		return
	}
	g := d.known.Gate(d.cooldown)
	ended := g.Quota > 0 && m.Used >= float64(g.Quota) && sent >= m.Round+g.Length-.05
	count()
	refused := m.Refused
	m.Refused = 0
	if m.Confirm > 0 {
		return
	}
	if m.Room > 0 {
		d.slowStart++
	}
	if m.Room > 0 && d.slowStart >= m.Room {
		m.Room, d.slowStart = 2*m.Room, 0
		if float64(m.Room) >= d.capacity {
			m.Room = 0
		}
	}
	if g.Careful > 0 {
		if refused > 0 && others == 0 {
			d.emit(learner.Event{Kind: learner.Unrefused, Now: now})
		}
		return
	}
	m.Calm++
	switch {
	case ended:
		d.emit(learner.Event{Kind: learner.Ended, Now: now, Sent: sent, Others: others})
		return
	case g.Quota > 0:
	case g.Gap > 0:
		late := (now - d.due(&g, now, others)) / g.Gap
		if m.Anchor >= m.Round && late <= max(3, math.Round(g.Length/g.Gap)/8) {
			m.Paced++
		}
	}
	switch {
	case g.Most > 0 && m.Calm >= g.CalmEnough:
		d.emit(learner.Event{Kind: learner.Grown, Now: now})
	case g.Quota == 0 && g.Gap > 0 && m.Paced >= g.Enough:
		d.emit(learner.Event{Kind: learner.Sustained, Now: now, Others: others})
	}
}

// refused reports a call that was refused.
func (d *double) refused(now, sent float64, decides bool, others int) {
	d.end(sent)
	m := &d.meter
	switch {
	case decides && d.state == HalfOpen:
		m.Refused++
		d.emit(learner.Event{Kind: learner.Probed, Now: now, Sent: sent, Others: others})
		return
	case d.state != Closed, sent < d.since:
		return
	}
	m.Refused++
	switch {
	case !d.learns && m.Refused < DefaultFailureThreshold:
	case !d.learns:
		d.learns, m.LastNo = true, now
		m.Round, m.Anchor, m.Used = now, now, 0
		d.open(now, now+d.cooldown)
		if d.early {
			d.until = now + policy.UntilTest(1000*now, 1000*now, 1000*now, 1000*d.cooldown, 0)/1000
		}
	case decides, m.Confirm > 0 && others == 0 && m.Refused > 1:
		m.LastNo = sent
		d.emit(learner.Event{Kind: learner.Dry, Now: now})
	case m.Confirm > 0 && others > 0:
		m.Confirm = min(m.Confirm, others)
	case m.Confirm > 0:
	default:
		d.emit(learner.Event{Kind: learner.Refused, Now: now, Sent: sent, Others: others})
	}
}

// failed reports a call that says nothing of a limit.
func (d *double) failed(now, sent float64, decides bool) {
	d.end(sent)
	switch {
	case decides && d.state == HalfOpen:
		d.state, d.until = Open, now+min(1, d.cooldown)
	case decides:
		d.confirms = false
	}
}

// The scripts start and count calls as the double does, with which the learner is measured.
func TestMeterAndItsDouble(t *testing.T) {
	redistest.Slow(t) // not parallel: it sets flags
	setDefault(t, "rapid.checks", "60")
	setDefault(t, "rapid.steps", "80")
	setDefault(t, "rapid.nofailfile", "true")
	rdb := redistest.Database(t).Client(t)
	n := 0
	type call struct {
		Permit
		sent    float64
		decides bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		n++
		c := newFakeClock()
		cooldown := time.Duration(rapid.SampledFrom([]int{3, 30, 300}).Draw(rt, "cooldown")) * time.Second
		b, err := newTestBreaker(rdb, Options{Destination: fmt.Sprint("double-", n), Cooldown: cooldown, CooldownJitter: -1, MaxInFlight: 16, ProbeTimeout: 10 * time.Hour, NoEarlyTests: true}, c.clock())
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		if err := rdb.HSet(t.Context(), b.place.keys[1], ":capacity", 16).Err(); err != nil {
			rt.Fatal(err)
		}
		if err := b.readSnapshot(patient(t)); err != nil {
			rt.Fatal(err)
		}
		d := &double{cooldown: cooldown.Seconds(), capacity: 16}
		var calls []call
		now := func() float64 { return float64(c.redis) / 1e6 }
		metered := func() (n int) {
			for _, c := range calls {
				if c.Metered() && !c.Probe() {
					n++
				}
			}
			return n
		}
		ask := func(rt *rapid.T) bool {
			start, decides, wait := d.ask(now(), metered())
			if !start && wait < .005 { // the scripts round to ms
				c.advance(10*time.Millisecond, 10*time.Millisecond)
				start, decides, wait = d.ask(now(), metered())
			}
			p, err := b.Allow(patient(t))
			for range 3 {
				if start && errors.Is(err, ErrOpen) {
					c.advance(10*time.Millisecond, 10*time.Millisecond)
					p, err = b.Allow(patient(t))
				}
			}
			if start != (err == nil) || err != nil && !errors.Is(err, ErrOpen) {
				rt.Fatalf("the scripts say %v, and the double %v, wait %v: %s", err, start, wait, compare(b, d))
			}
			if start {
				calls = append(calls, call{Permit: p, sent: now(), decides: decides})
			}
			return start
		}
		report := func(rt *rapid.T, accepted bool) {
			if len(calls) == 0 {
				return
			}
			i := rapid.IntRange(0, len(calls)-1).Draw(rt, "call")
			one := calls[i]
			calls = append(calls[:i], calls[i+1:]...)
			o := RateLimited(0)
			if accepted {
				o = Success()
			}
			if _, err := one.Report(patient(t), o); err != nil {
				rt.Fatal(err)
			}
			if accepted {
				d.accepted(now(), one.sent, one.decides, metered())
			} else {
				d.refused(now(), one.sent, one.decides, metered())
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) { ask(rt) },
			"calls": func(rt *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(rt, "n") {
					if ask(rt) {
						report(rt, true)
					}
					d := time.Duration(math.Exp(rapid.Float64Range(8, 15).Draw(rt, "ln µs"))) * time.Microsecond
					c.advance(d, d)
				}
			},
			"accept": func(rt *rapid.T) { report(rt, true) },
			"refuse": func(rt *rapid.T) { report(rt, false) },
			"wait": func(rt *rapid.T) {
				d := time.Duration(math.Exp(rapid.Float64Range(5, 17).Draw(rt, "ln µs"))) * time.Microsecond
				c.advance(d, d)
			},
			"": func(rt *rapid.T) {
				if difference := compare(b, d); difference != "" {
					rt.Fatal(difference)
				}
			},
		})
	})
}

// compare says how what the scripts keep differs from what the double knows.
func compare(b *Breaker, d *double) string {
	r := &b.view.Load().record
	known, m := &d.known, d.meter
	refused := r.Failures
	if r.state() != Closed {
		refused = r.Probes
	}
	counted := meterOf(r, int(refused)) // but what each call changes is not published
	counted.Used = 0                    // as where Redis has no such field
	if err := b.rdb.HGet(context.Background(), b.place.keys[0], "round_used").Scan(&counted.Used); err != nil && !errors.Is(err, redis.Nil) {
		return err.Error()
	}
	read := r.Known()
	for is, want := range map[*float64]*float64{&read.Pace.Fast: &known.Pace.Fast, &read.Pace.Slow: &known.Pace.Slow, &read.Pace.Length: &known.Pace.Length} {
		if math.Abs(*is-*want) < .01+.02**want { // the scripts round: calls in a round would differ by one now and then
			*want = *is
		}
	}
	is, want := sketch(r.state() == Closed, read, counted), sketch(d.state == Closed, *known, m)
	if is == want {
		return ""
	}
	return "the scripts: " + is + "\nthe double:  " + want
}

func sketch(closed bool, s learner.State, m learner.Meter) string {
	p := &s.Pace
	if !closed {
		m.Room, m.Confirm = 0, 0
	}
	return fmt.Sprintf("closed %v, refused %d, room %d, confirm %d, used %v, %s pace %.3f to %.3f s, length %.3f s, seen %d, slots %+v",
		closed, m.Refused, m.Room, m.Confirm, m.Used, p.Stage, p.Fast, p.Slow, p.Length, p.Seen, s.Slots)
}

// meterOf are the numbers that the scripts count, after so many refusals in a row.
func meterOf(r *record, refused int) learner.Meter {
	return learner.Meter{
		Round: float64(r.RoundStarted) / 1e6, Anchor: float64(r.RoundAnchor) / 1e6, Used: float64(r.RoundUsed), Total: float64(r.RoundTotal),
		Paced: int(r.RoundPaced), Calm: int(r.RoundCalm), Refused: refused, LastNo: float64(r.RefusedAt) / 1e6, Room: int(r.Ramp), Confirm: int(r.Confirming),
	}
}

// Whatever the API answers: no pause is longer than it may be, what is known is stored as it is, and an API that
// accepts all calls gets them.
func TestLearnerIsNeverStuck(t *testing.T) { // not parallel: it sets flags
	setDefault(t, "rapid.checks", "2000")
	setDefault(t, "rapid.nofailfile", "true")
	const patientFrom, patience, longest = 5, .25, 25 * 3600 // of the learner
	rapid.Check(t, func(rt *rapid.T) {
		d := &double{cooldown: rapid.SampledFrom([]float64{.5, 3, 30, 300}).Draw(rt, "cooldown"), capacity: 16}
		now, first := 1e9, 1e9
		type call struct {
			sent    float64
			decides bool
		}
		var calls []call
		most := func() float64 {
			allowed := max(1, d.cooldown)
			allowed = max(allowed, d.known.Whole.Hi)
			if p := d.known.Pace; p.Seen >= 2 {
				allowed = max(allowed, p.Length, p.Gap())
			}
			if d.state != Closed && d.meter.Refused >= patientFrom {
				allowed = max(allowed, patience*(now-first))
			}
			return min(allowed, longest) + 1
		}
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) {
				start, decides, wait := d.ask(now, len(calls))
				if start {
					calls = append(calls, call{now, decides})
				} else if wait > most() {
					rt.Fatalf("it waits %v s, want at most %v: %+v", wait, most(), d)
				}
			},
			"report": func(rt *rapid.T) {
				if len(calls) == 0 {
					return
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(rt, "call")
				c := calls[i]
				calls = append(calls[:i], calls[i+1:]...)
				switch rapid.IntRange(0, 6).Draw(rt, "outcome") {
				case 0:
					d.failed(now, c.sent, c.decides)
				case 1, 2, 3:
					d.refused(now, c.sent, c.decides, len(calls))
				default:
					d.accepted(now, c.sent, c.decides, len(calls))
				}
			},
			"time": func(rt *rapid.T) { now += math.Exp(rapid.Float64Range(-5, 7).Draw(rt, "ln s")) },
			"": func(rt *rapid.T) {
				text, err := json.Marshal(d.known)
				if !d.known.Valid() {
					rt.Fatalf("not valid: %+v", d.known)
				}
				var read learner.State
				if err == nil {
					err = json.Unmarshal(text, &read)
				}
				if err != nil || read != d.known {
					rt.Fatalf("%+v is stored as %s: %v", d.known, text, err)
				}
			},
		})
		for _, c := range calls { // all are lost
			d.failed(now, c.sent, c.decides)
		}
		for range 300 { // the API accepts all
			waited, allowed := 0.0, most()
			for {
				start, decides, wait := d.ask(now, 0)
				if start {
					sent := now
					now += .1
					d.accepted(now, sent, decides, 0)
					break
				}
				wait = max(wait, 1e-3)
				now += wait
				if waited += wait; waited > 1.01*allowed {
					rt.Fatalf("no call for %v s, want at most %v: %+v", waited, allowed, d)
				}
			}
		}
	})
}
