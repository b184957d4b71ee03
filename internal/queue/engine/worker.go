package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// queueWatch polls the queues of all engines, and has them maintained when it is time.
type queueWatch struct {
	rdb      redis.UniversalClient
	engines  []*Engine
	byQueue  map[string]*Engine
	o        WorkerOptions
	fetching context.Context // ends when fetching stops

	poke    chan struct{} // ends the pause before the next check of a queue
	pollNow chan struct{} // ends the pause before the next poll
	loops   sync.WaitGroup
	polled  int // counts the queues that polls have checked; used by the polling goroutine alone

	forwarding, polling perNode
}

// Worker runs the engines of all destinations of a process as one, for asynq's Server. What it costs
// while nothing happens does not grow with the destinations, but for one EXISTS a second that names all of
// their queues.
type Worker struct {
	queueWatch

	// ready hands out jobs. Each engine offers one at a time, in turns: senders of a channel
	// are served in their order.
	ready chan *Delivery
	taken chan *Delivery // of Next, until Take
	stop  context.CancelFunc
}

// perNode makes one call at a time for the queues of each node of a Cluster, so that a node
// that hangs holds up its own queues only.
type perNode struct {
	mu   sync.Mutex
	busy map[string]bool // true if begin has refused a call since
}

// begin reports whether a call may be made. It is followed by end.
func (p *perNode) begin(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, busy := p.busy[node]; busy {
		p.busy[node] = true
		return false
	}
	if p.busy == nil {
		p.busy = map[string]bool{}
	}
	p.busy[node] = false
	return true
}

// end ends a call and reports whether begin has refused another one meanwhile. Then the caller calls again,
// because the reply to this call may be too old for the refused one.
func (p *perNode) end(node string) (refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	refused = p.busy[node]
	delete(p.busy, node)
	return refused
}

// is reports whether a call is under way.
func (p *perNode) is(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, busy := p.busy[node]
	return busy
}

// any reports whether a call is under way to any node.
func (p *perNode) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.busy) > 0
}

// node names the node of a Cluster that a queue lies on.
func (w *queueWatch) node(queue string) string { return store.NodeOf(w.fetching, w.rdb, queue) }

// WorkerOptions configure a Worker.
type WorkerOptions struct {
	// PollEvery is the interval at which the worker polls its queues, in case a wake message was lost. Default 1 s.
	PollEvery time.Duration
	// SecondCheck is the time between the two checks of a lapsed lease that conclude its
	// worker's death. Default two heartbeats.
	SecondCheck time.Duration
}

// NewWorker returns a worker for engines that share no queue.
func NewWorker(rdb redis.UniversalClient, o WorkerOptions, engines ...*Engine) *Worker {
	o.PollEvery = cmp.Or(o.PollEvery, time.Second)
	o.SecondCheck = cmp.Or(o.SecondCheck, secondCheck(engines[0].o.Lease))
	w := &Worker{ready: make(chan *Delivery)}
	w.rdb, w.o, w.engines, w.byQueue = rdb, o, engines, map[string]*Engine{}
	w.poke, w.pollNow = make(chan struct{}, 1), make(chan struct{}, 1)
	for _, e := range engines {
		for _, q := range e.o.Queues {
			w.byQueue[q] = e
		}
	}
	w.taken = make(chan *Delivery, w.Concurrency())
	w.fetching, w.stop = context.WithCancel(context.Background())
	return w
}

// Concurrency is how many jobs are in flight at most, of all destinations together.
func (w *Worker) Concurrency() (n int) {
	for _, e := range w.engines {
		n += e.o.Concurrency
	}
	return n
}

// Start begins to fetch, to maintain the queues, and to extend the leases of jobs in flight.
// It is called once.
func (w *Worker) Start() {
	for _, e := range w.engines {
		e.run.start(w.ready)
	}
	w.Resync()
	w.loops.Go(w.keepLeases)
	w.loops.Go(w.maintain)
	w.loops.Go(w.poll)
}

// Ready says that a queue has ready jobs.
func (w *queueWatch) Ready(queue string) {
	if e := w.byQueue[queue]; e != nil {
		e.wakeFor(queue)
	}
}

// ForwardIn has a queue checked after d, or sooner.
func (w *queueWatch) ForwardIn(queue string, d time.Duration) {
	if e := w.byQueue[queue]; e != nil {
		if e.ForwardIn(queue, d) {
			w.forwardSooner()
		}
	}
}

