package learner

import "math"

// double is a double of the breaker and of its meter in Redis: what lua/learn.lua does with the numbers of a Meter.
type double struct {
	cooldown, capacity float64

	known     State
	meter     Meter
	state     state
	until     float64 // of open
	confirms  bool    // the call that is to confirm a limit is in flight
	learns    bool
	slowStart int // calls accepted of the present step
}

type state int

const (
	closed state = iota
	open
	probing
)

// ask says whether a call may start beside others, and whether its outcome decides, as a probe's; else when to ask again.
func (d *double) ask(now float64, others int) (start, decides bool, wait float64) {
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
	g := d.known.Gate(d.cooldown)
	if g.Most > 0 && others >= g.Most || g.Careful > 0 && others >= max(1, int(m.Used)/g.Careful) {
		return false, false, 1
	}
	wait = d.due(&g, now, others) - now
	return wait <= 0, false, max(0, wait)
}

func (d *double) due(g *Gate, now float64, others int) float64 {
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

func (d *double) tell(e Event) {
	var pause float64
	d.known, d.meter, pause = d.known.Next(d.meter, e, d.cooldown)
	if pause > 0 {
		d.open(e.Now + pause)
	}
}

func (d *double) open(until float64) {
	if d.state == closed {
		d.meter.Refused = 0
	}
	d.state, d.until, d.confirms = open, until, false
	d.meter.Confirm, d.meter.Room = 0, 0
}

func (d *double) accepted(now, sent float64, decides bool, others int) {
	m := &d.meter
	switch {
	case decides && d.state == probing:
		d.state, m.Room, d.slowStart = closed, 1, 0
		d.tell(Event{Kind: Recovered, Now: now, Sent: sent, Others: others})
		return
	case d.state != closed:
		return
	case !d.learns:
		m.Refused = 0
		return
	case decides:
		d.confirms = false
		d.tell(Event{Kind: Confirmed, Now: now, Sent: sent, Others: others})
		return
	}
	if sent >= m.Round {
		m.Used++
		m.Total++
	}
	refused := m.Refused
	m.Refused = 0
	g := d.known.Gate(d.cooldown)
	switch {
	case m.Confirm > 0:
		return
	case g.Careful > 0 && refused > 0 && others == 0:
		d.tell(Event{Kind: Unrefused, Now: now})
		return
	}
	m.Calm++
	if d.slowStart++; m.Room > 0 && d.slowStart >= m.Room {
		m.Room, d.slowStart = 2*m.Room, 0
		if float64(m.Room) >= d.capacity {
			m.Room = 0
		}
	}
	if g.Most > 0 && m.Calm >= g.CalmEnough {
		d.tell(Event{Kind: Grown, Now: now})
		return
	}
	if g.Gap > 0 {
		late := (now - d.due(&g, now, others)) / g.Gap
		if m.Anchor >= m.Round && late <= max(3, math.Round(g.Length/g.Gap)/8) {
			m.Paced++
		}
		if m.Paced >= g.Enough {
			d.tell(Event{Kind: Sustained, Now: now, Others: others})
		}
	}
}

func (d *double) refused(now, sent float64, decides bool, others int) {
	m := &d.meter
	switch {
	case decides && d.state == probing:
		m.Refused++
		d.tell(Event{Kind: Probed, Now: now, Sent: sent, Others: others})
		return
	case d.state != closed, sent < m.Round:
		return
	}
	m.Refused++
	switch {
	case !d.learns && m.Refused < threshold:
	case !d.learns:
		d.learns, m.LastNo = true, now
		m.begin(now, 0)
		d.open(now + d.cooldown)
	case decides, m.Confirm > 0 && others == 0 && m.Refused > 1:
		m.LastNo = sent
		d.tell(Event{Kind: Dry, Now: now})
	case m.Confirm > 0 && others > 0:
		m.Confirm = min(m.Confirm, others)
	case m.Confirm > 0:
	default:
		d.tell(Event{Kind: Refused, Now: now, Others: others})
	}
}

func (d *double) failed(now float64, decides bool) {
	switch {
	case decides && d.state == probing:
		d.state, d.until = open, now+min(1, d.cooldown)
	case decides:
		d.confirms = false
	}
}
