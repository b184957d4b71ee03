// Package forecast computes when the jobs of a destination start: a fluid model of its queues, limits and workers over
// a snapshot of them. It has no clock and reads nothing.
package forecast

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Classes is the number of priorities; 0 is the most urgent one.
const Classes = 3

// Bucket is how many jobs become ready by an instant, since the bucket before.
type Bucket struct {
	At   time.Time
	Jobs int
}

// Mark is an instant for a place in a queue: when the job there entered the queue, or when it starts.
type Mark struct {
	Place float64
	At    time.Time
}

// Expiring is a job that expires, as one of Weight such jobs.
type Expiring struct {
	ID     string
	At     time.Time
	Since  time.Time // when it entered the queue; of a Later one, when it will
	Later  bool
	Weight float64
}

// Queue is a queue of one priority.
type Queue struct {
	// Ready counts the jobs that are due, the InTurns jobs of keys that take turns first.
	Ready, InTurns int
	// Keys are the lengths of some of the AllKeys keys that take turns.
	Keys    []int
	AllKeys int
	// Later are the jobs that wait for a time.
	Later []Bucket
	// Entered says when the ready jobs at some places entered the queue.
	Entered []Mark
	// Expiring are some of the jobs that expire.
	Expiring []Expiring
	// Waiting counts the jobs that wait for parents, or behind another job of their key; they are not part of the forecast.
	Waiting int
}

// Window is a limit of a destination.
type Window struct {
	breaker.LimitWindow

	// Fixed is true of a window that does not slide, and has no calendar that is known.
	Fixed bool
	// Words name it: "60 calls an hour".
	Words string
	// Cost is how much a job takes from the limit, on average.
	Cost float64
}

// Snapshot is a destination at one moment.
type Snapshot struct {
	At     time.Time
	Queues [Classes]Queue
	// Stopped says why no job starts until somebody acts; "" if jobs start.
	Stopped string
	// OpensAt is when the breaker lets calls through again, or the next probe; zero: now.
	OpensAt time.Time
	// Because says why calls wait until OpensAt.
	Because string
	Windows []Window
	// Slots is how many calls may be in flight, PerWorker how many more another worker adds.
	Slots, PerWorker float64
	// Ramp is how many calls may be in flight now, in a slow start, or after OpensAt; 0: Slots.
	Ramp float64
	// Took is the mean time of a call; 0 if none is known.
	Took time.Duration
	Accuracy
}

// Forecast says when jobs start, if no further ones are enqueued.
type Forecast struct {
	Snapshot

	// Binding names what holds the jobs longest; "" if nothing does.
	Binding string
	// Done is when the last job starts; zero without jobs, and if none starts.
	Done time.Time
	// Jobs is how many are to start.
	Jobs int

	curves [Classes][]Mark
	all    []Mark
	added  [Classes]func() *Forecast
}

const (
	steps    = 1000                     // of the model
	farthest = 2 * 366 * 24 * time.Hour // beyond it there is no forecast
	overhead = time.Millisecond         // of a worker, beside each call
	// mostAdded bounds the new jobs that the model plays; the starts of further ones are extrapolated.
	mostAdded = 100
	// turnShare of the fetches begin with another queue than the most urgent one, see engine.queues.order.
	turnShare    = 1.0 / 8 / (Classes - 1)
	noThroughput = "no throughput has been seen yet, and no limit is known"
)

// meter is a limit in the course of the model. Times are seconds since the snapshot.
type meter struct {
	words       string
	cost        float64
	unit, burst float64 // of a sliding one: seconds per unit, and how many at once
	tat         float64 // when none is used any more
	zone        bool    // a fixed window: calls from one boundary to the next
	calls, left float64
	end, per    float64
	window      breaker.LimitWindow
	at          time.Time
}

func (s *Snapshot) meters() (all []*meter) {
	since := func(t time.Time) float64 { return t.Sub(s.At).Seconds() }
	for _, w := range s.Windows {
		m := &meter{words: w.Words, cost: max(w.Cost, 1e-9), window: w.LimitWindow, at: s.At}
		per, calls := w.Window.Seconds(), float64(w.Limit)
		if per <= 0 || calls <= 0 {
			continue
		}
		if m.zone = w.Fixed || w.Zone != ""; m.zone {
			m.calls, m.left, m.per = calls, float64(max(0, w.Remaining)), per
			if m.end = since(w.ResetsAt); w.ResetsAt.IsZero() {
				m.left, m.end = calls, m.next(0)
			}
		} else {
			m.unit, m.burst = per/calls, float64(max(1, w.Burst))
			if m.burst < m.cost {
				m.burst = m.cost
			}
			if !w.ResetsAt.IsZero() {
				m.tat = since(w.ResetsAt)
			}
		}
		all = append(all, m)
	}
	if s.Took > 0 && s.Slots > 0 {
		took := (s.Took + overhead).Seconds()
		m := &meter{words: inFlight(s), cost: 1, unit: took / s.Slots, burst: s.Slots}
		if s.Ramp > 0 && s.Ramp < s.Slots {
			m.tat = max(0, since(s.OpensAt)) + took*(1+math.Log2(s.Slots/s.Ramp))
		}
		all = append(all, m)
	}
	return all
}

