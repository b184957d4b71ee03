package modeltest

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/jobs"
)

// someProcess draws one that has a slot free, or starts one; mostly of a queue that
// has jobs.
func (w *world) someProcess(t *rapid.T) *process {
	queues := queueNames
	if !oneIn(t, 10, "any queue") {
		var with []string
		for _, j := range w.book.waiting() {
			if q := j.queue(); j.status() == jobs.Pending && !slices.Contains(with, q) {
				with = append(with, q)
			}
		}
		if len(with) > 0 {
			slices.Sort(with)
			queues = with
		}
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
	return w.inHand(func(*process, *hand) bool { return true })
}

// fetch has a process look for jobs. A reply may be lost: then nobody has them.
func (w *world) fetch(t *rapid.T) {
	p := w.someProcess(t)
	g := engine.Grant{Max: oneOf(t, "at most", 0, 0, 1, 2), Opened: oneOf(t, "opened", false, false, true)}
	lose := oneIn(t, 8, "reply lost")
	p.gate.scarce.Store(oneIn(t, 3, "scarce"))
	p.gate.refuses.Store(oneOf(t, "refused key", append([]string{"", ""}, keys...)...))
	got := w.fetchBy(p, g, lose)
	p.gate.refuses.Store("")
	t.Logf("%s fetched %v, reply lost: %t", p, got, lose)
}

func (w *world) fetchBy(p *process, g engine.Grant, lose bool) []string {
	p.comeToTheGate()
	w.read(false)
	if lose {
		p.wire.lose.Store(store.PendingKey(p.queue))
	}
	got := p.look(g, p.concurrency-p.busy())
	p.wire.lose.Store("")
	for _, id := range got {
		h := &hand{id: id, delivery: p.engine.Delivery(id)}
		if h.delivery == nil {
			w.t.Fatalf("%s is not in hand", id)
		}
		w.book.started(id, start{worker: p.name, at: time.Now(), fields: &h.delivery.Fields})
		p.hands[id] = h
		if !h.delivery.OnCancel(func() { h.cut = true }) {
			w.t.Fatalf("%s was cancelled before it was handed over", id)
		}
		w.focus = id
	}
	if p.busy() > p.concurrency {
		w.t.Fatalf("At most CONCURRENCY in flight: %s calls %d", p, p.busy())
	}
	return got
}

// drawOutcome decides as a publisher would what becomes of a job after its call.
func (w *world) drawOutcome(t *rapid.T, h *hand) store.Outcome {
	j := w.book.jobs[h.id].first
	o := store.Outcome{Kind: store.KindComplete}
	if oneIn(t, 2, "answered") {
		o.Response = &store.Response{Status: 201, Body: "ok"}
	}
	result := oneOf(t, "result", "ok", "ok", "put off", "put off", "failed", "failed", "timeout", "discarded", "cut")
	if result == "cut" && !h.cut {
		result = "ok"
	}
	switch result {
	case "put off":
		o.Kind, o.Limit, o.Reason = store.KindReschedule, j.MaxReschedules, store.ReasonPublisher
		if delay := oneOf(t, "delay", 0, time.Second, 10*time.Second); delay > 0 {
			o.At = time.Now().Add(delay)
		}
		o.Extend = oneOf(t, "extend", 0, 0, 5*time.Second)
	case "failed", "timeout":
		trigger := jobs.OnFailure
		if result == "timeout" {
			trigger = jobs.OnTimeout
		}
		o.Kind, o.Error = store.KindFail, "boom"
		if j.Retry.Retries(h.delivery.Fields.Attempt, trigger) {
			delay := j.Retry.DelayWith(h.delivery.Fields.Attempt, oneOf(t, "jitter", 0.0, 0.5, 1.0))
			o.Kind, o.At, o.Reason = store.KindRetry, time.Now().Add(delay.Round(time.Millisecond)), "retry"
		}
	case "discarded":
		o.Kind, o.Error = store.KindFail, "no use"
	case "cut":
		o.Kind, o.Error = store.KindCancel, "cancelled"
	}
	return o
}

// finish ends a run: the handler returns and asynq acknowledges the job. A process
// that has stalled may be too late.
func (w *world) finish(t *rapid.T) {
	one := oneOf(t, "job", w.running()...)
	one.h.outcome = w.drawOutcome(t, one.h)
	lose := oneIn(t, 8, "reply lost")
	t.Logf("%s ends %s: %s, reply lost: %t", one.p, one.h.id, one.h.outcome.Kind, lose)
	w.finishBy(one.p, one.h, lose)
}

// statusAfter is the status of a job whose outcome was acknowledged as of a kind.
var statusAfter = map[store.Kind]jobs.Status{
	store.KindComplete: jobs.Completed, store.KindFail: jobs.Failed, store.KindCancel: jobs.Cancelled, store.KindPause: jobs.Paused,
	store.KindRetry: jobs.RetryPending, store.KindReschedule: jobs.Pending,
}

func (w *world) finishBy(p *process, h *hand, lose bool) {
	w.focus = h.id
	w.book.decided(h.id, h.outcome)
	h.delivery.Decide(h.outcome, func(a store.Applied) { h.applied = &a })
	if lose {
		p.wire.lose.Store(store.TaskKey(p.queue, h.id))
		if h.outcome.Kind == store.KindComplete {
			p.wire.lose.Store(store.ActiveKey(p.queue))
		}
	}
	p.worker.Settle(h.delivery)
	w.settleDown()
	w.letGo(p, h)
	if h.applied == nil {
		w.t.Fatalf("An outcome holds: nobody was told what became of %s", h.id)
	}
	countPlayed(fmt.Sprintf("end %s, stalled %t, lost %t: %s", h.outcome.Kind, p.stalled, lose, h.applied.Kind))
	if w.book.applied(h.id, *h.applied); p.stalled || lose {
		return
	}
	if h.applied.Kind == "" {
		w.t.Fatalf("An outcome holds: %s of %s had no effect, although the lease held", h.outcome.Kind, h.id)
	}
	j := w.book.jobs[h.id]
	if w.book.look(w.client, j, false); j.status() != statusAfter[h.applied.Kind] && j.status() != jobs.Expired {
		w.t.Fatalf("An outcome holds: %s is %s after %+v", h.id, j.status(), *h.applied)
	}
	if h.outcome.Response != nil && (j.last.Response == nil || j.last.Response.Status != h.outcome.Response.Status) {
		w.t.Fatalf("An outcome holds: the response of %s is %+v", h.id, j.last.Response)
	}
}

// letGo takes a job out of the hands of a process.
func (w *world) letGo(p *process, h *hand) {
	if p.hands[h.id] == h {
		delete(p.hands, h.id)
	}
	w.book.over(h.id, p.name)
}

// workerOps are what workers do.
func (w *world) workerOps() []op {
	return []op{
		{12, "fetch", always, w.fetch},
		{10, "finish", func() bool { return len(w.running()) > 0 }, w.finish},
		{3, "beat", w.hasJobs, w.beat},
		{1, "janitor", w.hasJobs, w.janitor},
		{1, "shut down", func() bool { return len(w.living()) > 0 }, w.shutDown},
		{2, "kill", func() bool { return len(w.holding()) > 0 }, w.kill},
		{2, "stall", func() bool { return len(w.stallable()) > 0 }, w.stall},
		{4, "recover", func() bool { return len(w.leased(true)) > 0 }, w.recover},
		{1, "recover in vain", func() bool { return len(w.leased(false)) > 0 }, w.recoverInVain},
	}
}
