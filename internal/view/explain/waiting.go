package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// inLine explains a job that waits only for a worker, nextInLine the first of them: see [Explainer.Place].
const (
	inLine     = "in line for a free worker"
	nextInLine = "next in line; waiting for a free worker"
)

// facts are what the explanation of a job depends on besides the job.
type facts struct {
	now     time.Time // Redis's clock, in the location in which times are written
	breaker breaker.Status
	key     *breaker.Status // of the job's key, if that is what holds it
	// deferring is the breaker of the job's key, if that deferred the job after a call.
	deferring *breaker.Status
	paused    string // says that an operator has paused the job's queue, "" if none has
	served    bool   // a worker that serves the destination is alive
	// unreached is set while none of the destination's workers reaches it.
	unreached *jobs.UnreachableInfo
	seen      time.Time // last heartbeat of a worker; zero if there was none
}

// waiting returns why a job waits. The job neither runs nor has ended.
func (f facts) waiting(j *jobs.Job) *Waiting {
	switch j.Status {
	case jobs.Paused:
		return &Waiting{Reason: Paused, Text: j.Reason + " until it is resumed"}
	case jobs.Waiting:
		return &Waiting{Reason: Parents, brief: "waiting for " + Count(len(j.After), "parent", "parents"), Text: "waiting for its parents to complete: " + strings.Join(j.After, ", ")}
	}
	if f.paused != "" {
		return &Waiting{Reason: QueuePaused, Text: f.paused}
	}
	w := f.byBreaker(j)
	switch {
	case w == nil && f.key != nil:
		w = f.byKey(j)
	case w == nil:
		w = f.byTime(j)
	}
	missing := f.noWorker(j.Destination)
	switch {
	case w == nil && missing != "":
		return &Waiting{Reason: NoWorker, brief: missing, Text: missing + "; start one with: tidegate worker"}
	case w == nil && f.unreached != nil:
		return &Waiting{Reason: Unreachable, Text: f.noConnection(j.Destination)}
	case w == nil && inTurn(j):
		return &Waiting{Reason: Turn, Text: j.Reason + ": calls of " + j.Destination + " are scarce, and keys take turns"}
	case w == nil && ConcurrencyHolds(f.breaker):
		return &Waiting{Reason: ByConcurrency, Text: InFlight(f.breaker) + "; it waits for a slot"}
	case w == nil && RateHolds(forCost(f.breaker, j.Cost), f.now):
		return &Waiting{Reason: ByRate, Text: NextByRate(forCost(f.breaker, j.Cost), f.now)}
	case w == nil && reservedFor(f.breaker, j.Priority) != "":
		return &Waiting{Reason: ByRate, Text: reservedFor(f.breaker, j.Priority), reserved: true}
	case w == nil:
		w = &Waiting{Reason: Queued, Text: inLine, pace: Pace(f.breaker, f.now)}
		if w.pace != "" {
			w.Text = "in line; " + w.pace
		}
		w.brief = w.Text
		return w
	case missing != "":
		w.Text += "; but " + missing + ": start one with: tidegate worker"
	}
	return w
}

// byBreaker returns the explanation if the breaker is what holds the job longest.
func (f facts) byBreaker(j *jobs.Job) *Waiting {
	b := f.breaker
	due := dueAt(j)
	switch b.State {
	case breaker.Open:
		until := b.OpenUntilRedis
		// A job that the breaker has deferred comes at the first whole second after
		// the opening's end.
		if f.key == nil && !b.UntilReset && due.After(until) && !(deferredByBreaker(j) && due.Sub(until) <= time.Second) {
			return nil
		}
	case breaker.HalfOpen:
		if f.key == nil && due.After(f.now) && !deferredByBreaker(j) {
			return nil
		}
	}
	return f.describe(b, j.Destination)
}

// byKey returns the explanation of a job that waits for the breaker of its key.
func (f facts) byKey(j *jobs.Job) *Waiting {
	name, key := holder(j)
	w := f.describe(forCost(*f.key, j.Cost), name)
	switch {
	case w == nil:
		return &Waiting{Reason: Queued, Text: "waits for the earlier jobs of key " + key}
	case key != j.Key && !strings.Contains(w.Text, name):
		w.Text += "; KEY_BY makes it a job of key " + key
	}
	return w
}

// describe explains how the breaker called name holds a job; nil if it does not.
func (f facts) describe(b breaker.Status, name string) *Waiting {
	w := &Waiting{Breaker: name}
	if b.State != breaker.Closed && b.Cause == breaker.CauseCredentials {
		w.Reason, w.Text = Credentials, TokenRefused(b, f.now)
		if b.Reason != "" {
			w.Text += " (" + b.Reason + ")"
		}
		if b.State == breaker.HalfOpen {
			w.Text += "; the next call of " + name + " tries it"
			return w
		}
		w.Text += "; one call of " + name + " tries it"
		return w.ends(b.OpenUntilRedis, f.now)
	}
	switch b.State {
	case breaker.Open:
		w.Reason, w.Text = BreakerOpen, "rate limit reached"
		if b.IncidentCause == breaker.CauseOutage {
			w.Text = Cause(breaker.CauseOutage)
		}
		if b.Cause == breaker.CauseManual {
			w.Reason, w.Text = BreakerTripped, "opened by hand"+by(b)
		}
		if b.UntilReset {
			w.brief = w.Text + "; stays open until it is reset"
			w.Text += fmt.Sprintf("; jobs of %s wait until: tidegate breaker reset %s", name, name)
			return w
		}
		w.Text += "; " + name + " reopens"
		w.ends(b.OpenUntilRedis, f.now).Text += Asked("; the API ", b, f.now)
		if b.Learned != nil && b.Cause == breaker.CauseLearned {
			w.Text += "; learned limit: " + LearnedLimit(*b.Learned, f.now)
		}
		return w
	case breaker.HalfOpen:
		w.Reason = BreakerProbing
		w.Text = fmt.Sprintf("testing recovery of %s: the next call is the probe", name) + Asked("; the API ", b, f.now)
		if b.ProbeBy != "" && b.ProbeUntil.After(f.now) {
			w.Text = fmt.Sprintf("testing recovery of %s: one probe is under way", name)
		}
		return w
	}
	if f.key != nil && b.Name == f.key.Name && ConcurrencyHolds(b) {
		w.Reason, w.Text = ByConcurrency, InFlight(b)+"; it waits for a slot"
		return w
	}
	if f.key != nil && b.Name == f.key.Name && RateHolds(b, f.now) {
		w.Reason, w.Text = ByRate, NextByRate(b, f.now)
		return w
	}
	return nil
}

