package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Times of the fetching.
const (
	// staleAfter is how old a fetched job may be when it is handed out: Redis or this
	// process stood still.
	staleAfter = 5 * time.Second
	// fetchPatience bounds the wait of Worker.Next: the lease that asynq keeps in memory
	// begins when it begins to wait, and is not extended once it has ended.
	fetchPatience = 5 * time.Second
	// strandedAfter is how long a fetched job may lie while the gate is closed.
	strandedAfter = 500 * time.Millisecond
	// emptyFor is how long a queue found empty is skipped while another
	// queue of the Server has jobs.
	emptyFor = 100 * time.Millisecond
	// drainedFor is how long a queue that was drained is skipped: longer than emptyFor, because a wake message
	// announces the next job of the queue.
	drainedFor = time.Second
	// redisTimeout bounds a call whose context has no end of its own.
	redisTimeout = 5 * time.Second
	// maxFetch bounds one call, so that it stays short for Redis and within what
	// a script can unpack.
	maxFetch = 100
)

// errEmpty ends the fetching of an engine until it is woken.
var errEmpty = errors.New("no job waits that could become ready without notice")

// ErrNoBacklog is what a Gate returns that would have to spend something while there are no
// jobs.
var ErrNoBacklog = errors.New("no job needs a permit")

// Next returns the next job, which is in flight then. It waits for one for at most limit (0:
// until fetching is to stop), or, if there is nothing that this engine has to wait for itself,
// returns errEmpty: it is woken when there is. Any other error is the end of the wait.
func (e *Engine) Next(limit time.Duration) (*Delivery, error) {
	e.fetch.Lock()
	defer e.fetch.Unlock()
	ctx := e.ctx
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for ctx.Err() == nil {
		if d := e.fromBuffer(); d != nil {
			return d, nil
		}
		if !e.startWaiting() {
			continue
		}
		began := time.Now()
		grant, err := e.gate.Wait(ctx, e.backlog)
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err() // still at the gate
		}
		e.waiting.Store(false)
		switch {
		case errors.Is(err, ErrNoBacklog):
			e.pace.noJob()
			e.health.worked(began)
			if held := time.Duration(e.heldFor.Load()); held > 0 { // no message will say that a held key is due
				e.waitFor(ctx, min(held, e.o.PollMax))
				continue
			}
			return nil, errEmpty
		case err != nil:
			e.health.failed(err)
			e.wait(ctx)
			continue
		}
		if grant.Opened {
			e.forwardAll()
		}
		e.reclaim() // first, so that order stays
		e.openKeys()
		g := newGranted(grant)
		began = time.Now()
		n, complete, err := e.take(g)
		if rest, left := g.unused(); left || n == 0 && !g.spent {
			e.gate.Unused(e.ctx, rest)
		}
		switch {
		case errors.Is(err, errRefused): // the gate waits for as much as the job costs
		case err != nil:
			e.health.failed(err)
			e.wait(ctx)
		case n > 0:
			e.fetched(began)
			e.pause = e.o.PollMin
		case !complete: // fetch from the queues that were skipped
		case e.mustFetchAgain() || g.Permit != nil: // which the gate keeps for a moment
			e.fetched(began)
			e.waitUntilDue(ctx)
		default:
			e.pace.noJob()
			e.health.worked(began)
			return nil, errEmpty
		}
	}
	return nil, ctx.Err()
}

// mustFetchAgain reports whether jobs may become ready without a message: jobs of a paused queue or
// of a node in backoff, held jobs, and the jobs of a fetch whose reply was lost.
func (e *queues) mustFetchAgain() bool {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	return e.paused || len(e.backoff) > 0 || len(e.due) > 0 || len(e.unheld) > 0 || len(e.lost) > 0 || e.opening.pending()
}

// startWaiting announces that the fetching is at the gate, so that completions do not fill
// the buffer meanwhile; false if there is something already.
func (e *queues) startWaiting() bool {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	if len(e.buffer) > 0 {
		return false
	}
	e.waiting.Store(true)
	return true
}

// wait pauses, or until woken. The next pause is longer, unless woken.
func (e *Engine) wait(ctx context.Context) { e.waitFor(ctx, e.pause) }

