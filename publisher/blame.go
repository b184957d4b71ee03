package publisher

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"
	"github.com/tidegate/tidegate/jobs"
)

// Whose limit was it? An API that refuses one job and accepts the others is not at its limit: the
// refusal is the job's own, and must not hold the other jobs. See docs/adr/0054-blame.md.

const (
	// byChance is how improbable it must be that an API at its limit refused one job so often in a
	// row by chance, given how many calls of other jobs it refused meanwhile: the job is refused
	// alone then.
	byChance = 1.0 / 5000
	// doubtful is the same for a refusal that is not counted for the moment: an API that is at its
	// limit refuses the next calls, too, and those count.
	doubtful = 1.0 / 10
	// ownFailure is the most that other calls may fail for a job's second failure to be its own.
	ownFailure = 1.0 / 20
)

// maxRefusedAlone is the default of MaxRefusedAlone.
const maxRefusedAlone = 10

// refusals are the calls of one job in a row that the API refused or that failed, as the job's
// record keeps them.
type refusals struct {
	calls int
	// accepted is how many calls of other jobs the API accepted meanwhile, as far as the
	// instances know that made the calls.
	accepted int
	// chance is how probable the calls' refusals are if the API refuses all jobs alike; 1 for the first one.
	chance float64
	// alone is how many of the calls were laid to the job.
	alone int
}

