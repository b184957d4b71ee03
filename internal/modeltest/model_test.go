package modeltest

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

// model is what Redis should hold: each job in one of the states of its record,
// and for each queue what the states alone do not tell. Every method changes it as
// the contract says, at the present instant.
type model struct {
	jobs   map[string]*job
	queues map[string]*queue
	runs   int // fetches so far
	// completed are the ids that have completed at some time.
	completed map[string]bool
}

// queue is what a queue has besides the states of its jobs.
type queue struct {
	name   string
	paused bool
	// line is the pending list, the next one first. It also has ids whose jobs are
	// not pending: ghosts counts them.
	line   []string
	ghosts int
	// children are by parent; outbox are the parents that have ended and whose
	// children do not know, by when they ended.
	children map[string]map[ref]bool
	outbox   map[string]time.Time
}

type ref struct{ queue, id string }

// job is one job. Zero instants stand for "none".
type job struct {
	ref
	destination    string
	priority       jobs.Priority
	key, batch     string
	after          []string
	created        time.Time
	retry          *jobs.RetryPolicy
	maxReschedules *int

	state                         string
	attempt, reschedules, crashes int
	available, expires            time.Time
	started, ended, pendingSince  time.Time
	by, problem                   string
	reason                        record.Reason
	// anyParent is true where two parents have ended: either may be the reason.
	anyParent bool
	response  *jobs.Response
	history   []event
	versions  int

	ghost                    bool      // its id in the line is to be passed over
	since                    time.Time // its place in the set of its state, which is sorted by time
	resume                   string    // where a paused job goes back to
	mark, markBy, markReason string
	owed                     map[string]bool // parents that have not completed
	run, crashRun            int             // the latest fetch, the one that was taken for dead
	startTold                bool            // the history has the start of the latest run

	// What the contract promises for good, apart from how the model gets there.
	cancelled bool // by a person, and not run again since
}

// event is an entry of the history.
type event struct {
	version int
	at      time.Time
	status  jobs.Status
	name    string
	by      string
}

const mostVersions = 100

// present is now as Redis's scripts see it.
func present() time.Time { return canonical(time.Now()) }

// canonical is an instant as it is read from Redis.
func canonical(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }

func (m *model) queueOf(j *job) *queue { return m.queues[j.queue] }

func newModel() *model {
	return &model{jobs: map[string]*job{}, queues: map[string]*queue{}, completed: map[string]bool{}}
}

func newQueue(name string) *queue {
	return &queue{name: name, children: map[string]map[ref]bool{}, outbox: map[string]time.Time{}}
}

// get returns the job of that queue, nil if there is none.
func (m *model) get(r ref) *job {
	if j := m.jobs[r.id]; j != nil && j.queue == r.queue {
		return j
	}
	return nil
}