// Receive processes a message of the channel store.Namespace.WakeChannel.
func (w *queueWatch) Receive(message string) {
	queue, ms, later := strings.Cut(message, " ")
	if !later {
		w.Ready(queue)
	} else if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
		w.ForwardIn(queue, store.Duration(n))
	}
}

// Resync has all queues polled and checked: messages may have been lost.
func (w *queueWatch) Resync() {
	for _, e := range w.engines {
		for _, q := range e.o.Queues {
			e.ForwardIn(q, 0)
		}
	}
	w.forwardSooner()
	poke(w.pollNow)
}

func (w *queueWatch) forwardSooner() { poke(w.poke) }

// poke ends the pause of a loop.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// poll polls all queues every PollEvery, and when pollNow says so.
func (w *queueWatch) poll() {
	tick := time.Tick(w.o.PollEvery)
	for {
		select {
		case <-w.fetching.Done():
			return
		case <-tick:
		case <-w.pollNow:
		}
		w.pollOnce()
	}
}

// pollOnce finds the queues that hold ready jobs although no message of them has come: it was
// lost, or another tool than ours has enqueued. Engines that fetch are no exception: the fetch
// may have passed the queue over, or found it empty before. It has one queue after the other
// checked.
func (w *queueWatch) pollOnce() {
	byNode := map[string][]string{}
	for _, e := range w.engines {
		for _, q := range e.o.Queues {
			node := w.node(q)
			byNode[node] = append(byNode[node], q)
		}
		for _, q := range e.queuesInBackoff() {
			e.ForwardIn(q, 0)
		}
		if since, _ := e.Trouble(); !since.IsZero() {
			e.ForwardIn(e.o.Queues[0], 0) // to see whether it is over
		}
	}
	for range (len(w.byQueue) + queuesAPoll - 1) / queuesAPoll {
		w.polled++
		e := w.engines[w.polled%len(w.engines)]
		e.ForwardIn(e.o.Queues[w.polled/len(w.engines)%len(e.o.Queues)], 0)
	}
	w.forwardSooner()
	for node, queues := range byNode {
		if !w.polling.begin(node) {
			continue
		}
		w.loops.Go(func() {
			w.expectJobsOf(queues)
			if w.polling.end(node) {
				poke(w.pollNow)
			}
		})
	}
}

// expectJobsOf makes the engines poll the queues that hold ready jobs.
func (w *queueWatch) expectJobsOf(queues []string) {
	ctx, cancel := context.WithTimeout(w.fetching, redisTimeout)
	defer cancel()
	began := time.Now()
	ready, errs := store.Awake(ctx, w.rdb, queues)
	for i, q := range queues {
		e := w.byQueue[q]
		switch {
		case e.run.awake() && !e.waiting.Load(): // its fetches show an outage; at the gate nothing else does
		case errs[i] == nil:
			e.health.answered(began)
		case w.fetching.Err() == nil:
			e.health.failed(errs[i])
		}
		if ready[i] {
			e.expect(q)
		}
	}
}

// maintain checks queues when it is time.
func (w *queueWatch) maintain() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-w.fetching.Done():
			return
		case <-t.C:
		case <-w.poke:
		}
		now := time.Now()
		for _, e := range w.engines {
			if now.Sub(e.retried) >= retryEvery && e.mustRetry() && e.retrying.CompareAndSwap(false, true) {
				e.retried = now
				w.loops.Go(func() {
					defer e.retrying.Store(false)
					e.retryWrites()
				})
			}
		}
		for node, forwards := range w.begin(now) {
			w.loops.Go(func() {
				w.forward(forwards)
				w.forwarding.end(node)
				w.forwardSooner()
			})
		}
		pause := time.Millisecond
		if w.forwarding.any() { // whose end ends the pause
			pause = pauseForwarding
		}
		next := time.Now().Add(actionInterval) // a job may be in flight then
		for _, e := range w.engines {
			if at := e.nextForward(); !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		t.Reset(max(time.Until(next), pause))
	}
}

// forward checks queues of one node, in one round trip, and returns how many jobs were moved to
// them.
func (w *queueWatch) forward(begun []begunForward) (moved int) {
	for part := range slices.Chunk(begun, forwardsAtOnce) {
		args := make([]store.ForwardArgs, len(part))
		for i, l := range part {
			args[i] = l.ForwardArgs
		}
		ctx, cancel := part[0].e.bounded()
		began := time.Now()
		replies, errs := store.ForwardAll(ctx, w.rdb, args)
		cancel()
		for i, l := range part {
			l.e.endForward(began, l.ForwardArgs, replies[i], errs[i])
			if errs[i] != nil && redis.IsPermissionError(errs[i]) {
				w.failed(errs[i])
			}
			moved += replies[i].Moved
		}
	}
	return moved
}