// waitUntilDue is wait that also ends when a held key is due.
func (e *Engine) waitUntilDue(ctx context.Context) {
	pause := e.pause
	if at, ok := e.nextDue(); ok {
		pause = min(pause, max(0, time.Until(at)))
	}
	e.waitFor(ctx, pause)
}

func (e *Engine) waitFor(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause):
		if pause == e.pause {
			e.pause = min(2*e.pause, e.o.PollMax)
		}
	case <-e.wake:
		e.pause = e.o.PollMin
	case <-ctx.Done():
	}
}

// fromBuffer returns a job that was fetched with others, nil if there is none.
func (e *Engine) fromBuffer() *Delivery {
	e.bufferMu.Lock()
	if len(e.buffer) == 0 {
		e.bufferMu.Unlock()
		return nil
	}
	d := e.buffer[0]
	if time.Since(d.fetched) < staleAfter {
		e.buffer = e.buffer[1:]
		e.bufferMu.Unlock()
		return d
	}
	e.bufferMu.Unlock()
	// Redis or this process stood still: give the jobs to the workers that are ready.
	ctx, cancel := e.bounded()
	defer cancel()
	if err := e.putBack(ctx); err != nil {
		e.health.failed(err)
	}
	return nil
}

// putBack returns what was fetched but not handed out to the head of its queue,
// the job that is to run next as the last one, so that the order stays, and a
// permit to the gate. What Redis does not take comes back when its lease ends.
func (e *Engine) putBack(ctx context.Context) error {
	e.bufferMu.Lock()
	buffer := e.buffer
	e.buffer = nil
	e.bufferMu.Unlock()
	return e.returnJobs(ctx, buffer)
}

func (e *Engine) returnJobs(ctx context.Context, ds []*Delivery) error {
	var errs []error
	var permits permits
	for _, d := range slices.Backward(ds) {
		// First: it may be fetched again the moment that it is back.
		e.flight.remove(d)
		if _, err := e.applyOutcome(ctx, d.Queue, d.ID, d.run, store.Outcome{Kind: store.KindRequeue}); err != nil {
			errs = append(errs, err)
		}
		permits.giveBack(d.Permit)
	}
	if rest, left := permits.grant(); left {
		e.gate.Unused(ctx, rest)
	}
	return errors.Join(errs...)
}

// free is how many jobs may be fetched: the caller of Next has a slot for one, and the rest
// follows from what is in flight.
func (e *core) free() int {
	return max(1, e.o.Concurrency-e.flight.slots())
}

// permits are the unused permits of a grant, in the order in which jobs get them.
type permits []any

// next takes the next one; nil without any.
func (p *permits) next() any {
	if len(*p) == 0 {
		return nil
	}
	first := (*p)[0]
	*p = (*p)[1:]
	return first
}

// giveBack makes a permit, if it is one, the next.
func (p *permits) giveBack(permit any) {
	if permit != nil {
		*p = slices.Insert(*p, 0, permit)
	}
}

// grant returns the grant of the permits; false if there are none.
func (p permits) grant() (Grant, bool) {
	if len(p) == 0 {
		return Grant{}, false
	}
	return Grant{Max: len(p), Permit: p[0], More: p[1:]}, true
}

// granted is a grant on its way to jobs.
type granted struct {
	Grant
	permits permits
	// spent is true once a permit of it has been given back as a part of what the gate
	// made of it for a key.
	spent bool
}

func newGranted(g Grant) *granted {
	own := &granted{Grant: g}
	if g.Permit != nil {
		own.permits = append(permits{g.Permit}, g.More...)
	}
	return own
}

// unused is what is left of the grant, and whether permits are.
func (g *granted) unused() (Grant, bool) {
	rest, left := g.permits.grant()
	if !left {
		return g.Grant, false
	}
	rest.Cost = g.Cost
	return rest, true
}