// next is the end of the fixed window that holds an instant.
func (m *meter) next(t float64) float64 {
	at := m.at.Add(time.Duration(t*float64(time.Second)) + time.Microsecond) // what is cut off must not end it before
	if end := m.window.End(at); !end.IsZero() {
		return end.Sub(m.at).Seconds()
	}
	return m.end + m.per*(math.Floor((t-m.end)/m.per+1e-9)+1)
}

// roll begins the window that holds an instant.
func (m *meter) roll(t float64) {
	if m.zone && t >= m.end {
		m.left, m.end = m.calls, m.next(t)
	}
}

// last is when the last of n calls may start that are there at an instant.
func (m *meter) last(n, t float64) float64 {
	if !m.zone {
		return max(t, max(m.tat, t)+(n*m.cost-m.burst)*m.unit)
	}
	m.roll(t)
	if need := n * m.cost; need > m.left {
		return m.end + (math.Ceil((need-m.left)/m.whole())-1)*m.per
	}
	return t
}

// whole is how much of a fixed window jobs can use.
func (m *meter) whole() float64 { return max(1, math.Floor(m.calls/m.cost+1e-9)) * m.cost }

// take takes n calls that were waiting at t. The last of them starts at start.
func (m *meter) take(n, t, start float64) {
	if !m.zone {
		m.tat = max(max(m.tat, t)+n*m.unit*m.cost, start+m.unit*m.cost)
		return
	}
	need := n * m.cost
	if full := math.Ceil((need - m.left) / m.whole()); full > 0 {
		m.left += full * m.whole()
		m.end = m.next(m.end + (full-1)*m.per)
	}
	m.left -= need
	m.roll(start)
}

// Run computes the forecast of a snapshot. Jobs that expire before they can start take no calls.
func Run(s Snapshot) *Forecast {
	f := run(s, [Classes]expiry{})
	if late := f.expiries(); late != ([Classes]expiry{}) {
		f = run(s, late)
	}
	return f
}

// expiry is how many jobs of a queue expire before they start, and when the first of them does.
type expiry struct {
	jobs float64
	from time.Time
}

func run(s Snapshot, late [Classes]expiry) *Forecast {
	f := &Forecast{Snapshot: s}
	for c, q := range s.Queues {
		f.Jobs += q.Ready + sum(q.Later)
		f.added[c] = sync.OnceValue(func() *Forecast {
			more := s
			more.Queues[c].Ready += mostAdded + 1
			return Run(more)
		})
	}
	if s.Stopped != "" {
		return f
	}
	meters := s.meters()
	if len(meters) == 0 || s.Took == 0 && len(s.Windows) == 0 {
		f.Stopped = noThroughput
		return f
	}
	var ready, credit, started [Classes]float64
	var later [Classes][]Bucket
	left := float64(f.Jobs)
	for c, q := range s.Queues {
		ready[c], later[c] = float64(q.Ready), q.Later
	}
	now, chunk, held := max(0, s.OpensAt.Sub(s.At).Seconds()), max(1, math.Ceil(left/steps)), map[*meter]float64{}
	if s.OpensAt.IsZero() {
		now = 0
	}
	opening := now
	instant := func(t float64) time.Time { return s.At.Add(time.Duration(t * float64(time.Second))) }
	for left > 0 && now < farthest.Seconds() {
		soonest := math.Inf(1)
		for c := range later {
			for len(later[c]) > 0 && !later[c][0].At.After(instant(now)) {
				ready[c], later[c] = ready[c]+float64(later[c][0].Jobs), later[c][1:]
			}
			if len(later[c]) > 0 {
				soonest = min(soonest, later[c][0].At.Sub(s.At).Seconds())
			}
		}
		c := pick(&ready, &credit)
		if c < 0 {
			if math.IsInf(soonest, 1) {
				break
			}
			now = max(soonest, now+1e-6)
			continue
		}
		n, start, gone := min(chunk, ready[c]), now, 0.0
		if l := late[c].jobs; l > 0 && !instant(now).Before(late[c].from) {
			rest := max(ready[c], l+1)
			gone = min(n*l/(rest-l), ready[c]-n)
			late[c].jobs -= gone
		}
		var holds *meter
		for _, m := range meters {
			if at := m.last(n, now); at > start {
				start, holds = at, m
			}
		}
		for _, m := range meters {
			m.take(n, now, start)
		}
		held[holds] += start - now
		f.curves[c] = append(f.curves[c], Mark{started[c], instant(now)}, Mark{started[c] + n + gone, instant(start)})
		f.all = append(f.all, Mark{float64(f.Jobs) - left, instant(now)}, Mark{float64(f.Jobs) - left + n + gone, instant(start)})
		ready[c], started[c], left, now = ready[c]-n-gone, started[c]+n+gone, left-n-gone, start
		f.Done = instant(now)
	}
	longest := 0.0
	if f.Because != "" && opening > 0 {
		f.Binding, longest = f.Because, opening
	}
	for m, t := range held {
		if m != nil && (t > longest || f.Binding == "" && t > 0) {
			f.Binding, longest = m.words, t
		}
	}
	return f
}

