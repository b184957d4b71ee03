package modeltest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/asynqx"
	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

// What a process does with asynq's times.
const (
	leaseFor  = 30 * time.Second // asynq's
	graceFor  = 30 * time.Second // asynq's, after the lease
	beatEvery = time.Second
	spread    = time.Nanosecond // of jobs that come back

	maxCrashes      = 2
	retention       = time.Minute
	retentionFailed = 2 * time.Minute
)

// Fetched jobs of one call: each run is told from any other.
type fetched struct {
	run     int
	jobs    []*job
	dropped int // ids thrown away, and jobs that ended
}

// fetch takes up to want jobs from the head of the line. Ids whose jobs are
// elsewhere are dropped, jobs whose time is over end; only where nothing but such
// was found does it look further.
func (m *model) fetch(queue string, want int, worker string) fetched {
	q := m.queues[queue]
	m.runs++
	f := fetched{run: m.runs}
	if q.paused {
		return f
	}
	gone := 0
	for len(f.jobs) == 0 && len(q.line) > 0 {
		n := min(want, len(q.line))
		ids := q.line[:n]
		q.line = slices.Clone(q.line[n:])
		for _, id := range ids {
			j := m.get(ref{queue, id})
			switch {
			case j == nil:
				gone++
			case j.state != record.StatePending:
				gone++
				j.ghost = false
			case j.overdue():
				f.dropped++
				m.finish(j, record.StateExpired, "")
				j.note(jobs.Expired, "expired", "")
			default:
				j.state, j.started, j.by = record.StateActive, present(), worker
				j.run, j.startTold = f.run, false
				f.jobs = append(f.jobs, j)
			}
		}
	}
	q.drop(gone)
	f.dropped += gone
	return f
}

// settled is what becomes of a job's outcome.
type settled struct {
	kind  asynqx.Kind // "" where the job was in other hands
	count int
	ended bool // or paused: children, if it has any, are told
}

// settle takes a job out of a worker's hands, any way but completed. run 0 is
// whichever has it.
func (m *model) settle(r ref, run int, kind asynqx.Kind, o asynqx.Outcome) settled {
	j := m.get(r)
	if j == nil {
		return settled{}
	}
	outlived := false // its worker was taken for dead, and is not
	if run != 0 && j.crashRun == run {
		outlived = true
		j.crashRun = 0
		j.crashes--
	}
	if run != 0 && j.run != run {
		return settled{}
	}
	if j.state != record.StateActive {
		if !outlived || kind == asynqx.Requeue || !m.recall(j) {
			return settled{}
		}
	} else {
		outlived = false
	}
	s := settled{kind: kind}
	problem := o.Error
	switch kind {
	case asynqx.Reschedule:
		s.count = j.reschedules + 1
		if o.Limit != nil && s.count > *o.Limit {
			kind, s.kind, s.count = asynqx.Fail, asynqx.Fail, j.reschedules
			problem = fmt.Sprintf("max reschedules (%d) exceeded", *o.Limit)
		}
		j.reschedules = s.count
	case asynqx.Retry:
		j.attempt++
		s.count = j.attempt
	case recovered:
		j.crashes++
		s.count, j.crashRun = j.crashes, j.run
	}
	if o.Response != nil {
		j.response = &jobs.Response{Status: o.Response.Status, Body: o.Response.Body}
	}
	if problem != "" {
		j.problem, j.anyParent = problem, false
	}
	if !j.expires.IsZero() {
		j.expires = j.expires.Add(o.Extend)
	}
	if kind != asynqx.Requeue && kind != deferred && !outlived {
		j.noteAt(j.started, jobs.Running, "started", j.by)
		j.startTold = true
	}
	if kind == recovered {
		j.note(jobs.Running, "worker_lost", j.by)
		if s.count >= maxCrashes {
			kind, s.kind = asynqx.Fail, asynqx.Fail
			problem = fmt.Sprintf("poison: its worker died %d times with this job in hand", s.count)
		}
	}
	switch kind {
	case asynqx.Fail:
		m.finish(j, record.StateFailed, problem)
		j.note(jobs.Failed, "failed", "")
		s.ended = true
	case asynqx.Cancel:
		problem = cmp.Or(j.markReason, problem)
		j.note(jobs.Cancelled, "cancelled", j.markBy)
		m.finish(j, record.StateCancelled, problem)
		j.cancelled, s.ended = true, true
	default:
		m.waitAgain(j, &s, kind, o)
	}
	return s
}