// take fetches jobs into the buffer and returns how many. complete is false if it skipped
// queues that were empty a moment ago.
func (e *Engine) take(g *granted) (n int, complete bool, err error) {
	want := min(e.free(), maxFetch)
	if g.Max > 0 {
		want = min(want, g.Max)
	}
	if g.Permit != nil {
		want = min(want, len(g.permits))
	}
	now := time.Now()
	e.bufferMu.Lock()
	queues := e.order(now)
	if g.Queues > 0 { // also queues that seemed to be empty: the gate has seen jobs
		queues = e.o.Queues[:g.Queues]
	}
	e.paused = false
	all := e.surelyEmpty(func(q string) bool { return !slices.Contains(queues, q) })
	e.bufferMu.Unlock()
	var failed error
	for _, queue := range queues {
		if e.inBackoff(queue) { // as one before, on the same node
			continue
		}
		n, err := e.takeQueue(queue, want, g)
		e.bufferMu.Lock()
		e.flowing = n > 0
		if n == 0 && err == nil && !g.spent {
			e.foundEmpty(queue, now)
		}
		e.bufferMu.Unlock()
		if err != nil && n == 0 && !g.spent && !errors.Is(err, errRefused) && e.backOffNode(queue) {
			failed = err
			continue
		}
		if n > 0 || err != nil || g.spent {
			if failed != nil {
				e.health.failed(failed)
			}
			return n, true, err
		}
	}
	if failed != nil {
		return 0, true, failed
	}
	// All queues are empty, or were a moment ago. The next fetch checks the queues that no message will announce.
	e.bufferMu.Lock()
	maps.DeleteFunc(e.empty, func(_ string, m emptied) bool { return !m.sure })
	e.bufferMu.Unlock()
	return 0, all, nil
}

// takeQueue fetches jobs of a queue. Held jobs of keys that are due alternate with the other jobs: pending jobs and,
// while keys take turns, jobs in turn.
func (e *Engine) takeQueue(queue string, want int, g *granted) (int, error) {
	if e.scarce() {
		if err := e.beginTurns(queue); err != nil {
			return 0, err
		}
	}
	if e.turnOfHeld(queue) {
		if n, err := e.takeHeld(queue, want, g); n > 0 || err != nil || g.spent {
			return n, err
		}
	}
	if n, err := e.takeAny(fetch{queue: queue, permits: &g.permits, cost: g.Cost, tests: g.Tests}, want); n > 0 || err != nil {
		return n, err
	}
	return e.takeHeld(queue, want, g)
}

// takeAny fetches until it finds jobs or there are none.
func (e *Engine) takeAny(f fetch, want int) (int, error) {
	for {
		n, passed, err := e.takeOnce(f, want)
		if passed.dropped > 0 {
			e.releaseChildren(f.queue) // some may have expired that had children
		}
		if n > 0 && !errors.Is(err, errRefused) {
			e.served(f)
		}
		if n > 0 && f.key != "" && e.o.Released != nil {
			e.o.Released(f.queue, n)
		}
		// Behind what was skipped there may be jobs.
		if n > 0 || err != nil || passed == (passedOver{}) || e.ctx.Err() != nil {
			return n, err
		}
	}
}

func (e *Engine) takeOnce(f fetch, want int) (n int, passed passedOver, err error) {
	ctx, cancel := e.bounded()
	defer cancel()
	f.run, f.at, f.wakes = e.nextRun(), time.Now(), e.countWakes()
	several := f.permits != nil && len(*f.permits) > 1
	reply, err := store.Fetch(ctx, e.rdb, e.fetchArgs(f, want))
	if err != nil {
		e.noteLost(f, err)
		return 0, passed, err //nolint:wrapcheck // it names the operation
	}
	ds, passed, err := e.receive(f, reply)
	e.bufferMu.Lock()
	e.buffer = append(e.buffer, ds...)
	e.more = several && err == nil && len(reply.Jobs) == want && !reply.Drained
	e.bufferMu.Unlock()
	return len(ds), passed, err
}

// fetch is one call for jobs.
type fetch struct {
	queue   string
	key     string // whose held jobs are fetched; "" for pending ones
	run     string
	at      time.Time
	wakes   uint64   // before it
	permits *permits // for the jobs; nil: they need none
	cost    int      // of the permits' grant
	tests   bool     // likewise
}

// nextRun names a fetch as no other is named.
func (e *core) nextRun() string {
	return e.name + "-" + strconv.FormatUint(e.runs.Add(1), 36)
}

func (e *core) fetchArgs(f fetch, want int) store.FetchArgs {
	return store.FetchArgs{
		Queue: f.queue, Key: f.key, Run: f.run, Worker: e.o.Worker, Max: want, Lease: e.o.Lease, Rekeys: e.o.KeyOf != nil,
		Scarce: f.key == "" && e.scarce(), Untried: f.tests, Weights: e.o.Weights, Lines: e.o.Lines,
	}
}
