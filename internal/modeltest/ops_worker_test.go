package modeltest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/internal/asynqx"
	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

// fetchable are the queues at which a worker can look, some with jobs only.
func (w *world) fetchable(withJobs bool) []string {
	return slices.DeleteFunc(slices.Clone(queueNames), func(q string) bool {
		return w.releasing(q) || withJobs && w.model.next(w.model.queues[q]) == nil
	})
}

// releasing reports whether a worker that looks at the queue will release children
// at the same time, so that chance decides whether it finds them.
func (w *world) releasing(queue string) bool {
	for id := range w.model.queues[queue].outbox {
		if j := w.model.jobs[id]; j != nil && j.state == record.StateCompleted {
			return true
		}
	}
	return false
}

// someProcess draws one that has a slot free, or starts one; mostly of a queue that
// has jobs.
func (w *world) someProcess(t *rapid.T) *process {
	queues := w.fetchable(true)
	if len(queues) == 0 || oneIn(t, 10, "any queue") {
		queues = w.fetchable(false)
	}
	queue := oneOf(t, "queue", queues...)
	free := slices.DeleteFunc(w.living(), func(p *process) bool { return p.queue != queue || p.busy() >= p.concurrency })
	if len(free) > 0 && !oneIn(t, 4, "new") {
		return oneOf(t, "process", free...)
	}
	p := w.newProcess(queue, oneOf(t, "slots", 1, 2, 4))
	w.processes = append(w.processes, p)
	return p
}

// held is a job in the hands of a process.
type held struct {
	p *process
	h *hand
}

// GoString keeps what rapid logs short.
func (h held) GoString() string { return h.h.id + " of " + h.p.name }

func (w *world) inHand(want func(*process, *hand) bool) []held {
	var all []held
	for _, p := range w.living() {
		for _, h := range p.sortedHands() {
			if want(p, h) {
				all = append(all, held{p, h})
			}
		}
	}
	return all
}

// running are those whose handlers have not returned.
func (w *world) running() []held {
	return w.inHand(func(_ *process, h *hand) bool { return h.returned.IsZero() && w.model.get(h.ref) != nil })
}

// fetch has a process look for jobs.
func (w *world) fetch(t *rapid.T) {
	p := w.someProcess(t)
	g := asynqx.Grant{Max: oneOf(t, "at most", 0, 0, 1, 2), Opened: oneOf(t, "opened", false, false, true)}
	p.comeToTheGate()
	lose := oneIn(t, 8, "reply lost")
	if w.reclaim(p) {
		g.Opened = false // what that brings about would happen at the same time
	}
	if g.Opened = g.Opened && !lose; g.Opened {
		p.beat(true)
	}
	want := max(1, p.concurrency-len(p.hands))
	if g.Max > 0 {
		want = min(want, g.Max)
	}
	if lose {
		w.fetchLost(t, p, g, want)
		return
	}
	free := p.concurrency - p.busy()
	expected, deferred := w.taken(p, want)
	got := p.look(g, free)
	t.Logf("%s fetched %v", p, got)
	if !slices.Equal(got, expected) {
		t.Fatalf("%s was handed %v, want %v", p, got, expected)
	}
	for _, id := range got {
		w.receive(p, p.hands[id])
		w.focus = id
	}
	for _, j := range deferred {
		w.adoptTime(j, time.Second, 5*time.Second)
	}
	if len(deferred) > 0 {
		w.pass(3 * time.Second) // beyond the time that chance has chosen
	}
}

// reclaim is what becomes of the fetches of a process whose replies were lost; it reports
// whether there were any.
func (w *world) reclaim(p *process) (found bool) {
	for i, l := range slices.Backward(w.lost) {
		if l.by == p {
			found = true
			countPlayed(fmt.Sprintf("reclaim of %d", len(l.jobs)))
			w.model.reclaim(l.fetched)
			w.lost = slices.Delete(w.lost, i, i+1)
		}
	}
	return found
}

// taken is what a process takes in hand, and what it puts back. It looks further where
// it found nothing but what was of no use.
func (w *world) taken(p *process, want int) (ids []string, deferred []*job) {
	for {
		f := w.model.fetch(p.queue, want, p.name)
		for _, j := range f.jobs {
			w.mayStart(j)
			if w.refused(p, j, f.run) {
				deferred = append(deferred, j)
				f.dropped++
				countPlayed("put back")
				continue
			}
			ids = append(ids, j.id)
			p.hands[j.id] = &hand{ref: j.ref, run: f.run}
			if j.crashes > 0 {
				p.suspect = p.hands[j.id]
			}
		}
		if f.dropped > 0 {
			w.model.tellFrom(p.queue) // some may have expired that had children
		}
		if len(ids) > 0 || f.dropped == 0 {
			return ids, deferred
		}
	}
}