// recall takes a job that was recovered from where it waits, unless it has been started
// again or has ended since.
func (m *model) recall(j *job) bool {
	state := j.state
	switch state {
	case record.StateScheduled, record.StatePending, record.StatePaused, record.StateFailed:
	default:
		return false
	}
	m.leave(j)
	j.resume = ""
	switch state {
	case record.StatePaused:
		j.mark = "pause"
	case record.StateFailed:
		j.problem, j.anyParent = "", false
	}
	return true
}

// The kinds that asynqx keeps to itself.
const (
	recovered asynqx.Kind = "recover"
	deferred  asynqx.Kind = "defer"
)

// waitAgain puts a job back, unless something else was asked for meanwhile.
func (m *model) waitAgain(j *job, s *settled, kind asynqx.Kind, o asynqx.Outcome) {
	at := present()
	if o.At.After(at) {
		at = canonical(o.At)
	}
	target := record.StateScheduled
	switch kind {
	case asynqx.Retry:
		target = record.StateRetry
		j.note(jobs.RetryPending, "retry_scheduled", "")
	case asynqx.Reschedule:
		j.note(jobs.Pending, "rescheduled", "")
	case recovered:
		j.note(jobs.Pending, "recovered", "")
	}
	if kind == asynqx.Requeue || kind == asynqx.Reschedule && !at.After(present()) {
		target = record.StatePending
	}
	if kind != asynqx.Requeue || j.mark != "" {
		j.available, j.reason = at, o.Reason
	}
	if j.mark != "" {
		s.kind = asynqx.Cancel
		if m.honour(j, target) == record.StatePaused {
			s.kind = asynqx.Pause
		}
		s.ended = true
		return
	}
	switch {
	case kind == asynqx.Requeue:
		q := m.queueOf(j)
		q.line = slices.Insert(q.line, 0, j.id)
		j.state = record.StatePending
	case target == record.StatePending:
		m.toPending(j)
	default:
		m.toTimed(j, target)
	}
}

// complete records that the destination accepted a job, wherever it is by now.
func (m *model) complete(r ref, worker string, response *asynqx.Response) (was, told bool) {
	j := m.get(r)
	if j == nil || j.state == record.StateCompleted {
		return j != nil, false
	}
	if j.state != record.StateActive {
		m.leave(j)
		j.resume = ""
		if j.crashRun != 0 {
			j.crashRun = 0
			j.crashes--
		}
	}
	j.state, j.ended, j.by = record.StateCompleted, present(), worker
	j.since = present().Truncate(time.Second).Add(retention)
	if response != nil {
		j.response = &jobs.Response{Status: response.Status, Body: response.Body}
	}
	m.completed[j.id] = true
	m.toldLater(j)
	return true, len(m.queueOf(j).children[j.id]) > 0
}

// forward moves what is due to the end of the line, and returns how many.
func (m *model) forward(queue string) (moved int) {
	timed := append(m.inSet(queue, record.StateScheduled), m.inSet(queue, record.StateRetry)...)
	slices.SortFunc(timed, func(a, b *job) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.id, b.id)) })
	for _, j := range timed[:min(len(timed), 100)] {
		if !j.since.After(present()) {
			m.toPending(j)
			moved++
		}
	}
	return moved
}

// reclaim puts back, to the head, what a fetch took whose reply was lost.
func (m *model) reclaim(f fetched) {
	for _, j := range slices.Backward(f.jobs) {
		if m.get(j.ref) != j || j.state != record.StateActive || j.run != f.run {
			continue
		}
		if m.honour(j, record.StatePending) == "" {
			j.state = record.StatePending
			q := m.queueOf(j)
			q.line = slices.Insert(q.line, 0, j.id)
		}
	}
}

// purge deletes what has ended long enough ago; a parent whose children do not know
// of its end yet stays for another minute.
func (m *model) purge(queue, state string) {
	before := present().Truncate(time.Second)
	if state != record.StateCompleted {
		before = present().Add(-retentionFailed)
	}
	for _, j := range m.inSet(queue, state) {
		switch {
		case j.since.After(before):
		case len(m.queues[queue].children[j.id]) > 0:
			j.since = before.Add(time.Minute)
		default:
			delete(m.jobs, j.id)
		}
	}
}
