package modeltest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/internal/asynqx"
	"github.com/tidegate/tidegate/internal/record"
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
func (w *world) beat(t *rapid.T) {
	p := w.keeperOrOther(t)
	if w.forgets(p) && !p.asking {
		p.ask() // so that nothing is moved while children are released
	}
	for _, h := range p.sortedHands() {
		if !h.returned.IsZero() && time.Since(h.returned) > time.Second {
			delete(p.hands, h.id)
			w.settled(p, h, false)
		}
	}
	w.reclaim(p)
	for {
		const almost = beatEvery - beatEvery/10
		move := !p.asking && time.Since(p.moved) >= almost
		want := 0
		if move || len(p.hands) > 0 || time.Since(p.looked) >= almost {
			p.looked = time.Now()
			if want = p.beat(move); want == 0 && move {
				p.moved = time.Now()
			}
		}
		got, err := p.sendBeat()
		w.must(err)
		w.settleDown()
		if int(got) != want {
			t.Fatalf("%s moved %d, want %d", p, got, want)
		}
		if got == 0 {
			return // else asynq asks again at once
		}
	}
}

// forgets reports whether asynq has forgotten a job of the process.
func (w *world) forgets(p *process) bool {
	return slices.ContainsFunc(p.sortedHands(), func(h *hand) bool { return !h.returned.IsZero() })
}

// beat is what the beat of a queue comes to; it returns how many were moved.
func (p *process) beat(move bool) (moved int) {
	m := p.w.model
	p.beats++
	if move {
		moved = m.forward(p.queue)
	}
	for _, h := range p.hands {
		if j := m.get(h.ref); j != nil && j.state == record.StateActive && j.mark == "cancel" {
			h.toBeCut = true
		}
	}
	m.sweep(p.queue, nil)
	const lookAtOutbox = 5
	if p.beats%lookAtOutbox == 0 {
		m.tellFrom(p.queue)
	}
	return moved
}

// janitor deletes what has ended long enough ago.
func (w *world) janitor(t *rapid.T) {
	p := w.keeperOrOther(t)
	w.model.purge(p.queue, record.StateCompleted)
	if time.Since(p.purged) >= time.Minute {
		p.purged = time.Now()
		for _, state := range []string{record.StateFailed, record.StateCancelled, record.StateExpired} {
			w.model.purge(p.queue, state)
		}
	}
	w.must(p.sendJanitor())
	t.Logf("%s deletes old jobs", p)
}

// stoppable are the processes that can be stopped, but for those that asynq has made
// forget a job: they settle it at the end, and chance decides whether its children
// are told before the end.
func (w *world) stoppable() []*process { return slices.DeleteFunc(w.living(), w.forgets) }

// shutDown stops a process in an orderly way, whose handlers do not return: their
// jobs go back to the head of the queue.
func (w *world) shutDown(t *rapid.T) {
	p := oneOf(t, "process", w.stoppable()...)
	t.Logf("%s shuts down", p)
	p.stopping.Store(true)
	w.must(p.client.CloseGate(ctx))
	for _, h := range p.sortedHands() {
		if p.stalled {
			continue // asynq finds the lease lost and leaves the job alone
		}
		h.outcome = asynqx.Outcome{Kind: asynqx.Requeue}
		w.settled(p, h, false)
		w.must(p.sendRequeue(h.id))
		w.settleDown()
	}
	p.client.Finish()
	p.dead, p.hands = true, nil
}

// holding are the processes with jobs in hand.
func (w *world) holding() []*process {
	return slices.DeleteFunc(w.living(), func(p *process) bool { return len(p.hands) == 0 })
}

// kill ends a process with its jobs in hand.
func (w *world) kill(t *rapid.T) {
	p := oneOf(t, "process", w.holding()...)
	t.Logf("%s dies", p)
	p.end()
	p.dead, p.hands = true, nil
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

// forgettable are jobs that asynq may forget: one of a process at a time, because
// chance has the order in which it remembers them.
func (w *world) forgettable() []held {
	return w.inHand(func(p *process, h *hand) bool { return p.stalled && !w.forgets(p) && w.model.get(h.ref) != nil })
}

// forget has a handler return whose job asynq does not acknowledge, because it found
// the lease lost.
func (w *world) forget(t *rapid.T) {
	one := oneOf(t, "job", w.forgettable()...)
	p, h := one.p, one.h
	w.focus = h.id
	h.outcome = w.drawOutcome(t, w.model.get(h.ref), h)
	t.Logf("%s ends %s, %s, and asynq forgets it", p, h.id, h.outcome.Kind)
	h.delivery.Decide(h.outcome)
	h.returned = time.Now()
}

// leased returns the jobs in hand whose leases are lost, or alive.
func (w *world) leased(want func(until time.Time) bool) []*job {
	var out []*job
	for _, q := range queueNames {
		leases := w.zset(record.Lease(q))
		for _, j := range w.model.inSet(q, record.StateActive) {
			if want(time.Unix(int64(leases[j.id]), 0)) {
				out = append(out, j)
			}
		}
	}
	return out
}

func lost(until time.Time) bool  { return !until.After(time.Now().Add(-graceFor)) }
func alive(until time.Time) bool { return until.After(time.Now()) }

// recover takes a job from a worker that is believed to have died, as asynq does.
func (w *world) recover(t *rapid.T) {
	j := oneOf(t, "job", w.leased(lost)...)
	p := w.someServer(t, j.queue)
	t.Logf("%s takes %s back", p, j.id)
	w.focus = j.id
	if h := p.hands[j.id]; h != nil && !h.returned.IsZero() {
		// Its own, whose handler has returned.
		if h.outcome.Kind != asynqx.Complete {
			w.settled(p, h, false)
			delete(p.hands, h.id)
		}
		w.must(p.sendRecover(j.id))
		return
	}
	s := w.model.settle(j.ref, 0, recovered, asynqx.Outcome{At: present(), Reason: record.ReasonWorkerLost})
	w.tellOf(j.ref, s)
	w.must(p.sendRecover(j.id))
	w.settleDown()
	if s.kind == recovered || s.kind == asynqx.Pause || s.kind == asynqx.Cancel {
		w.adoptTime(j, 0, time.Millisecond)
	}
	w.pass(2 * time.Millisecond) // beyond the time that chance has chosen
}

// recoverInVain works off an old list of lost leases.
func (w *world) recoverInVain(t *rapid.T) {
	j := oneOf(t, "job", w.leased(alive)...)
	p := w.someServer(t, j.queue)
	if h := p.hands[j.id]; h == nil || h.returned.IsZero() { // else it would be an acknowledgement
		w.must(p.sendRecover(j.id))
	}
}