// mayStart holds a job that is to be started against what the contract promises.
func (w *world) mayStart(j *job) {
	switch {
	case j.cancelled:
		w.t.Fatalf("%s was cancelled and is started", j.id)
	case j.overdue():
		w.t.Fatalf("%s has expired and is started", j.id)
	case j.available.After(present()):
		w.t.Fatalf("%s is started before its time", j.id)
	}
	for _, parent := range j.after {
		if !w.model.completed[parent] {
			w.t.Fatalf("%s is started, and its parent %s has never completed", j.id, parent)
		}
	}
}

// refused reports whether the process puts the job back that it has fetched: its
// handler still runs there, or another job is in hand that a worker has died with.
func (w *world) refused(p *process, j *job, run int) bool {
	earlier := p.hands[j.id]
	switch s := p.suspect; {
	case earlier != nil && earlier.returned.IsZero():
		w.model.settle(j.ref, run, deferred, asynqx.Outcome{At: present().Add(5 * time.Second), Reason: record.ReasonOf(record.ReasonStillRunning, p.name)})
		return true
	case j.crashes > 0 && s != nil && s.id != j.id && p.hands[s.id] == s:
		w.model.settle(j.ref, run, deferred, asynqx.Outcome{At: present().Add(time.Second), Reason: record.ReasonSuspect})
		return true
	}
	return false
}

// adoptTime takes over the time that chance has chosen for a job.
func (w *world) adoptTime(j *job, from, to time.Duration) {
	ms, err := strconv.ParseInt(w.fields(j.ref)[record.FieldAvailableAt], 10, 64)
	w.must(err)
	at := time.UnixMilli(ms).UTC()
	if ahead := at.Sub(present()); ahead < from || ahead > to {
		w.t.Fatalf("%s is put off by %s, want %s to %s", j.id, ahead, from, to)
	}
	if j.available = at; j.state == record.StateScheduled {
		j.since = at
	}
}

// receive checks what a process is told of the job that it was handed.
func (w *world) receive(p *process, h *hand) {
	j := w.model.get(h.ref)
	if h.delivery = p.client.Delivery(h.id); h.delivery == nil {
		w.t.Fatalf("%s is not in hand", j.id)
	}
	want := asynqx.Fields{Attempt: j.attempt, Reschedules: j.reschedules, Crashes: j.crashes}
	if !j.expires.IsZero() {
		want.ExpiresAt = strconv.FormatInt(j.expires.UnixMilli(), 10)
	}
	if h.delivery.Fields != want {
		w.t.Fatalf("%s was handed over with %+v, want %+v", j.id, h.delivery.Fields, want)
	}
	if !h.delivery.OnCancel(func() { h.cut = true }) {
		w.t.Fatalf("%s was cancelled before it was handed over", j.id)
	}
}

// fetchLost has a process look for jobs, whose reply is lost: nobody has them.
func (w *world) fetchLost(t *rapid.T, p *process, g asynqx.Grant, want int) {
	p.wire.lose = record.Pending(p.queue)
	if got := p.look(g, p.concurrency-p.busy()); len(got) > 0 {
		t.Fatalf("%s was handed %v, although it got no reply", p, got)
	}
	f := w.model.fetch(p.queue, want, p.name)
	w.lost = append(w.lost, lostFetch{p, f})
	countPlayed(fmt.Sprintf("lost fetch of %d", len(f.jobs)))
	t.Logf("%s did not hear that it fetched %d", p, len(f.jobs))
}