// parseRefusals reads the field of a record and how long ago its last call was; zero values for a job
// that was not refused, or an unreadable field.
func parseRefusals(field string) (refusals, time.Duration) {
	f := strings.Fields(field)
	if len(f) != 5 {
		return refusals{}, 0
	}
	calls, err1 := strconv.Atoi(f[0])
	accepted, err2 := strconv.Atoi(f[1])
	chance, err3 := strconv.ParseFloat(f[2], 64)
	alone, err4 := strconv.Atoi(f[3])
	ms, err5 := strconv.ParseInt(f[4], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || err5 != nil || calls < 1 {
		return refusals{}, 0
	}
	return refusals{calls: calls, accepted: accepted, chance: chance, alone: alone}, time.Duration(ms) * time.Millisecond
}

func (r refusals) String() string {
	return fmt.Sprintf("%d %d %.3g %d", r.calls, r.accepted, r.chance, r.alone)
}

// first is the first refusal in a row.
func first() refusals { return refusals{calls: 1, chance: 1} }

// again is r with one more refusal.
func (r refusals) again(o others) refusals {
	if o.accepted > 0 { // else the API may refuse all
		// The part that the API refuses, cautiously: 1/(n+2) if it accepted all n.
		r.chance *= float64(o.refused+1) / float64(o.refused+o.accepted+2)
	}
	r.calls, r.accepted = r.calls+1, r.accepted+o.accepted
	return r
}

// others are the calls of other jobs since a job's last call: of the same destination, and of the
// same key if the job has one.
type others struct {
	accepted int
	refused  int  // or failed; without refusals that were laid to their own jobs
	latest   bool // the latest of them was accepted
}

// blame says who caused a refusal.
type blame int

const (
	limitOfAll blame = iota // it counts for the breaker
	inDoubt                 // it does not count: the next call shows whether the API is at its limit
	ofTheJob                // the job is refused alone: it does not count
)

// judge says who caused a refusal: the job itself, or the API's limit. r are the job's earlier refusals in a row;
// judge returns r with this one added. For a first refusal the breaker finds out, by testing another job.
func judge(r refusals, o others) (blame, refusals) {
	if r.calls == 0 {
		return limitOfAll, first()
	}
	switch r = r.again(o); {
	case r.chance <= byChance && (o.accepted > 0 || o.refused == 0):
		r.alone++
		return ofTheJob, r
	case r.chance <= doubtful && o.latest:
		return inDoubt, r
	}
	return limitOfAll, r
}

// judgeFailure is judge for a call that may be a part of an outage. It is the job's own failure
// if the API accepts other jobs: then the job's retry policy decides, and nobody else waits.
func judgeFailure(r refusals, o others) (own bool, _ refusals) {
	if r.calls == 0 {
		return false, first()
	}
	r = r.again(o)
	return r.chance <= ownFailure, r
}

// laid says who caused the refusal of a call.
type laid struct {
	whose    blame
	refusals refusals // of the job, with this one; zero for a call that was not refused
	field    string   // Outcome.Refusals of the job
}

// latestOthers is how long ago a call of another job is a sign that the API accepts calls.
const latestOthers = 10 * time.Second

// lay decides who caused the refusal or failure of a call that began at the given instant, and counts the call as
// evidence about other jobs.
func (d *destination) lay(r callResult, job *jobs.Job, delivery *engine.Delivery, permit breaker.Permit, began time.Time) (l laid) {
	if d.seen == nil || !r.called {
		return laid{}
	}
	limited := cmp.Or(d.member(permit), delivery.Key)
	key := limited
	if r.scope == jobs.ScopeGlobal {
		key = ""
	}
	before, ago := parseRefusals(delivery.Fields.Refusals)
	since := delivery.Fetched().Add(-ago)
	if before.calls == 0 {
		since = began.Add(-latestOthers)
	}
	switch o := d.seen.since(key, since); {
	case r.kind == rateLimited:
		o.latest = o.latest && !permit.Probe() // a probe decides: there is one
		l.whose, l.refusals = judge(before, o)
		switch l.whose {
		case ofTheJob:
		case inDoubt:
			d.seen.doubt(limited, began)
		case limitOfAll:
			d.seen.refuse(limited, began)
		}
	case r.countsForOutage(job.Response):
		var own bool
		if own, l.refusals = judgeFailure(before, o); own && !mayBeLimit(job.Response) {
			l.whose = ofTheJob
		} else {
			d.seen.refuse(limited, began)
		}
	case failsLimited(r.err):
		d.seen.refuse(limited, began)
	case r.accepted(job.Response):
		d.seen.accept(limited, began)
	}
	switch {
	case l.refusals.calls > 0:
		l.field = l.refusals.String()
	case before.calls > 0 && !kinds[r.kind].unknown:
		l.field = store.NoRefusals
	}
	return l
}

// mayBeLimit reports whether a response that counts for an outage may come from a limiter or a ban, which accept some
// calls and refuse others.
func mayBeLimit(answer *jobs.Response) bool {
	return answer != nil && slices.Contains([]int{http.StatusServiceUnavailable, http.StatusUnauthorized, http.StatusForbidden}, answer.Status)
}

// accepted reports whether the API took the call: neither its limit nor its health refused it.
func (r callResult) accepted(answer *jobs.Response) bool {
	switch kinds[r.kind].accepts {
	case always:
		return true
	case byStatus:
		return answer != nil && answer.Status >= http.StatusOK && answer.Status < http.StatusInternalServerError &&
			!slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests}, answer.Status)
	case never:
	}
	return false
}

// longestAlone bounds the wait of a job that is refused alone.
const longestAlone = time.Hour

// wait is how long a job that is refused alone waits: 1 s, 2 s, 4 s and so on, or as its hint says.
func (r refusals) wait(hint time.Duration) time.Duration {
	return min(longestAlone, max(hint, time.Second<<min(max(0, r.calls-1), 12)))
}

// countRefusedAlone counts a refusal that was laid to the job, for people.
func (d *decider) countRefusedAlone(job *jobs.Job, r refusals, failed bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.calls), reportTimeout)
	defer cancel()
	now, err := d.rdb.Time(ctx).Result()
	if err == nil {
		err = store.Namespace(d.o.Namespace).CountRefusedAlone(ctx, d.rdb, d.name, job.ID, r.sentence(), now, r.alone == 1, failed)
	}
	if err != nil {
		d.log.Warn("a job that was refused alone was not counted", "job", job.ID, "error", err)
	}
}

// sentence says what happened to the job.
func (r refusals) sentence() string {
	return words.RefusedAlone(strconv.Itoa(r.calls), strconv.Itoa(r.accepted))
}
