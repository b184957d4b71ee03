package learner

import "math"

// Double is a breaker and its meter without Redis: what lua/learn.lua and package policy do with the numbers of a Meter. Tests
// play limits with it in virtual time, and hold it against the scripts.
type Double struct {
	Cooldown float64 // s
	Capacity float64 // calls in flight that end a slow start

	known     State
	meter     Meter
	state     state
	opened    float64
	since     float64 // of the state: reports of earlier calls are late
	until     float64 // of open
	confirms  bool    // the call that is to confirm a limit is in flight
	learns    bool
	slowStart int // calls accepted of the present step
}

const (
	// Late is after how many s a probe is late: no caller asked for it.
	Late = 2
	// RefusedPart is the part of a first round that an API refuses at least if its limit, and not demand, made it so long.
	RefusedPart = 1. / 32
)

type state int

const (
	closed state = iota
	open
	probing
)

// Ask says whether a call may start beside others, and whether its outcome decides, as a probe's; else when to ask again.
func (d *Double) Ask(now float64, others int) (start, decides bool, wait float64) {
	m := &d.meter
	switch {
	case d.state == open && now < d.until:
		return false, false, d.until - now
	case d.state == open:
		d.state = probing
		return true, true, 0
	case d.state == probing, m.Room > 0 && others >= m.Room:
		return false, false, 1
	case !d.learns:
		return true, false, 0
	case m.Confirm > 0:
		d.confirms = others == 0 && !d.confirms
		return d.confirms, d.confirms, 1
	}
	g := d.known.Gate(d.Cooldown)
	if g.Most > 0 && others >= g.Most || g.Careful > 0 && others >= max(1, int(m.Used)/g.Careful) {
		return false, false, 1
	}
	wait = d.due(&g, now, others) - now
	return wait <= 0, false, max(0, wait)
}

func (d *Double) due(g *Gate, now float64, others int) float64 {
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
			m.begin(now, 0)
			m.Anchor = now - min(left, burst)*g.Gap
		}
	}
	return m.Anchor + (m.Used+float64(others))*g.Gap
}

func (d *Double) emit(e Event) {
	var pause float64
	room := d.meter.Room
	d.known, d.meter, pause = d.known.Next(d.meter, e, d.Cooldown)
	if d.meter.Room != room {
		d.slowStart = 0
	}
	if pause > 0 {
		d.open(e.Now, e.Now+pause)
	}
}

func (d *Double) open(now, until float64) {
	if d.state == closed {
		d.meter.Refused, d.opened = 0, now
	}
	d.state, d.since, d.until, d.confirms = open, now, until, false
	d.meter.Confirm, d.meter.Room = 0, 0
}

// Known is what is known of the limit, and the numbers of the meter.
func (d *Double) Known() (State, Meter) { return d.known, d.meter }

// Round takes the numbers of a pace as the scripts have rounded them.
func (d *Double) Round(p Pace) {
	d.known.Pace.Fast, d.known.Pace.Slow, d.known.Pace.Length = p.Fast, p.Slow, p.Length
}

// Closed says that calls may start as the meter allows.
func (d *Double) Closed() bool { return d.state == closed }

// Accepted reports a call that was sent at that instant; decides as Ask said, and others are the calls in flight now.
func (d *Double) Accepted(now, sent float64, decides bool, others int) {
	m := &d.meter
	switch {
	case decides && d.state == probing:
		d.state, d.since, m.Room, d.slowStart = closed, now, 1, 0
		late := sent-d.until > max(Late, (d.until-m.Round)/8) ||
			d.known.Pace.Stage == Unmeasured && sent-d.opened < RefusedPart*(sent-m.Round)
		d.emit(Event{Kind: Recovered, Now: now, Sent: sent, Others: others, Late: late})
		return
	case d.state != closed, sent < d.since:
		return
	case !d.learns:
		m.Refused = 0
		return
	case decides:
		d.confirms = false
		d.emit(Event{Kind: Confirmed, Now: now, Sent: sent, Others: others})
		return
	}
	if sent >= m.Round {
		m.Used++
		m.Total++
	}
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
		if float64(m.Room) >= d.Capacity {
			m.Room = 0
		}
	}
	g := d.known.Gate(d.Cooldown)
	if g.Careful > 0 {
		if refused > 0 && others == 0 {
			d.emit(Event{Kind: Unrefused, Now: now})
		}
		return
	}
	m.Calm++
	if g.Gap > 0 {
		late := (now - d.due(&g, now, others)) / g.Gap
		if m.Anchor >= m.Round && late <= max(3, math.Round(g.Length/g.Gap)/8) {
			m.Paced++
		}
	}
	switch {
	case g.Most > 0 && m.Calm >= g.CalmEnough:
		d.emit(Event{Kind: Grown, Now: now})
	case g.Gap > 0 && m.Paced >= g.Enough:
		d.emit(Event{Kind: Sustained, Now: now, Others: others})
	}
}

// Refused reports a call that was refused.
func (d *Double) Refused(now, sent float64, decides bool, others int) {
	m := &d.meter
	switch {
	case decides && d.state == probing:
		m.Refused++
		d.emit(Event{Kind: Probed, Now: now, Sent: sent, Others: others})
		return
	case d.state != closed, sent < d.since:
		return
	}
	m.Refused++
	switch {
	case !d.learns && m.Refused < threshold:
	case !d.learns:
		d.learns, m.LastNo = true, now
		m.begin(now, 0)
		d.open(now, now+d.Cooldown)
	case decides, m.Confirm > 0 && others == 0 && m.Refused > 1:
		m.LastNo = sent
		d.emit(Event{Kind: Dry, Now: now})
	case m.Confirm > 0 && others > 0:
		m.Confirm = min(m.Confirm, others)
	case m.Confirm > 0:
	default:
		d.emit(Event{Kind: Refused, Now: now, Others: others})
	}
}

// Failed reports a call that says nothing of a limit.
func (d *Double) Failed(now float64, decides bool) {
	switch {
	case decides && d.state == probing:
		d.state, d.until = open, now+min(1, d.Cooldown)
	case decides:
		d.confirms = false
	}
}
