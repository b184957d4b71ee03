package policy

import (
	"strings"
)

const reopeners = 20 // jobs kept of those whose calls reopened in slow start

// inARow counts a call of a job, or of a key, that ended in of, and returns false if the streak has counted one of it.
func (b *breaker) inARow(of, id string) bool {
	if b.StreakOf != of {
		b.clearStreak()
		b.StreakOf, b.StreakID = of, b.next()
	}
	if id != "" {
		if inList(b.StreakJobs, id) {
			return false
		}
		b.StreakJobs = appended(b.StreakJobs, id)
	}
	b.Streak++
	b.dirty = true
	return true
}

// countOutage counts a call of the class e.Outage in a CLOSED breaker, and returns true if that opens it. In the slow
// start after an outage fewer calls in a row do: as many as may be in flight. But none of the last jobs that did so
// does it again: that is the job's fault, unless it is a 503 while the limiter's pace is looked for.
func (b *breaker) countOutage(e *Event) bool {
	if !b.inARow(e.Outage, e.Job) {
		return false
	}
	enough := e.Enough
	slow := b.Ramp > 0 && b.Outage == e.Outage && (e.Busy || !b.spaces())
	if slow && (e.Job == "" || b.spaces() || !inList(b.OutageJobs, e.Job)) {
		enough = min(enough, b.Ramp)
	}
	if b.Streak < enough {
		b.StreakLimit = enough
		return false
	}
	if e.Busy && b.paceWasRefused(b.slowStartEnd() <= 1) {
		b.clearStreak()
		b.OutageID = b.next() // for workers the job's call is of an outage
		return false
	}
	b.openByResponse("outage", 0, e.Outage == "down")
	b.Outage, b.OutageID = e.Outage, b.next()
	jobs := ""
	if slow {
		if jobs = b.OutageJobs; e.Job != "" {
			jobs = appended(jobs, e.Job)
		}
	}
	all := strings.Split(jobs, ",")
	b.OutageJobs = strings.Join(all[max(0, len(all)-reopeners):], ",")
	return true
}
