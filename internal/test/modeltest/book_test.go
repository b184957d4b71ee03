package modeltest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/jobs"
)

// book holds what has been observed of jobs from outside: enqueues and actions that
// were acknowledged, calls, outcomes that were acknowledged, and reads through the
// client. It knows nothing of how jobs are kept. Each observation is held against the
// invariants.
type book struct {
	fail func(format string, args ...any)

	mu   sync.Mutex
	jobs map[string]*seen
	list []*seen // accepted ones in the order of their enqueues
	// undoing are the actions under way that could undo a stop, by job, "" for all.
	undoing map[string]int
	asked   map[jobs.Action]int // actions so far
	paused  map[string]bool     // destinations, by acknowledged actions
	blocks  bool                // a failed job keeps its place in the line of its key
}

// orderedQueue is the queue in which the jobs of a key run one at a time, in order.
var orderedQueue = store.DefaultNamespace.Queue("beta", store.Default)

// ordered reports whether the job waits behind others of its key.
func (j *seen) ordered() bool { return j.spec.Key != "" && j.queue() == orderedQueue }

// seen is what has been observed of one job.
type seen struct {
	id   string
	spec *jobs.Spec
	// first is the job as its enqueue was acknowledged, last as it was last read; nil
	// before that.
	first, last *jobs.Job

	stopped   string // what forbids calls: an acknowledged action that none has undone, or an end
	undone    int    // beginnings and ends of actions that could undo a stop
	asked     jobs.Action
	notBefore time.Time
	disturbed bool // its place in the queue is not that of its enqueue
	completed bool // one of its calls succeeded, and that may have been recorded
	extended  bool // some outcome moved its expiry
	reopened  bool // it was asked to run again since it was last read
	gone      bool // its retention is over
	atHead    bool // the others of its key surely wait behind it, where they have an order
	failed    time.Time

	starts                        int
	inHand                        map[string]bool // workers that call it
	attempts, reschedules, deaths between
}

// between bounds a counter where a reply was lost.
type between struct{ least, most int }

func (b *between) maybe()  { b.most++ }
func (b *between) surely() { b.least++ }

func (b between) has(n int) bool { return n >= b.least && n <= b.most }

func newBook(fail func(format string, args ...any)) *book {
	return &book{
		fail: fail, jobs: map[string]*seen{}, undoing: map[string]int{}, asked: map[jobs.Action]int{}, paused: map[string]bool{},
	}
}

// hold holds an observation against each invariant.
func (b *book) hold(broken func(invariant) string) {
	for _, inv := range invariants {
		if what := broken(inv); what != "" {
			b.fail("%s: %s", inv.name, what)
		}
	}
}

// meant notes that a job is about to be enqueued.
func (b *book) meant(s *jobs.Spec) *seen {
	j := &seen{id: s.ID, spec: s, inHand: map[string]bool{}, disturbed: disturbs(s)}
	if old := b.jobs[s.ID]; old != nil { // it is gone
		j.completed = old.completed
		b.list = slices.DeleteFunc(b.list, func(j *seen) bool { return j == old })
	}
	b.jobs[s.ID] = j
	b.list = append(b.list, j)
	return j
}

// disturbs reports whether the job does not go to the end of its queue at once.
func disturbs(s *jobs.Spec) bool { return s.Delay > 0 || !s.At.IsZero() || len(s.After) > 0 }

// accepted notes that an enqueue was acknowledged. Those of one call are to be noted in
// their order, which is not that of meant: the client gives ids, and an id that was
// refused may come again.
func (b *book) accepted(j *seen, got *jobs.Job) {
	b.list = append(slices.DeleteFunc(b.list, func(other *seen) bool { return other == j }), j)
	j.first = got
	if got.RescheduleCount == 0 && got.ReasonCode == "" { // else a breaker may let it go earlier
		j.notBefore = got.AvailableAt
	}
}

// start is a call that begins.
type start struct {
	worker string
	at     time.Time
	fields *store.Fields // what the worker was told, nil if that is not known
}

// started holds a call that begins against the invariants.
func (b *book) started(id string, s start) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[id]
	if j == nil {
		b.fail("%s is called, which nobody has enqueued", id)
		return
	}
	b.hold(func(inv invariant) string {
		if inv.start == nil {
			return ""
		}
		return inv.start(b, j, s)
	})
	j.atHead, j.failed = j.ordered(), time.Time{}
	j.starts++
	j.inHand[s.worker] = true
}

// over notes that a worker calls a job no more.
func (b *book) over(id, worker string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[id]; j != nil {
		delete(j.inHand, worker)
	}
}

// decided notes an outcome before it is sent: from now on it may be recorded.
func (b *book) decided(id string, o store.Outcome) {
	j := b.jobs[id]
	j.disturbed, j.atHead = true, false // it may leave its line
	switch o.Kind {
	case store.KindComplete:
		j.completed = true
	case store.KindRetry:
		j.attempts.maybe()
	case store.KindReschedule:
		j.reschedules.maybe()
	}
	j.extended = j.extended || o.Extend > 0
	j.replaced(o.Kind)
	j.notBefore = time.Time{} // until it is read
}