// failed reports to all engines that Redis refuses scripts: a sleeping engine runs none.
func (w *queueWatch) failed(err error) {
	for _, e := range w.engines {
		e.health.failed(err)
	}
}

// forwardsAtOnce bounds one pipeline.
const forwardsAtOnce = 200

type begunForward struct {
	e *Engine
	store.ForwardArgs
}

// begin returns the checks whose time it is, by node. Nodes that are being checked are left
// out.
func (w *queueWatch) begin(now time.Time) map[string][]begunForward {
	begun := map[string][]begunForward{}
	for _, e := range w.engines {
		for _, a := range e.beginForwards(now, func(queue string) bool { return !w.forwarding.is(w.node(queue)) }) {
			node := w.node(a.Queue)
			begun[node] = append(begun[node], begunForward{e, a})
		}
	}
	for node := range begun {
		w.forwarding.begin(node)
	}
	return begun
}

// run is whether an engine fetches. It sleeps while there is nothing to wait for.
type run struct {
	mu      sync.Mutex
	ready   chan<- *Delivery // nil before it has been started
	running bool
	woken   bool // since the fetch under way began
	loops   sync.WaitGroup
}

func (r *run) start(ready chan<- *Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = ready
}

func (r *run) awake() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// begin notes that a fetch begins.
func (r *run) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken = false
}

// sleep reports whether the engine may sleep: nothing has woken it since begin.
func (r *run) sleep() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = r.woken
	return !r.running
}

// Wake has the engine check all of its queues.
func (e *waker) Wake() { e.wakeFor("") }

// wakeFor has the engine check a queue that has jobs now, "" for all.
func (e *waker) wakeFor(queue string) {
	e.expect(queue)
	poke(e.wake)
}

// expect has the engine check a queue that may have jobs, "" for all. An engine that fetches does
// so in its own time, but again after what is under way: a fetch that began before does not show
// that the queue is empty.
func (e *waker) expect(queue string) {
	asleep := !e.run.awake()
	e.bufferMu.Lock()
	e.wakes++
	if queue == "" {
		clear(e.empty)
	} else {
		delete(e.empty, queue)
	}
	for q, m := range e.empty {
		if asleep && m.sure { // the poll has looked at it
			m.until = time.Now().Add(drainedFor)
			e.empty[q] = m
		}
	}
	e.bufferMu.Unlock()
	if e.o.Ready != nil {
		e.o.Ready(queue)
	}
	e.goOn()
}

// goOn has the engine fetch, or check again if it does.
func (e *waker) goOn() {
	e.run.mu.Lock()
	e.run.woken = true
	if ready := e.run.ready; !e.run.running && ready != nil && e.ctx.Err() == nil {
		e.run.running = true
		e.run.loops.Go(func() { e.offer(ready) })
	}
	e.run.mu.Unlock()
}

// fetchWhileFree fetches jobs while slots are free, and offers one after the other, until there are none
// or fetching is to stop.
func (e *Engine) fetchWhileFree(ready chan<- *Delivery) {
	for e.awaitSlot() {
		e.run.begin()
		d, err := e.Next(0)
		if errors.Is(err, errEmpty) && e.run.sleep() {
			return
		}
		if d == nil {
			continue
		}
		select {
		case ready <- d:
		case <-e.ctx.Done():
			e.bufferMu.Lock()
			e.buffer = slices.Insert(e.buffer, 0, d)
			e.bufferMu.Unlock()
		}
	}
}

// awaitSlot waits for a slot; false if fetching is to stop.
func (e *waker) awaitSlot() bool {
	for !e.hasSlot() {
		e.pace.noSlot()
		select {
		case <-e.flight.freed:
		case <-e.ctx.Done():
			return false
		}
	}
	return e.ctx.Err() == nil
}

// hasSlot reports whether a job may be handed out. Jobs in the buffer are in flight, but have
// no handler yet.
func (e *queues) hasSlot() bool {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	return e.flight.after.Load() == nil && e.flight.slots()-len(e.buffer) < e.o.Concurrency
}

