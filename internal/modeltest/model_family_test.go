package modeltest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

// parentEnded tells a job how one of its parents has ended.
func (m *model) parentEnded(child ref, parent string) {
	j := m.get(child)
	if j == nil || !j.owed[parent] {
		return
	}
	p := m.jobs[parent]
	if p != nil && p.state == record.StateCompleted {
		j.owed[parent] = false
		if j.state == record.StateWaiting && j.waitsFor() == 0 {
			m.toDue(j)
			j.note(jobs.Pending, "released", "")
		}
		return
	}
	if j.state == record.StateWaiting || j.state == record.StatePaused && j.resume == record.StateWaiting {
		m.leave(j)
		m.finish(j, record.StateCancelled, reasonOf(p, parent))
		j.anyParent = p != nil && p.anyParent || m.endedBadly(j) > 1
		j.note(jobs.Cancelled, "cancelled", "")
	}
}

// waitsFor is for how many parents the job waits.
func (j *job) waitsFor() int {
	n := 0
	for _, owed := range j.owed {
		if owed {
			n++
		}
	}
	return n
}

// endedBadly is how many of the parents that the job waits for have ended.
func (m *model) endedBadly(j *job) int {
	n := 0
	for parent, owed := range j.owed {
		if p := m.jobs[parent]; owed && (p == nil || p.final() && p.state != record.StateCompleted) {
			n++
		}
	}
	return n
}

// reasonOf is the last error of a job that a parent has cancelled.
func reasonOf(p *job, parent string) string {
	switch {
	case p == nil:
		return "parent " + parent + " does not exist any more"
	case p.state == record.StateExpired:
		return "parent " + parent + " expired"
	}
	reason := "parent " + parent + " failed"
	if p.state == record.StateCancelled {
		reason = "parent " + parent + " was cancelled"
	}
	cause := p.problem
	if rest, ok := strings.CutPrefix(cause, "parent "); ok {
		_, rest, _ = strings.Cut(rest, " ")
		if first, ok := strings.CutPrefix(rest, "was cancelled: "); ok && strings.HasPrefix(first, "parent ") {
			cause = first // the generations between are left out
		}
	}
	if cause != "" && cause != p.state {
		reason += ": " + cause
	}
	return reason
}

// tellFrom tells the children of the jobs of a queue that have ended.
func (m *model) tellFrom(queue string) {
	q := m.queues[queue]
	parents := slices.SortedFunc(maps.Keys(q.outbox), func(a, b string) int {
		return cmp.Or(q.outbox[a].Compare(q.outbox[b]), cmp.Compare(a, b))
	})
	for _, id := range parents {
		m.tell(ref{queue, id})
	}
}

// tell tells the children of a job that has ended, and those that end by it tell
// theirs.
func (m *model) tell(parent ref) {
	for open := []ref{parent}; len(open) > 0; open = open[1:] {
		r := open[0]
		q := m.queues[r.queue]
		delete(q.outbox, r.id)
		p := m.get(r)
		if p == nil || !p.final() {
			continue // it runs again, or has told them and is gone
		}
		children := slices.SortedFunc(maps.Keys(q.children[r.id]), func(a, b ref) int { return cmp.Compare(a.id, b.id) })
		for _, c := range children {
			m.parentEnded(c, r.id)
		}
		delete(q.children, r.id)
		if p.state != record.StateCompleted {
			open = append(open, children...)
		}
	}
}
