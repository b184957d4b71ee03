package modeltest

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

// verdict is what an action comes to for one job.
type verdict struct {
	done, asked, refused bool
	orphan               bool        // refused because of a parent
	status               jobs.Status // before
}

// order is what a person asks for.
type order struct {
	action     jobs.Action
	by, reason string
	states     []string // in which to act; nil is any
}

// act does the same to jobs of one queue, as one call of the client does. Parents of
// those that are to run again are asked; children are to be told.
func (m *model) act(o order, queue string, ids []string) []verdict {
	verdicts := make([]verdict, len(ids))
	var readopt []int
	for i, id := range ids {
		j := m.get(ref{queue, id})
		if j == nil || o.states != nil && !slices.Contains(o.states, j.state) {
			continue
		}
		v := &verdicts[i]
		*v = m.actOne(o, j)
		v.refused = !v.done && !v.asked
		if o.states != nil && o.action == jobs.ActionResume && j.state == record.StateActive && v.refused {
			*v = verdict{} // of many jobs only those are meant that are paused or will be
		}
		if v.done && j.state == record.StateWaiting && o.action == jobs.ActionRetry {
			readopt = append(readopt, i)
		}
	}
	for _, i := range readopt {
		j := m.get(ref{queue, ids[i]})
		m.adopt(j)
		if j.state == record.StateCancelled { // at once, by a parent
			verdicts[i] = verdict{refused: true, orphan: true, status: jobs.Cancelled}
		}
	}
	return verdicts
}

func (m *model) actOne(o order, j *job) verdict {
	before := j.status()
	if j.due() && noticesExpiry(o.action, j) {
		m.expire(j, "")
		return verdict{status: jobs.Expired}
	}
	v := verdict{status: before}
	switch o.action {
	case jobs.ActionCancel:
		switch {
		case j.waits():
			m.leave(j)
			m.finish(j, record.StateCancelled, cmp.Or(o.reason, "cancelled"))
			j.note(jobs.Cancelled, "cancelled", o.by)
			j.cancelled, v.done = true, true
		case j.state == record.StateActive:
			if j.mark != "cancel" {
				j.mark, j.markBy, j.markReason = "cancel", o.by, o.reason
			}
			v.asked = true
		}
	case jobs.ActionPause:
		switch {
		case j.waits() && j.state != record.StatePaused:
			from := j.state
			m.leave(j)
			m.park(j, record.StatePaused)
			j.resume = from
			j.note(jobs.Paused, "paused", o.by)
			v.done = true
		case j.state == record.StateActive && j.mark != "cancel":
			if j.mark != "pause" {
				j.mark, j.markBy, j.markReason = "pause", o.by, o.reason
			}
			v.asked = true
		}
	case jobs.ActionResume:
		switch {
		case j.state == record.StatePaused:
			m.resumeTo(j, o.by)
			v.done = true
		case j.state == record.StateActive && j.mark == "pause":
			j.mark, j.markBy, j.markReason = "", "", ""
			v.done = true
		}
	case jobs.ActionRetry:
		if (j.state == record.StateFailed || j.state == record.StateCancelled) && !j.overdue() {
			m.runAgain(j, o.by)
			v.done = true
		}
	case jobs.ActionExpire:
		if j.waits() {
			m.expire(j, o.by)
			v.done = true
		}
	}
	return v
}

// noticesExpiry reports whether the action ends a job instead whose time is over.
func noticesExpiry(a jobs.Action, j *job) bool {
	return a == jobs.ActionCancel || a == jobs.ActionPause || a == jobs.ActionResume && j.state == record.StatePaused
}

// resumeTo puts a paused job back to where it was.
func (m *model) resumeTo(j *job, by string) {
	back := j.resume
	j.resume = ""
	switch {
	case back == record.StateWaiting && j.waitsFor() > 0:
		m.park(j, record.StateWaiting)
		j.note(jobs.Waiting, "resumed", by)
	case back == record.StateRetry:
		m.toTimed(j, record.StateRetry)
		j.note(jobs.RetryPending, "resumed", by)
	default:
		m.toDue(j)
		j.note(jobs.Pending, "resumed", by)
	}
}

// runAgain lets a failed or cancelled job begin anew.
func (m *model) runAgain(j *job, by string) {
	if j.attempt > 0 || j.reschedules > 0 {
		j.available = time.Time{} // it is not the time that the job was enqueued for
	}
	j.attempt, j.reschedules, j.crashes, j.crashRun = 0, 0, 0, 0
	j.ended = time.Time{}
	j.reason, j.problem, j.anyParent = "", "", false
	j.mark, j.markBy, j.markReason = "", "", ""
	j.cancelled = false
	delete(m.queueOf(j).outbox, j.id)
	if j.waitsFor() > 0 {
		m.park(j, record.StateWaiting)
		j.note(jobs.Waiting, "retried", by)
		return
	}
	m.toDue(j)
	j.note(jobs.Pending, "retried", by)
}