// Next waits for a job, of any destination, for the next Take; false when there was none for a while
// or fetching is to stop. The job is in flight then: see Delivery.
func (w *Worker) Next() bool {
	select {
	case d := <-w.ready:
		w.taken <- d
		return true
	case <-w.fetching.Done():
	case <-time.After(fetchPatience):
	}
	return false
}

// Take returns a job that Next has got; each once.
func (w *Worker) Take() *Delivery { return <-w.taken }

// After settles a job whose handler has returned, and returns a job that the same goroutine can
// run at once; nil if none is ready or fetching is to stop.
func (w *Worker) After(d *Delivery) *Delivery {
	e := w.byQueue[d.Queue]
	if e.settle(d) {
		if next := e.inSlotOf(d, w.fetching.Err() == nil && !e.waiting.Load()); next != nil {
			return next
		}
	}
	return w.freeSlot(e)
}

// Park frees the slot of a job whose outcome is not decided yet although its handler has
// returned, and returns a job as After does. The job stays in flight until Settle.
func (w *Worker) Park(d *Delivery) *Delivery {
	e := w.byQueue[d.Queue]
	e.flight.park(d)
	return w.freeSlot(e)
}

// freeSlot says that an engine has a free slot, and returns a job that is ready; nil without one.
func (w *Worker) freeSlot(e *Engine) *Delivery {
	e.flight.free()
	if w.fetching.Err() != nil {
		return nil
	}
	select {
	case next := <-w.ready: // it waits for a goroutine of asynq's
		return next
	default:
		return nil
	}
}

// Settle applies the outcome of a job whose handler has returned; it fails a job without one.
// It returns when Redis has recorded the outcome, or after Abort.
func (w *Worker) Settle(d *Delivery) {
	e := w.byQueue[d.Queue]
	if e.settle(d) {
		e.flight.remove(d)
	}
}

// inSlotOf takes a job that is over out of flight, and gives its slot to the next one of the
// buffer if more is true. Nothing else can take the slot in between: the order of jobs stays.
func (e *queues) inSlotOf(d *Delivery, more bool) (next *Delivery) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	if e.flight.takeOut(d) && more && len(e.buffer) > 0 && time.Since(e.buffer[0].fetched) < staleAfter {
		next, e.buffer = e.buffer[0], e.buffer[1:]
	}
	return next
}

// CancelTask cancels the run of a job as if a cancel of the job had been requested.
func (w *Worker) CancelTask(id string) {
	for _, e := range w.engines {
		if d := e.flight.get(id); d != nil {
			d.cancel()
		}
	}
}

// CloseGate stops fetching: a Next that waits returns no job, jobs that were fetched but not
// handed out go back to the head of their queues, unused permits are given back.
func (w *Worker) CloseGate(ctx context.Context) error {
	w.stop()
	for _, e := range w.engines {
		e.cancel()
	}
	for _, e := range w.engines {
		e.run.mu.Lock()   // no loop begins any more
		e.run.mu.Unlock() //nolint:staticcheck // see above
		e.run.loops.Wait()
	}
	errs := make([]error, len(w.engines))
	w.each(func(i int, e *Engine) { errs[i] = e.CloseGate(ctx) })
	return errors.Join(errs...)
}

// Finish puts back the jobs whose handlers still run, for as long as that takes or until Abort, and
// ends everything else.
func (w *Worker) Finish() {
	w.each(func(_ int, e *Engine) { e.requeueUndecided() }) // leases are extended until all have
	w.each(func(_ int, e *Engine) { e.Finish() })
	w.loops.Wait()
}

// Abort ends all waiting for Redis: the time to shut down is over. Jobs whose outcomes are
// lost by it come back when their leases end.
func (w *Worker) Abort() {
	for _, e := range w.engines {
		e.Abort()
	}
}

// each calls f for all engines at once: they may use different nodes of a Cluster.
func (w *Worker) each(f func(i int, e *Engine)) {
	var wg sync.WaitGroup
	for i, e := range w.engines {
		wg.Go(func() { f(i, e) })
	}
	wg.Wait()
}

// RecoverLapsed recovers the jobs of all queues whose workers have died: their leases have
// lapsed at two checks, WorkerOptions.SecondCheck apart by this process's monotonic clock, and
// were not extended in between. One check would take a step of Redis's clock for a death.
func (w *Worker) RecoverLapsed() {
	for queue, jobs := range w.dead() {
		for _, job := range jobs {
			w.byQueue[queue].Recover(queue, job)
		}
	}
}