// drawOutcome decides as a publisher would what becomes of a job after its call.
func (w *world) drawOutcome(t *rapid.T, j *job, h *hand) asynqx.Outcome {
	o := asynqx.Outcome{Kind: asynqx.Complete}
	if oneIn(t, 2, "answered") {
		o.Response = &asynqx.Response{Status: 201, Body: "ok"}
	}
	result := oneOf(t, "result", "ok", "ok", "put off", "put off", "failed", "failed", "timeout", "discarded", "cut")
	if result == "cut" && !h.toBeCut {
		result = "ok"
	}
	switch result {
	case "put off":
		o.Kind, o.Limit, o.Reason = asynqx.Reschedule, j.maxReschedules, record.ReasonPublisher
		if delay := oneOf(t, "delay", 0, time.Second, 10*time.Second); delay > 0 {
			o.At = present().Add(delay)
		}
		o.Extend = oneOf(t, "extend", 0, 0, 5*time.Second)
	case "failed", "timeout":
		trigger := jobs.OnFailure
		if result == "timeout" {
			trigger = jobs.OnTimeout
		}
		o.Kind, o.Error = asynqx.Fail, "boom"
		if j.retry.Retries(h.delivery.Fields.Attempt, trigger) {
			delay := j.retry.DelayWith(h.delivery.Fields.Attempt, oneOf(t, "jitter", 0.0, 0.5, 1.0))
			o.Kind, o.At, o.Reason = asynqx.Retry, present().Add(delay.Round(time.Millisecond)), "retry"
		}
	case "discarded":
		o.Kind, o.Error = asynqx.Fail, "no use"
	case "cut":
		o.Kind, o.Error = asynqx.Cancel, "cancelled"
	}
	o.Settled = func(s asynqx.Settled) { h.settled = &s }
	return o
}

// finish ends a run: the handler returns and asynq acknowledges the job. A process
// that has stalled may be too late.
func (w *world) finish(t *rapid.T) {
	one := oneOf(t, "job", w.running()...)
	p, h := one.p, one.h
	w.focus = h.id
	h.outcome = w.drawOutcome(t, w.model.get(h.ref), h)
	lose := oneIn(t, 8, "reply lost")
	t.Logf("%s ends %s: %s, reply lost: %t", p, h.id, h.outcome.Kind, lose)
	h.delivery.Decide(h.outcome)
	want := w.settled(p, h, lose)
	countPlayed(fmt.Sprintf("end %s, stalled %t, lost %t: %s", h.outcome.Kind, p.stalled, lose, want.kind))
	if lose {
		p.wire.lose = record.Task(p.queue, h.id)
		if h.outcome.Kind == asynqx.Complete {
			p.wire.lose = record.Active(p.queue)
		}
	}
	w.must(p.sendAck(h))
	w.settleDown()
	delete(p.hands, h.id)
	switch {
	case h.settled == nil:
		t.Fatalf("nobody was told what became of %s", h.id)
	case h.settled.Kind != want.kind || h.settled.Count != want.count:
		t.Fatalf("%s was settled as %+v, want %+v", h.id, *h.settled, want)
	}
}

// settled carries out in the model what a process has decided.
func (w *world) settled(p *process, h *hand, unheard bool) settled {
	m := w.model
	if h.outcome.Kind == asynqx.Complete {
		known, parent := m.complete(h.ref, p.name, h.outcome.Response)
		if parent && !unheard {
			m.tellFrom(h.queue)
		}
		if !known {
			return settled{}
		}
		return settled{kind: asynqx.Complete}
	}
	s := m.settle(h.ref, h.run, h.outcome.Kind, h.outcome)
	if unheard {
		return settled{} // the repeated call finds it done
	}
	w.tellOf(h.ref, s)
	return s
}

// tellOf has a worker tell the children of a job that it has ended.
func (w *world) tellOf(r ref, s settled) {
	if s.ended && len(w.model.queues[r.queue].children[r.id]) > 0 {
		w.model.tellFrom(r.queue)
	}
}

// workerOps are what workers do.
func (w *world) workerOps() []op {
	return []op{
		{12, "fetch", func() bool { return len(w.fetchable(false)) > 0 }, w.fetch},
		{10, "finish", func() bool { return len(w.running()) > 0 }, w.finish},
		{3, "beat", w.hasJobs, w.beat},
		{1, "janitor", w.hasJobs, w.janitor},
		{1, "shut down", func() bool { return len(w.stoppable()) > 0 }, w.shutDown},
		{2, "kill", func() bool { return len(w.holding()) > 0 }, w.kill},
		{2, "stall", func() bool { return len(w.stallable()) > 0 }, w.stall},
		{2, "forget", func() bool { return len(w.forgettable()) > 0 }, w.forget},
		{4, "recover", func() bool { return len(w.leased(lost)) > 0 }, w.recover},
		{1, "recover in vain", func() bool { return len(w.leased(alive)) > 0 }, w.recoverInVain},
	}
}