// replaced lets an outcome take the place of the end that the job was read with: its
// worker was taken for dead, and is not.
func (j *seen) replaced(by store.Kind) {
	if j.status().Final() && (by == store.KindComplete || by != "" && strings.HasPrefix(j.last.LastError, "poison")) {
		j.stopped, j.reopened = "", true
	}
}

// applied notes an outcome whose recording was acknowledged.
func (b *book) applied(id string, s store.Applied) {
	j := b.jobs[id]
	j.replaced(s.Kind)
	switch s.Kind {
	case store.KindRetry, store.KindReschedule, store.KindPause:
		j.atHead = j.ordered()
	case store.KindFail:
		j.atHead, j.failed = j.ordered() && b.blocks, time.Now()
	}
	switch s.Kind {
	case store.KindComplete, store.KindFail, store.KindCancel, store.KindPause:
		j.stopped = string(s.Kind)
	case store.KindRetry:
		j.attempts.surely()
	case store.KindReschedule:
		j.reschedules.surely()
	}
	j.notBefore = s.AvailableAt
}

// undoes are the actions that let a job start again that another has stopped.
var undoes = map[jobs.Action]bool{jobs.ActionResume: true, jobs.ActionRetry: true}

// acting notes that an action begins, on one job, or on any for "", and returns what
// tells whether another one could undo it meanwhile.
func (b *book) acting(a jobs.Action, id string) (undone int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[a]++
	if undoes[a] {
		b.undo(a, id, 1)
	}
	if j := b.jobs[id]; j != nil {
		j.disturbed = true
		if a != jobs.ActionPause && a != jobs.ActionResume {
			j.atHead = false
		}
		j.reopened = j.reopened || a == jobs.ActionCancel && b.blocks && j.ordered() && j.status() == jobs.Failed
		return j.undone
	}
	return 0
}

// undo notes that an action begins or ends which lets jobs start again: it may have
// been done in between, at whichever time.
func (b *book) undo(a jobs.Action, id string, underWay int) {
	b.undoing[id] += underWay
	for _, j := range b.list {
		if id != "" && j.id != id {
			continue
		}
		j.undone++
		j.disturbed, j.notBefore = true, time.Time{}
		if a == jobs.ActionRetry {
			j.atHead = false
			j.reopened, j.asked = true, "" // what was asked of its last run is over
			j.attempts.least, j.reschedules.least, j.deaths.least = 0, 0, 0
		}
		if a == jobs.ActionRetry || j.stopped == string(jobs.ActionPause) {
			j.stopped = ""
		}
	}
}

// acted notes the result of an action that was begun; it is zero where the jobs that
// it was for are not known.
func (b *book) acted(a jobs.Action, id string, undone int, result jobs.ActResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if undoes[a] {
		b.undo(a, id, -1)
	}
	j := b.jobs[id]
	if j == nil || undoes[a] || j.undone != undone || b.undoing[id]+b.undoing[""] > 0 {
		return
	}
	if result.Done {
		j.stopped = string(a)
	}
	if result.Asked && (a == jobs.ActionCancel || a == jobs.ActionPause) {
		j.asked = a
	}
}

// read holds a job as the client reads it against the invariants.
func (b *book) read(got *jobs.Job) {
	j := b.jobs[got.ID]
	if j == nil {
		b.fail("%s is there, and nobody has enqueued it", got.ID)
		return
	}
	b.hold(func(inv invariant) string {
		if inv.read == nil {
			return ""
		}
		return inv.read(b, j, got)
	})
	if got.Status.Final() && (got.Status != jobs.Failed || !b.blocks) {
		j.atHead = false
	}
	switch {
	case got.Status.Final():
		j.stopped = string(got.Status)
	case got.Status == jobs.Paused:
		j.stopped = string(jobs.ActionPause)
	}
	j.reopened = false
	j.disturbed = j.disturbed || got.Status != jobs.Pending || got.RescheduleCount > 0
	j.last, j.notBefore = got, got.AvailableAt
	if store.Reason(got.ReasonCode).Code() == store.ReasonHeld { // its key may open earlier
		j.notBefore = time.Time{}
	}
}

// ended reports whether the job has been read in a final status that still holds.
func (j *seen) ended() bool { return j.status().Final() && !j.reopened }

// status is the one last read.
func (j *seen) status() jobs.Status {
	if j.last == nil {
		return jobs.Pending
	}
	return j.last.Status
}

// overdue reports whether the job waits, as far as is known, although it has expired.
func (j *seen) overdue(now time.Time) bool {
	if j.first == nil || j.gone || j.status().Final() || j.status() == jobs.Running {
		return false
	}
	expires := j.first.ExpiresAt
	if j.last != nil {
		expires = j.last.ExpiresAt
	}
	return expires != nil && !expires.After(now)
}

// queue is where the job waits for its turn.
func (j *seen) queue() string {
	return store.DefaultNamespace.Queue(j.spec.Destination, store.Priority(j.spec.Priority))
}

// waiting are the accepted jobs that have not been read as ended.
func (b *book) waiting() []*seen {
	return slices.DeleteFunc(slices.Clone(b.list), func(j *seen) bool { return j.first == nil || j.gone || j.ended() })
}

// GoString keeps what rapid logs short.
func (j *seen) GoString() string { return fmt.Sprintf("%s (%s)", j.id, j.status()) }