// byTime returns the explanation if the job's own time has not come.
func (f facts) byTime(j *jobs.Job) *Waiting {
	due := dueAt(j)
	if !due.After(f.now) {
		return nil
	}
	// A job that the breaker of its key has deferred waits like a job that the breaker holds.
	if b := f.deferring; b != nil && b.State == breaker.Open && (b.Cause == breaker.CauseCredentials || b.UntilReset || !due.After(b.OpenUntilRedis.Add(time.Second))) {
		return f.describe(*b, store.Reason(j.ReasonCode).About())
	}
	w := &Waiting{Reason: Rescheduled}
	switch code := store.Reason(j.ReasonCode).Code(); {
	case j.Status == jobs.RetryPending:
		w.Reason, w.Text = Retry, "retry"
		if most := maxRetries(j); most != "" {
			w.Text = fmt.Sprintf("retry %d of %s", j.Attempt, most)
		}
	case deferredByBreaker(j):
		w.Text = "deferred by the breaker, which has closed since: starts"
	case code == store.ReasonCredentials:
		w.Reason, w.Text = Credentials, j.Reason+": starts"
	case code == store.ReasonUnreachable && f.unreached != nil:
		w.Reason, w.Text = Unreachable, f.noConnection(j.Destination)+"; tries again"
	case code == store.ReasonUnreachable:
		w.Reason, w.Text = Unreachable, j.Reason+": starts"
	case code == store.ReasonRefusedAlone:
		w.Reason, w.Text = RefusedAlone, "the API refuses this job, not others: "+j.Reason+"; tries again"
	case j.Reason != "":
		w.Text = j.Reason + ": starts"
	case j.RescheduleCount > 0:
		w.Text = "deferred: starts"
	default:
		w.Reason, w.Text = Scheduled, "scheduled: starts"
	}
	return w.ends(due, f.now)
}

// ends adds to the text when the wait ends. The text before it is what Brief returns.
func (w *Waiting) ends(at, now time.Time) *Waiting {
	w.Until, w.brief = instant(at), w.Text+" in"
	w.Text += " " + inAt(at, now)
	return w
}

// maxRetries is the most retries of a job that waits for one, by its own policy or its destination's; "" if unknown.
func maxRetries(j *jobs.Job) string {
	if j.Retry != nil {
		return strconv.Itoa(j.Retry.MaxRetries)
	}
	r := store.Reason(j.ReasonCode)
	if f := strings.Fields(r.About()); r.Code() == store.ReasonRetry && len(f) == 3 {
		return f[1]
	}
	return ""
}

// noWorker returns a sentence if no worker serves the destination, else "".
func (f facts) noWorker(destination string) string {
	switch {
	case f.served:
		return ""
	case f.seen.IsZero():
		return "no worker has served " + destination + " yet"
	}
	return fmt.Sprintf("no worker has served %s for %s", destination, Duration(f.now.Sub(f.seen)))
}

// noConnection explains that no worker reaches the destination.
func (f facts) noConnection(destination string) string {
	return fmt.Sprintf("no worker reaches %s since %s: %s", destination, At(f.unreached.Since, f.now), f.unreached.Problem)
}

func dueAt(j *jobs.Job) time.Time {
	if j.Status == jobs.RetryPending && j.NextRetryAt != nil {
		return *j.NextRetryAt
	}
	return j.AvailableAt
}

// Held reports whether the job waits for the breaker of its key.
func Held(j *jobs.Job) bool {
	return store.Reason(j.ReasonCode).Code() == store.ReasonHeld
}

// inTurn reports whether the job's key takes turns with others.
func inTurn(j *jobs.Job) bool { return store.Reason(j.ReasonCode).Code() == store.ReasonTurn }

// deferredByBreaker reports whether the destination's breaker deferred the job.
func deferredByBreaker(j *jobs.Job) bool {
	return store.Reason(j.ReasonCode) == store.ReasonOf(store.ReasonBreakerOpen, j.Destination)
}

// holder returns the breaker of a key that holds or deferred a job, and that key: by KEY_BY not its own.
func holder(j *jobs.Job) (name, key string) {
	name = store.Reason(j.ReasonCode).About()
	return name, strings.TrimPrefix(name, j.Destination+"/")
}

// deferredByKey reports whether the breaker of a key of the job deferred it: its own key, or its key by KEY_BY.
func deferredByKey(j *jobs.Job) bool {
	r := store.Reason(j.ReasonCode)
	return r.Code() == store.ReasonBreakerOpen && strings.HasPrefix(r.About(), j.Destination+"/")
}

// by names the operator that opened the breaker, and the reason.
func by(b breaker.Status) string {
	out := ""
	if b.TrippedBy != "" {
		out += " by " + b.TrippedBy
	}
	if b.Reason != "" {
		out += " (" + b.Reason + ")"
	}
	return out
}

func instant(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}
