package modeltest

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/jobs"
)

// keeperOrOther draws who does what any worker does once in a while.
func (w *world) keeperOrOther(t *rapid.T) *process {
	return w.someServer(t, oneOf(t, "queue", queueNames...))
}

// someServer draws a process of a queue.
func (w *world) someServer(t *rapid.T, queue string) *process {
	living := slices.DeleteFunc(w.living(), func(p *process) bool { return p.queue != queue })
	return oneOf(t, "process", append([]*process{w.keepers[queue]}, living...)...)
}

// beat is asynq's call each second: it moves what is due, and more.
func (w *world) beat(t *rapid.T) { w.beatBy(w.keeperOrOther(t)) }

func (w *world) beatBy(p *process) {
	for moved := int64(1); moved > 0; { // asynq asks again at once
		var err error
		moved, err = p.sendBeat()
		w.must(err)
		w.settleDown()
	}
	for _, h := range p.sortedHands() {
		j := w.book.jobs[h.id]
		if j.asked == jobs.ActionCancel && j.status() == jobs.Running && j.last.Worker == p.name && !h.cut {
			w.t.Fatalf("A running job is interrupted: %s goes on with %s, which was cancelled", p, h.id)
		}
		if h.cut && w.book.asked[jobs.ActionCancel] == 0 {
			w.t.Fatalf("A running job is interrupted: %s cut %s, and nobody cancelled anything", p, h.id)
		}
	}
}

// janitor deletes what has ended long enough ago.
func (w *world) janitor(t *rapid.T) {
	p := w.keeperOrOther(t)
	w.must(p.sendJanitor())
	t.Logf("%s deletes old jobs", p)
}

// shutDown stops a process in an orderly way, whose handlers do not return: their
// jobs go back to the head of the queue.
func (w *world) shutDown(t *rapid.T) {
	p := oneOf(t, "process", w.living()...)
	t.Logf("%s shuts down", p)
	p.stopping.Store(true)
	w.must(p.engine.CloseGate(ctx))
	for _, h := range p.sortedHands() {
		if p.stalled {
			continue // it dies before
		}
		requeue := store.Outcome{Kind: store.KindRequeue}
		w.book.decided(h.id, requeue)
		h.delivery.Decide(requeue, nil)
		p.worker.Settle(h.delivery)
		w.settleDown()
	}
	p.engine.Finish()
	w.buried(p)
}

// buried notes that a process is gone. Calls in its hands have ended.
func (w *world) buried(p *process) {
	for _, h := range p.sortedHands() {
		w.letGo(p, h)
	}
	p.dead = true
}

// holding are the processes with jobs in hand.
func (w *world) holding() []*process {
	return slices.DeleteFunc(w.living(), func(p *process) bool { return len(p.hands) == 0 })
}

// kill ends a process with its jobs in hand.
func (w *world) kill(t *rapid.T) {
	p := oneOf(t, "process", w.holding()...)
	t.Logf("%s dies", p)
	w.killIt(p)
}

func (w *world) killIt(p *process) {
	p.end()
	w.buried(p)
}

func (w *world) stallable() []*process {
	return slices.DeleteFunc(w.holding(), func(p *process) bool { return p.stalled })
}

// stall has a process stand still for asynq: its leases run out, and its handlers
// may return later all the same.
func (w *world) stall(t *rapid.T) {
	p := oneOf(t, "process", w.stallable()...)
	t.Logf("%s stalls", p)
	p.stalled = true
}

// lease is that of a job in somebody's hands, as asynq reads it.
type lease struct {
	queue, id string
	until     time.Time
}

func (w *world) leases() (out []lease) {
	for _, q := range queueNames {
		leases, _ := w.redis.SortedSet(store.LeaseKey(q)) // a missing set is empty
		for id, until := range leases {
			out = append(out, lease{q, id, time.Unix(int64(until), 0)})
		}
	}
	slices.SortFunc(out, func(a, b lease) int { return cmp.Compare(a.id, b.id) })
	return out
}

// leased returns the jobs in hand whose leases are lost, or alive.
func (w *world) leased(lost bool) []lease {
	return slices.DeleteFunc(w.leases(), func(l lease) bool {
		if lost {
			return l.until.After(time.Now().Add(-graceFor))
		}
		return !l.until.After(time.Now())
	})
}

// recover takes a job from a worker that is believed to have died, as asynq does.
func (w *world) recover(t *rapid.T) {
	l := oneOf(t, "job", w.leased(true)...)
	p := w.someServer(t, l.queue)
	t.Logf("%s takes %s back", p, l.id)
	w.recoverBy(p, l.id)
}

func (w *world) recoverBy(p *process, id string) {
	w.focus = id
	j := w.book.jobs[id]
	j.deaths.maybe()
	j.atHead = false // it may fail
	j.disturbed, j.notBefore = true, time.Time{}
	for worker := range j.inHand { // they have stalled, p perhaps itself: it is not theirs any more
		if !slices.ContainsFunc(w.processes, func(q *process) bool { return q.name == worker && q.stalled }) {
			continue
		}
		delete(j.inHand, worker)
	}
	p.recover(id)
	w.settleDown()
}

// recoverInVain works off an old list of lost leases.
func (w *world) recoverInVain(t *rapid.T) {
	l := oneOf(t, "job", w.leased(false)...)
	p := w.someServer(t, l.queue)
	p.recover(l.id)
}
