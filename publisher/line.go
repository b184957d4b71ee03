package publisher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/engine"
)

// line holds the jobs of a worker that wait for slots of the fleet. They are fetched while earlier calls run, which
// then pass their slots on. Otherwise each slot would be empty until Redis has freed it, granted it again, and handed
// out a job. If Redis is near, the worker fetches a job only once it has a permit, and leaves the others to other
// workers.
type line struct {
	serves bool         // nothing but slots of the destination is declared
	waits  atomic.Int64 // jobs in line, and places for them
	moved  chan struct{}

	mu     sync.Mutex
	calls  int           // of this worker, in flight
	most   int           // since places were last given out
	took   time.Duration // how long calls take, of late
	closed time.Time     // until when
}

const (
	// farAway is the time that Redis takes to grant a permit from which jobs wait in line.
	farAway = 20 * time.Millisecond
	// passable is the longest duration of calls that pass their slots on.
	passable = 4 * time.Second
	// inLineFor bounds the wait; then the job goes back to its queue.
	inLineFor = 5 * time.Second
)

// begin notes that a call begins.
func (l *line) begin() {
	if l.serves {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls++
		l.most = max(l.most, l.calls)
	}
}

// end notes that a call has ended.
func (l *line) end(took time.Duration) {
	if l.serves {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls--
		l.took = max(1, (l.took+took)/2)
	}
}

// room returns how many jobs may join the line: for each call that has a slot, as many as begin while Redis is asked
// three times. inLine reports whether jobs are fetched for the line: the worker has slots.
func (l *line) room(asking time.Duration) (places int, inLine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waits := int(l.waits.Load())
	if asking < farAway || l.took == 0 || l.took > passable || l.most == 0 || time.Now().Before(l.closed) {
		return 0, waits > 0
	}
	enough := time.Duration(l.most) * (l.took + 3*asking - 1) / l.took
	return max(0, int(enough)-waits), true
}

// close lets no job in line for a while.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = time.Now().Add(scarceFor)
}

// join is the grant of n places.
func (l *line) join(b *breaker.Breaker, n int) engine.Grant {
	l.mu.Lock()
	l.most = l.calls
	l.mu.Unlock()
	l.waits.Add(int64(n))
	places := make([]any, n)
	for i := range places {
		places[i] = &place{b.Line(), l}
	}
	return engine.Grant{Max: n, Permit: places[0], More: places[1:], Cost: 1}
}

func (l *line) move() {
	l.waits.Add(-1)
	select {
	case l.moved <- struct{}{}:
	default:
	}
}

// place is the place of a job in line. Either wait or leave is called, once.
type place struct {
	*breaker.Place
	line *line
}

// wait waits for a slot, at most until the job expires.
func (p *place) wait(ctx context.Context, expires time.Time) (breaker.Permit, error) {
	defer p.line.move()
	most := inLineFor
	if !expires.IsZero() {
		most = max(1, min(most, time.Until(expires)))
	}
	permit, err := p.Wait(ctx, most)
	return permit, err //nolint:wrapcheck // it is asked again
}

func (p *place) leave(ctx context.Context) {
	defer p.line.move()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	p.Leave(ctx)
}

// outlasts reports whether the lease of a slot that is passed on is long enough for the longest call: the call before
// may have used up to 5 s, or a quarter of the lease.
func (s settings) outlasts() bool {
	lease := s.breaker.ProbeTimeout
	return lease-s.timeout >= min(5*time.Second, lease/4)
}

// onlySlots reports whether nothing is declared but how many calls may be in flight, of all keys.
func (s settings) onlySlots() bool {
	o := s.breaker
	capped := o.FleetConcurrency > 0
	for _, l := range s.limits {
		capped = capped || l.Concurrency > 0
		if len(l.Rate) > 0 {
			return false
		}
	}
	return capped && s.pool == nil && s.outlasts() && !s.vary() && len(o.Rate)+len(o.KeyRate)+o.KeyConcurrency+len(s.reserve) == 0
}