// pick chooses the queue of the next jobs as workers do: the most urgent one but for some turns of the others.
func pick(ready, credit *[Classes]float64) int {
	best, first := -1, true
	rest := 1.0
	for c := Classes - 1; c >= 0; c-- { // what the others leave is the most urgent one's
		if ready[c] > 0 {
			best = c
			rest -= turnShare
		}
	}
	for c := range ready {
		switch {
		case ready[c] <= 0:
			credit[c] = 0
			continue
		case first:
			credit[c] += rest + turnShare
			first = false
		default:
			credit[c] += turnShare
		}
		if credit[c] > credit[best] {
			best = c
		}
	}
	if best >= 0 {
		credit[best]--
	}
	return best
}

// Start is when the job at a place of a queue starts, 0 being the next one; zero if that is not known. Jobs that
// become ready later come behind in the order of their times.
func (f *Forecast) Start(class int, place float64) time.Time {
	return at(f.curves[class], place+1)
}

// Next is when a job starts that is enqueued now, behind some others that the snapshot has not.
func (f *Forecast) Next(class, behind int) time.Time {
	with, place := f.added[class](), float64(f.Queues[class].Ready)
	start := with.Start(class, place+float64(min(behind, mostAdded)))
	if more := behind - mostAdded; more > 0 && !start.IsZero() {
		start = start.Add(time.Duration(float64(start.Sub(with.Start(class, place))) * float64(more) / mostAdded))
	}
	return start
}

// at interpolates the instant of a place; zero beyond the last one.
func at(marks []Mark, place float64) time.Time {
	i, _ := slices.BinarySearchFunc(marks, place-1e-6, func(m Mark, p float64) int {
		if m.Place < p {
			return -1
		}
		return 1
	})
	switch {
	case i == len(marks):
		return time.Time{}
	case i == 0 || marks[i].Place <= marks[i-1].Place:
		return marks[i].At
	}
	part := (place - marks[i-1].Place) / (marks[i].Place - marks[i-1].Place)
	return marks[i-1].At.Add(time.Duration(min(part, 1) * float64(marks[i].At.Sub(marks[i-1].At))))
}

// placesSince are the first and the last place of jobs that entered the queue at an instant.
func (q *Queue) placesSince(t time.Time) (low, high float64) {
	marks, last := q.Entered, max(0, float64(q.Ready)-1)
	i := slices.IndexFunc(marks, func(m Mark) bool { return !m.At.Before(t) })
	if i < 0 {
		return last, last
	}
	j := i
	for j+1 < len(marks) && marks[j+1].At.Equal(t) {
		j++
	}
	if marks[i].At.Equal(t) || i == 0 {
		return marks[i].Place, min(marks[j].Place, last)
	}
	a, b := marks[i-1], marks[i]
	place := a.Place + (b.Place-a.Place)*float64(t.Sub(a.At))/float64(b.At.Sub(a.At))
	return min(place, last), min(place, last)
}

// PlaceAt is the place of a job that becomes ready at an instant: behind all that are ready by then.
func (q *Queue) PlaceAt(t time.Time) float64 {
	place, before := float64(q.Ready), time.Time{}
	for _, b := range q.Later {
		if b.At.After(t) {
			if part := float64(t.Sub(before)) / float64(max(1, b.At.Sub(before))); !before.IsZero() && part > 0 {
				place += part * float64(b.Jobs)
			}
			break
		}
		place, before = place+float64(b.Jobs), b.At
	}
	return place
}

// PlaceInTurn is the place of a job with the given number of jobs of its key before it, where keys take turns.
func (q *Queue) PlaceInTurn(before int) float64 {
	jobs := 0
	for _, n := range q.Keys {
		jobs += min(n, before+1)
	}
	if len(q.Keys) == 0 {
		return float64(before)
	}
	return max(0, float64(jobs)*float64(q.AllKeys)/float64(len(q.Keys))-float64(q.AllKeys)/2-0.5)
}

func sum(buckets []Bucket) (n int) {
	for _, b := range buckets {
		n += b.Jobs
	}
	return n
}
