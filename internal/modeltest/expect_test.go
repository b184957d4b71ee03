package modeltest

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

// asJob is the job as the client should read it.
func (j *job) asJob() *jobs.Job {
	out := &jobs.Job{
		ID: j.id, Destination: j.destination, Key: j.key, Status: j.status(), Priority: j.priority,
		Payload: json.RawMessage("null"), Batch: j.batch, After: j.after,
		Attempt: j.attempt, RescheduleCount: j.reschedules, MaxReschedules: j.maxReschedules, Crashes: j.crashes,
		AvailableAt: j.created, CreatedAt: j.created, StartedAt: instant(j.started), ExpiresAt: instant(j.expires),
		Response: j.response, LastError: j.problem, Worker: j.by,
	}
	if j.retry != nil {
		policy := *j.retry
		if policy.RetryOn == nil {
			policy.RetryOn = []jobs.Trigger{jobs.OnTimeout, jobs.OnFailure, jobs.OnExplicit}
		}
		out.Retry = &policy
	}
	if !j.available.IsZero() {
		out.AvailableAt = j.available
	}
	if j.waits() {
		out.Reason, out.ReasonCode = j.reason.Text(), string(j.reason)
	}
	if j.state == record.StateRetry || j.state == record.StatePaused && j.resume == record.StateRetry {
		out.NextRetryAt = instant(out.AvailableAt)
	}
	if j.final() {
		out.EndedAt = instant(j.ended)
	}
	switch j.state {
	case record.StateCompleted:
		out.CompletedAt = out.EndedAt
	case record.StateExpired:
		out.MarkedExpiredAt = out.EndedAt
	}
	return out
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// asHistory is the job's history as the client should read it: what a happy job
// costs no write for follows from its record.
func (j *job) asHistory() []event {
	out := slices.Clone(j.history)
	add := func(at time.Time, status jobs.Status, name string) {
		out = append(out, event{out[len(out)-1].version + 1, at, status, name, j.by})
	}
	if j.state == record.StateActive || j.state == record.StateCompleted && !j.startTold {
		add(j.started, jobs.Running, "started")
	}
	if j.state == record.StateCompleted {
		add(j.ended, jobs.Completed, "completed")
	}
	if over := len(out) - mostVersions; over > 0 {
		out = slices.Delete(out, 1, 1+over)
	}
	return out
}

// asBatch is the batch as the client should count it, nil if it has no jobs.
func (m *model) asBatch(name string) *jobs.BatchStatus {
	b := &jobs.BatchStatus{Batch: name, Counts: map[jobs.Status]int{}}
	ended := 0
	for _, j := range m.jobs {
		if j.batch != name {
			continue
		}
		b.Total++
		b.Counts[j.status()]++
		if j.final() {
			ended++
		}
	}
	if b.Total == 0 {
		return nil
	}
	b.Progress = float64(ended) / float64(b.Total)
	b.Done = ended == b.Total
	return b
}

// asStats is the destination as the client should count it, which ends jobs whose
// time is over on its way from queue to queue.
func (m *model) asStats(destination string) jobs.DestinationStats {
	s := jobs.DestinationStats{Destination: destination, Counts: map[jobs.Status]int{}}
	for _, status := range jobs.Statuses {
		s.Counts[status] = 0
	}
	for _, name := range record.Queues(destination) {
		m.sweep(name, nil)
		q := m.queues[name]
		s.Paused = s.Paused || q.paused
		for _, j := range m.inQueue(name) {
			s.Counts[j.status()]++
			if !j.final() {
				s.Backlog++
			}
		}
		if next := m.next(q); next != nil && (s.OldestPendingAt == nil || next.pendingSince.Before(*s.OldestPendingAt)) {
			s.OldestPendingAt = instant(next.pendingSince)
			s.OldestPendingAge = present().Sub(next.pendingSince).Seconds()
		}
	}
	return s
}

// next is the job that is next in line, nil if there is none.
func (m *model) next(q *queue) *job {
	for _, id := range q.line {
		if j := m.get(ref{q.name, id}); j != nil && j.state == record.StatePending {
			return j
		}
	}
	return nil
}

// source is a place where the client looks for jobs.
type source struct {
	queue string
	read  func() []string // in the order in which it reads them
}

// sources are the places where jobs of the filter are, as the client goes through
// them.
func (m *model) sources(f jobs.Filter) []source {
	queues := record.Queues(f.Destination)
	if f.Destination == "" {
		queues = nil
		for _, d := range destinations {
			queues = append(queues, record.Queues(d)...)
		}
	}
	var out []source
	for _, q := range queues {
		add := func(found func() []*job) {
			out = append(out, source{q, func() []string { return newestFirst(found(), f.Key) }})
		}
		if f.Batch != "" {
			add(func() []*job {
				found := m.sorted(func(j *job) bool { return j.queue == q && j.batch == f.Batch })
				slices.SortStableFunc(found, func(a, b *job) int { return a.created.Compare(b.created) })
				return found
			})
			continue
		}
		for _, state := range []string{
			record.StateActive, record.StateScheduled, record.StateWaiting, record.StatePaused, record.StatePending,
			record.StateRetry, record.StateCompleted, record.StateFailed, record.StateCancelled, record.StateExpired,
		} {
			switch {
			case len(f.Statuses) > 0 && !slices.Contains(f.Statuses, statusOf[state]):
			case state == record.StatePending:
				add(func() []*job { return m.inLine(q) })
			case state == record.StateActive:
				add(func() []*job { return m.sorted(func(j *job) bool { return j.queue == q && j.state == state }) })
			default:
				add(func() []*job { return m.inSet(q, state) })
			}
		}
	}
	return out
}

// inLine are the jobs whose ids are in the line, also if they are elsewhere.
func (m *model) inLine(queue string) []*job {
	var out []*job
	for _, id := range m.queues[queue].line {
		if j := m.get(ref{queue, id}); j != nil {
			out = append(out, j)
		}
	}
	return out
}

func newestFirst(in []*job, key string) []string {
	var out []string
	for _, j := range slices.Backward(in) {
		if key == "" || j.key == key {
			out = append(out, j.id)
		}
	}
	return out
}

// matching returns the jobs that the filter selects.
func (m *model) matching(f jobs.Filter) []*job {
	return m.sorted(func(j *job) bool {
		return (len(f.Statuses) == 0 || slices.Contains(f.Statuses, j.status())) &&
			(f.Destination == "" || j.destination == f.Destination) &&
			cmp.Or(f.Key, j.key) == j.key && cmp.Or(f.Batch, j.batch) == j.batch
	})
}
