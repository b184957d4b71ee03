package publisher

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// Times of an unreachable destination.
const (
	// firstTry and lastTry bound the pause before the next try, which doubles.
	firstTry, lastTry = time.Second, 30 * time.Second
	// quietFor is the least time between two such outages at warn level: a worker with too
	// few file descriptors alternates.
	quietFor = time.Minute
	// guesses is how many calls in a row must have failed to leave where the host depends on the
	// job's key.
	guesses = 3
)

// reach tracks whether the calls of a destination leave this process. While they do not, one
// job at a time tries, and the others stay in the queue for other workers.
type reach struct {
	log     *slog.Logger
	timeout time.Duration // of a call
	changed func()        // called when an outage begins or ends; must not block

	mu      sync.Mutex
	since   time.Time // of the first call that did not leave; zero while calls leave
	problem string
	period  uint64    // counts the begins and ends of outages
	inRow   int       // consecutive calls that did not leave
	tries   int       // failed tries of this outage
	next    time.Time // earliest next try
	granted bool      // a job was fetched for the try
	trying  bool      // the try is in flight
	waken   chan struct{}
	logged  time.Time // when an outage was last logged above debug level
	loud    bool      // this outage was logged above debug level
}

// admit reports whether jobs may be fetched: free of limits, one for a try (pause is 0), or
// not before pause has passed or changed is closed.
func (r *reach) admit(now time.Time) (free bool, pause time.Duration, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		return true, 0, nil
	}
	return false, r.next.Sub(now), r.waken
}

// grant reserves the next try for the next job.
func (r *reach) grant(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.since.IsZero() {
		r.granted, r.next = true, now.Add(r.timeout)
	}
}

// ungrant returns a grant for which there was no job.
func (r *reach) ungrant(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.granted {
		r.granted, r.next = false, now
	}
}

// sending is a call that may leave.
type sending struct {
	r      *reach
	period uint64
	try    bool // the one try of an outage
}

// enter begins a call; false if it must not be made now.
func (r *reach) enter() (sending, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := sending{r: r, period: r.period}
	if r.since.IsZero() {
		return c, true
	}
	c.try, r.granted = r.granted, false
	r.trying = r.trying || c.try
	return c, c.try
}

// sent records that the call has left.
func (c sending) sent(now time.Time) {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.period != r.period {
		return
	}
	r.inRow = 0
	if r.since.IsZero() {
		return
	}
	r.level(slog.LevelInfo)("calls leave this worker again", "after", now.Sub(r.since).Round(time.Millisecond).String(), "tries", r.tries)
	r.since, r.problem, r.tries = time.Time{}, "", 0
	r.begin()
}

// ended records the result of the call.
func (c sending) ended(result callResult) {
	switch {
	case result.kind == jobUnreachable, result.kind == jobTimedOut: // the call may have had too little time
	case result.kind == unreachable:
		unsent, _ := errors.AsType[*jobs.UnreachableError](result.err)
		c.failed(time.Now(), result.err, !unsent.OfKey)
	case result.kind == noOwnCredentials && !result.called: // others may get a token
		c.failed(time.Now(), result.err, result.scope == jobs.ScopeGlobal)
	case result.called && !kinds[result.kind].unknown && result.kind != rescheduled:
		c.sent(time.Now())
	}
}

// failed records that the call has not left. sure is false if other keys' hosts may be reached.
func (c sending) failed(now time.Time, err error, sure bool) {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.period != r.period {
		return
	}
	r.inRow++
	down := !r.since.IsZero()
	if !down && !sure && r.inRow < guesses {
		return
	}
	pause := min(firstTry<<min(r.tries, 5), lastTry)
	pause += rand.N(pause/5) - pause/10 //nolint:gosec // it spreads calls
	r.problem, r.next = clean(inner(err).Error(), maxExcerpt), now.Add(pause)
	r.tries++
	r.trying = false
	if down {
		return
	}
	r.since = now
	r.loud = r.logged.IsZero() || now.Sub(r.logged) >= quietFor
	if r.loud {
		r.logged = now
	}
	r.level(slog.LevelWarn)("calls do not leave this worker; their jobs wait for other workers, and one at a time tries", "error", r.problem)
	r.begin()
}

// end ends a call that proved nothing: another job may try.
func (c sending) end(now time.Time) {
	if !c.try {
		return
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.period == c.r.period && c.r.trying {
		c.r.trying, c.r.next = false, now
	}
}

// begin begins a new period: calls of an earlier period no longer count.
func (r *reach) begin() {
	r.period++
	r.granted, r.trying = false, false
	close(r.waken)
	r.waken = make(chan struct{})
	r.changed()
}

// level returns the logging function: at debug level within quietFor of the last outage.
func (r *reach) level(l slog.Level) func(string, ...any) {
	if !r.loud {
		return r.log.Debug
	}
	if l == slog.LevelWarn {
		return r.log.Warn
	}
	return r.log.Info
}

// down returns since when calls do not leave and why, and when the next try may start;
// zero while they leave.
func (r *reach) down() (since time.Time, problem string, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since, r.problem, r.next
}

// inner is the error without the URL that net/http puts in front, which can hold secrets.
func inner(err error) error {
	if call, ok := errors.AsType[*url.Error](err); ok {
		return call.Err
	}
	return err
}
