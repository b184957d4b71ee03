package publisher

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// undecidedFor is how long a failed job waits for the next call of its destination, in addition to the duration of
// its own call and the distance of two calls at the destination's rate.
const undecidedFor = 2 * time.Second

// longestApart bounds that distance: a job of a destination with few calls a day fails, and is
// shown as failed, within about a minute.
const longestApart = 30 * time.Second

// maxUndecided bounds the jobs of a destination whose outcome waits in this process.
const maxUndecided = 200

// defaultOutage bounds the reschedules of a job because of outages, if max_reschedules is not set.
const defaultOutage = 100

// undecided is a failed call that may be a part of an outage, or shortly before one, which opens
// the breaker. Its job must not fail then; if it is a part, it must not lose a retry either.
type undecided struct {
	job    *jobs.Job
	counts []counted // of the breakers that the call may count for, the key's first
	until  time.Time
	quiet  time.Duration // without a further call the streaks are over

	cancelled <-chan struct{} // closed when the job is cancelled
}

// counted is a breaker and how many calls its streak has, if the job's is one of them.
type counted struct {
	*breaker.Breaker
	calls int
}

// undecided returns the call if it may turn out to be a part of an outage, or shortly before one. If
// it has, it changes the outcome.
func (d *decider) undecided(job *jobs.Job, key string, o *store.Outcome, event *JobEvent) *undecided {
	if !event.outage || o.Kind != store.KindFail && o.Kind != store.KindRetry {
		return nil
	}
	s := &undecided{job: job, quiet: undecidedFor + event.Took + 2*apart(d.s.breaker.Rate, d.s.breaker.KeyRate)}
	if key != "" {
		s.counts = append(s.counts, counted{Breaker: d.breaker.Key(key)})
	}
	s.counts = append(s.counts, counted{Breaker: d.breaker})
	s.until = time.Now().Add(s.quiet)
	inStreak, alone := false, true
	for i := range s.counts {
		c := &s.counts[i]
		v := c.View()
		recovers := v.State != breaker.Closed || v.RecoversFromOutage
		if outageHolds(&v) || v.OutageID > event.generation || recovers && o.Kind == store.KindFail {
			// It was in flight when the breaker opened, which may have closed again. A limit may turn
			// into an outage, which the probes meet, and an API that recovers refuses some calls.
			*o = d.afterOutage(s, &v, *o, event)
			return nil
		}
		if v.InStreak(job.ID) {
			c.calls, inStreak = v.Streak, true
			alone = alone && v.Streak == 1
		}
	}
	if !inStreak && o.Kind == store.KindRetry {
		return nil
	}
	if o.Kind == store.KindRetry && alone && o.At.Before(s.until) {
		s.until = o.At // it is due then, unless other jobs fail meanwhile
	}
	return s
}

// apart is how far apart the calls of a destination, or of a key of it, are by the declared limits
// that space them.
func apart(limits ...breaker.Rates) (apart time.Duration) {
	for _, r := range slices.Concat(limits...) {
		if r.Zone == "" {
			apart = max(apart, min(r.Per/time.Duration(r.Calls), longestApart))
		}
	}
	return apart
}

func outageHolds(v *breaker.View) bool {
	return v.State != breaker.Closed && v.IncidentCause == breaker.CauseOutage
}

// await waits until it is known whether the call was a part of an outage, and returns the outcome
// of its job. It waits neither for a slot nor for Redis: the breaker's messages bring each call of
// the fleet that counts, and each success.
func (d *decider) await(s *undecided, o store.Outcome, event *JobEvent) store.Outcome {
	for {
		// That of a key is closed by the changes of the destination's breaker, too. Before the
		// views, so that no change is missed.
		changed := s.counts[0].Changed()
		inStreak := false
		for i := range s.counts {
			c := &s.counts[i]
			v := c.View()
			switch {
			case outageHolds(&v), v.OutageID > event.generation: // it has closed again
				return d.afterOutage(s, &v, o, event)
			case !v.InStreak(s.job.ID): // the API has accepted a later call
				continue
			case v.Streak > c.calls:
				s.until = time.Now().Add(s.quiet)
			}
			c.calls = v.Streak // fewer if it has accepted one after some of them
			inStreak = true
		}
		// A limiter that answers 503 accepts a call between refusals.
		if !inStreak && o.Kind == store.KindRetry {
			return o
		}
		rest := time.Until(s.until)
		if rest <= 0 {
			return o
		}
		select {
		case <-time.After(rest):
		case <-changed:
		case <-s.cancelled:
			event.Result = Cancelled
			return store.Outcome{Kind: store.KindCancel, Error: ErrCancelled.Error(), Response: o.Response}
		case <-d.serving.Done():
			if !inStreak {
				return o
			}
			event.Result = Requeued
			return store.Outcome{Kind: store.KindRequeue}
		}
	}
}

// afterOutage is the outcome of a job whose call was a part of an outage.
func (d *decider) afterOutage(s *undecided, v *breaker.View, failed store.Outcome, event *JobEvent) store.Outcome {
	o := store.Outcome{
		Kind: store.KindReschedule, At: later(time.Now(), v.OpenUntil), Reason: deferredBy(v.Name), Limit: s.job.MaxReschedules,
		Error: failed.Error, Response: failed.Response, Refusals: failed.Refusals,
	}
	if o.Limit == nil {
		o.Limit, o.CountedBy = new(defaultOutage), store.FieldOutage
	}
	switch cooldown := cmp.Or(d.s.breaker.Cooldown, breaker.DefaultCooldown); {
	case v.RecoversFromOutage && v.OutageID <= event.generation:
		o.At, o.Reason = time.Now().Add(cooldown), store.ReasonOf(store.ReasonRecovering, v.Name)
	case event.probe: // another job probes next
		o.At = o.At.Add(min(cooldown, unknownPause))
	}
	event.Result, event.Reason, event.Exhausted, event.AvailableAt = Rescheduled, ReasonOutage, false, o.At
	if v.State != breaker.Closed {
		d.countDeferred(v.Name, v.Incident, event)
	}
	return o
}
