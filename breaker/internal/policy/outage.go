package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

const reopeners = 20 // jobs kept of those whose calls reopened in slow start

// inARow counts a call of a job, or of a key, that ended in of, and returns false if the streak has counted one of it, or
// if the API has accepted a call that ended later.
func (b *breaker) inARow(of, id string, e *Event) bool {
	if at := e.acceptedBy(b); at > b.StreakOver {
		b.endStreak(at)
	}
	if e.Ended < b.StreakOver {
		return false
	}
	if b.StreakOf != of {
		b.clearStreak()
		b.StreakOf = of
	}
	row := b.row()
	at := slices.IndexFunc(row, func(c counted) bool { return id != "" && c.id == id })
	if at >= 0 {
		row[at].ended = max(row[at].ended, e.Ended)
	} else {
		row = append(row, counted{id, e.Ended})
		b.Streak++
	}
	b.setRow(row)
	return at < 0
}

// endStreak drops the calls of the streak that ended by an instant: the API accepted one then.
func (b *breaker) endStreak(at int64) {
	b.StreakOver = max(b.StreakOver, at)
	row := b.row()
	kept := slices.DeleteFunc(slices.Clone(row), func(c counted) bool { return c.ended <= at || c.ended > b.us })
	if len(kept) == 0 && b.Streak > 0 {
		b.clearStreak()
		b.dirty = true
	} else if len(kept) < len(row) {
		b.Streak -= int64(len(row) - len(kept))
		b.setRow(kept)
	}
}

// counted is a call of a streak: of a job, or of a key, and when it ended, µs.
type counted struct {
	id    string
	ended int64
}

// row are the calls of the streak.
func (b *breaker) row() (all []counted) {
	for call := range strings.SplitSeq(b.StreakJobs, ",") {
		id, ended := call, int64(0)                          // not known of a call without an instant
		if at := strings.LastIndexByte(call, '@'); at >= 0 { // the last one: a key may have some, too
			id = call[:at]
			ended, _ = strconv.ParseInt(call[at+1:], 10, 64)
		}
		if call != "" {
			all = append(all, counted{id, ended})
		}
	}
	return all
}

func (b *breaker) setRow(row []counted) {
	calls := make([]string, len(row))
	for i, c := range row {
		calls[i] = c.id + "@" + strconv.FormatInt(c.ended, 10)
	}
	b.StreakJobs, b.dirty = strings.Join(calls, ","), true
	b.StreakSince = slices.MinFunc(row, func(a, b counted) int { return cmp.Compare(a.ended, b.ended) }).ended
}

// acceptedBy is when the instance's last call ended that the API accepted, of a breaker.
func (e *Event) acceptedBy(b *breaker) int64 {
	if b.key {
		return e.KeyAccepted
	}
	return e.Accepted
}

// countOutage counts a call of the class e.Outage in a CLOSED breaker, and returns true if that opens it. In the slow
// start after an outage fewer calls in a row do: as many as may be in flight. But none of the last jobs that did so
// does it again: that is the job's fault, unless it is a 503 while the limiter's pace is looked for.
func (b *breaker) countOutage(e *Event) bool {
	if !b.inARow(e.Outage, e.Job, e) {
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