// sorted returns the jobs that are wanted, by id.
func (m *model) sorted(want func(*job) bool) []*job {
	var out []*job
	for _, j := range m.jobs {
		if want(j) {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(a, b *job) int { return cmp.Compare(a.id, b.id) })
	return out
}

// inSet returns the jobs of a queue in one state as its set has them, the earliest
// first.
func (m *model) inSet(queue, state string) []*job {
	out := m.sorted(func(j *job) bool { return j.queue == queue && j.state == state })
	slices.SortStableFunc(out, func(a, b *job) int { return a.since.Compare(b.since) })
	return out
}

var statusOf = map[string]jobs.Status{
	record.StatePending: jobs.Pending, record.StateScheduled: jobs.Pending, record.StateActive: jobs.Running,
	record.StateRetry: jobs.RetryPending, record.StateCompleted: jobs.Completed, record.StateFailed: jobs.Failed,
	record.StateCancelled: jobs.Cancelled, record.StateExpired: jobs.Expired, record.StatePaused: jobs.Paused,
	record.StateWaiting: jobs.Waiting,
}

// GoString keeps what rapid logs short.
func (j *job) GoString() string { return j.id }

func (j *job) status() jobs.Status { return statusOf[j.state] }

func (j *job) final() bool { return j.status().Final() }

// waits reports whether the job can expire, be paused or cancelled at once.
func (j *job) waits() bool { return !j.final() && j.state != record.StateActive }

// due reports whether it waits although its time is over.
func (j *job) due() bool { return j.waits() && j.overdue() }

func (j *job) overdue() bool { return !j.expires.IsZero() && !j.expires.After(present()) }

func (j *job) note(status jobs.Status, name, by string) { j.noteAt(present(), status, name, by) }

func (j *job) noteAt(at time.Time, status jobs.Status, name, by string) {
	j.versions++
	j.history = append(j.history, event{j.versions, at, status, name, by})
	if j.versions > mostVersions {
		j.history = slices.Delete(j.history, 1, 2) // the creation stays
	}
}

// leave takes a job out of where it is.
func (m *model) leave(j *job) {
	if j.state == record.StatePending {
		j.ghost = true
		m.queueOf(j).ghosts++
	}
}

// drop counts ids down that were taken out of the line unused.
func (q *queue) drop(n int) {
	if n > 0 {
		q.ghosts = max(0, q.ghosts-n)
	}
	if n > 0 && len(q.line) == 0 {
		q.ghosts = 0
	}
}

// toPending puts a job at the end of the line, or where it has its place still.
func (m *model) toPending(j *job) {
	q := m.queueOf(j)
	if j.ghost {
		j.ghost = false
		q.drop(1)
	} else {
		q.line = append(q.line, j.id)
	}
	j.state, j.pendingSince = record.StatePending, present()
}

// toTimed has a job wait for its available time.
func (m *model) toTimed(j *job, state string) { j.state, j.since = state, j.available }

// toDue puts a job where its available time wants it.
func (m *model) toDue(j *job) {
	if j.available.After(present()) {
		m.toTimed(j, record.StateScheduled)
	} else {
		m.toPending(j)
	}
}

// park puts a job aside.
func (m *model) park(j *job, state string) { j.state, j.since = state, present() }

// finish ends a job that has not completed.
func (m *model) finish(j *job, state, problem string) {
	j.state, j.since, j.ended = state, present(), present()
	j.mark, j.resume = "", ""
	if problem != "" {
		j.problem, j.anyParent = problem, false
	}
	m.toldLater(j)
}

// toldLater puts a job that has ended into the outbox if it has children.
func (m *model) toldLater(j *job) {
	if q := m.queueOf(j); len(q.children[j.id]) > 0 {
		q.outbox[j.id] = present()
	}
}

func (m *model) expire(j *job, by string) {
	m.leave(j)
	m.finish(j, record.StateExpired, "")
	j.note(jobs.Expired, "expired", by)
}

// sweep ends those of the jobs of a queue whose time is over, and tells their
// children; nil are all of its jobs.
func (m *model) sweep(queue string, some []string) {
	due := m.sorted(func(j *job) bool {
		return j.queue == queue && j.due() && (some == nil || slices.Contains(some, j.id))
	})
	for _, j := range due {
		m.expire(j, "")
	}
	if len(due) > 0 {
		m.tellFrom(queue)
	}
}

// honour does what was asked of a job while it ran; it would go back to target.
func (m *model) honour(j *job, target string) (ended string) {
	switch j.mark {
	case "cancel":
		m.finish(j, record.StateCancelled, cmp.Or(j.markReason, "cancelled"))
		j.note(jobs.Cancelled, "cancelled", j.markBy)
		j.cancelled = true
	case "pause":
		m.park(j, record.StatePaused)
		j.resume, j.mark = target, ""
		j.note(jobs.Paused, "paused", j.markBy)
	default:
		return ""
	}
	j.markBy, j.markReason = "", ""
	return j.state
}

func (m *model) inQueue(queue string) []*job {
	return m.sorted(func(j *job) bool { return j.queue == queue })
}