// dead lists the jobs of RecoverLapsed, by queue.
func (w *Worker) dead() map[string][]store.Lapsed {
	first := w.lapsed(slices.Collect(maps.Keys(w.byQueue)))
	if len(first) == 0 {
		return nil
	}
	t := time.NewTimer(w.o.SecondCheck)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.fetching.Done():
		return nil
	}
	second := w.lapsed(slices.Collect(maps.Keys(first)))
	for queue, jobs := range second {
		second[queue] = slices.DeleteFunc(jobs, func(job store.Lapsed) bool { return !slices.Contains(first[queue], job) })
	}
	return second
}

// lapsed lists the jobs whose leases have lapsed, by queue.
func (w *Worker) lapsed(queues []string) map[string][]store.Lapsed {
	ctx, cancel := w.engines[0].bounded()
	defer cancel()
	leased, errs := store.Leased(ctx, w.rdb, queues)
	out := map[string][]store.Lapsed{}
	away := map[string]bool{} // nodes that do not answer; they are asked again in a minute
	for i, q := range queues {
		e, node := w.byQueue[q], w.node(q)
		if errs[i] != nil {
			e.health.failed(errs[i])
		}
		if !leased[i] || away[node] {
			continue
		}
		found, err := e.Lapsed(q)
		if len(found) > 0 {
			out[q] = found
		}
		away[node] = err != nil
	}
	return out
}

// Maintain does at once what a started worker does by itself, and returns how many jobs were
// moved. It is for tests that play the worker.
func (w *queueWatch) Maintain() (moved int) {
	now := time.Now()
	for _, e := range w.engines {
		e.retryWrites()
	}
	for node, forwards := range w.begin(now) {
		moved += w.forward(forwards)
		w.forwarding.end(node)
	}
	return moved
}

// Purge deletes jobs whose retention has ended. A queue in which there were none is skipped
// for a while. It is called by one goroutine, every few seconds.
func (w *Worker) Purge(ctx context.Context) {
	var queues []string
	for _, e := range w.engines {
		now := time.Now()
		if e.purgeAt.IsZero() {
			e.purgeAt = now.Add(rand.N(e.purgeRest() + 1)) //nolint:gosec // it spreads the work
		}
		if !now.Before(e.purgeAt) {
			e.purgeAt = now.Add(e.purgeRest())
			queues = append(queues, e.o.Queues...)
		}
	}
	if len(queues) == 0 {
		return
	}
	bounded, cancel := w.Bounded(ctx)
	ended, errs := store.Ended(bounded, w.rdb, queues)
	cancel()
	for i, q := range queues {
		e := w.byQueue[q]
		if errs[i] != nil {
			e.health.failed(errs[i])
		}
		if errs[i] != nil || ended[i] && e.Purge(ctx, q) {
			e.purgeAt = time.Now() // again with the next call
		}
	}
}

// purgeRest is the pause after there was nothing to delete.
func (e *core) purgeRest() time.Duration {
	return min(10*time.Minute, e.o.Retention, cmp.Or(e.o.RetentionFailed, 10*time.Minute))
}

// Heartbeat takes the result of a write that the worker makes every few seconds, and when it began.
func (w *Worker) Heartbeat(began time.Time, err error) {
	for _, e := range w.engines {
		e.health.heartbeat(began, err)
	}
}

// Fatal reports, once, that the worker must stop for good: nothing that it does can succeed.
func (w *Worker) Fatal(err error) { w.engines[0].Stop(err) }

// Aborted is not nil once nothing may be waited for any more.
func (w *Worker) Aborted() error { return w.engines[0].hard.Err() }

// Bounded bounds a call that has no bound of its own, so that a Redis that hangs cannot hold a
// shutdown up.
func (w *Worker) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return w.engines[0].Bounded(ctx)
}

// keepLeases extends the leases of jobs in flight six times within their length, and sooner
// after a failure: a job whose lease has lapsed is still this worker's until it is recovered.
func (w *Worker) keepLeases() {
	lease := w.engines[0].o.Lease
	every := lease / heartbeats
	pause := every
	for {
		select {
		case <-w.engines[0].hard.Done():
			return
		case <-time.After(pause):
		}
		failed := make([]bool, len(w.engines))
		var wg sync.WaitGroup
		for i, e := range w.engines {
			e.pulse.record(time.Now(), lease)
			if e.flight.len() > 0 {
				wg.Go(func() { failed[i] = !e.keepLeases() })
			}
		}
		wg.Wait()
		pause = every
		if slices.Contains(failed, true) {
			pause = every / 5
		}
	}
}
