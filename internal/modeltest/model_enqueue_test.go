package modeltest

import (
	"maps"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

// answer is what an enqueue comes to for one job.
type answer int

const (
	accepted answer = iota
	exists
	unknownParent
	again // an earlier one of the call has the id
)

// enqueue takes in the jobs of one call and answers for each: those without
// parents first, queue by queue, then the others in their order.
func (m *model) enqueue(specs []*jobs.Spec) []answer {
	answers := make([]answer, len(specs))
	byQueue := func(places []int, visit func(i int)) {
		var order []string
		for _, i := range places {
			if q := queueOf(specs[i]); !slices.Contains(order, q) {
				order = append(order, q)
			}
		}
		for _, q := range order {
			for _, i := range places {
				if queueOf(specs[i]) == q {
					visit(i)
				}
			}
		}
	}
	first := map[string]int{}
	var orphans, children []int
	for i, s := range specs {
		k, seen := first[s.ID]
		switch child := len(s.After) > 0; {
		case seen && m.jobs[s.ID] == nil && (queueOf(specs[k]) != queueOf(s) || len(specs[k].After) > 0 && !child):
			answers[i] = again
		case child:
			children = append(children, i)
		default:
			orphans = append(orphans, i)
		}
		if !seen {
			first[s.ID] = i
		}
	}
	one := func(i int) { answers[i] = m.enqueueOne(specs[i]) }
	byQueue(orphans, one)
	for len(children) > 0 {
		n := independent(specs, children)
		var known []int
		for _, i := range children[:n] {
			switch {
			case m.jobs[specs[i].ID] != nil:
				answers[i] = exists
			case m.knows(specs[i].After):
				known = append(known, i)
			default:
				answers[i] = unknownParent
			}
		}
		byQueue(known, one)
		for _, i := range known {
			if answers[i] == accepted && m.jobs[specs[i].ID].state == record.StateWaiting {
				m.adopt(m.jobs[specs[i].ID])
			}
		}
		children = children[n:]
	}
	for i, a := range answers {
		if a == again && m.jobs[specs[i].ID] != nil {
			answers[i] = exists
		}
		if answers[i] == exists {
			m.adoptAgain(m.jobs[specs[i].ID])
		}
	}
	return answers
}

// independent is how many of the first do not have another one of them for parent.
func independent(specs []*jobs.Spec, places []int) int {
	ids := map[string]bool{}
	for n, i := range places {
		for _, parent := range specs[i].After {
			if ids[parent] {
				return n
			}
		}
		ids[specs[i].ID] = true
	}
	return len(places)
}

func (m *model) knows(ids []string) bool {
	for _, id := range ids {
		if m.jobs[id] == nil {
			return false
		}
	}
	return true
}

func queueOf(s *jobs.Spec) string { return record.Queue(s.Destination, record.Priority(s.Priority)) }

func (m *model) enqueueOne(s *jobs.Spec) answer {
	if m.jobs[s.ID] != nil {
		return exists
	}
	now := present()
	j := &job{
		ref: ref{queueOf(s), s.ID}, destination: s.Destination, priority: s.Priority, key: s.Key, batch: s.Batch,
		after: []string{}, created: now, retry: s.Retry, maxReschedules: s.MaxReschedules,
		owed: map[string]bool{},
	}
	for _, parent := range s.After {
		if !j.owed[parent] {
			j.after = append(j.after, parent)
			j.owed[parent] = true
		}
	}
	m.jobs[j.id] = j
	created := jobs.Pending
	if len(j.after) > 0 {
		created = jobs.Waiting
	}
	j.noteAt(now, created, "created", "")
	if at := later(s.At, now, s.Delay); at.After(now) {
		j.available = canonical(at)
	}
	if !s.ExpiresAt.IsZero() {
		j.expires = canonical(s.ExpiresAt)
	}
	if s.TTL != nil {
		j.expires = now.Add(*s.TTL)
	}
	switch {
	case j.overdue():
		m.finish(j, record.StateExpired, "")
		j.note(jobs.Expired, "expired", "")
	case len(j.after) > 0:
		m.park(j, record.StateWaiting)
	default:
		m.toDue(j)
	}
	return accepted
}

func later(at, now time.Time, delay time.Duration) time.Time {
	if delay > 0 {
		return now.Add(delay)
	}
	return at
}

// adopt makes a waiting job known to the parents that it waits for; one that has
// ended tells it how.
func (m *model) adopt(j *job) {
	for _, parent := range slices.Sorted(maps.Keys(j.owed)) {
		if !j.owed[parent] {
			continue
		}
		m.ask(j, parent)
	}
}

// adoptAgain does it to a job that exists: perhaps its enqueue was cut off.
func (m *model) adoptAgain(j *job) {
	if j.state != record.StateWaiting {
		return
	}
	for _, parent := range j.after {
		if m.jobs[parent] != nil {
			m.ask(j, parent)
		}
	}
}

func (m *model) ask(j *job, parent string) {
	p := m.jobs[parent]
	if p == nil || p.final() {
		m.parentEnded(j.ref, parent)
		return
	}
	q := m.queueOf(p)
	if q.children[parent] == nil {
		q.children[parent] = map[ref]bool{}
	}
	q.children[parent][j.ref] = true
}
