package alerts

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/jobs"
)

// undeliveredAfter is how long a notifier fails before other notifiers report it.
const undeliveredAfter = 5 * time.Minute

// failure is a time in which a notifier cannot deliver.
type failure struct {
	Since time.Time `json:"since"`
	// Problem describes it.
	Problem string `json:"problem"`
	// GivenUp counts alerts that are not tried any more.
	GivenUp int `json:"given_up,omitempty"`
	// Notified is the id of the notice that reports it through other notifiers.
	Notified string `json:"notified,omitempty"`
}

func (s stateStore) failureKey(notifier string) string { return s.key("failure", notifier) }

// logPermanent logs an error that an operator has to correct.
func (a *Alerts) logPermanent(ctx context.Context, notifier string, e *notice.Error) {
	if label := a.o.label(notifier); a.logged.Allow(label + e.Problem) {
		a.log.ErrorContext(ctx, "alerts cannot be delivered", "to", label, "problem", e.Problem)
	}
}

func (a *Alerts) logState(ctx context.Context, err error) {
	if a.logged.Allow("state") {
		a.log.WarnContext(ctx, "the state of alerting could not be kept", "error", err)
	}
}

// others returns the notifiers that report the failure of one: pagers for a notifier of the
// other kind, and the other way round.
func (a *Alerts) others(notifier string) []string {
	return a.o.names(!a.o.notifier(notifier).Pager())
}

// undelivered records a failure, has other notifiers report it if it lasts, and returns when
// to try again: after half of the time that it has lasted, for this job or at all, from a
// second to a minute.
func (a *Alerts) undelivered(ctx context.Context, job *jobs.Job, e *notice.Error) (pause time.Duration) {
	switch {
	case e.Permanent:
		a.logPermanent(ctx, job.Key, e)
	case !e.Limited && a.logged.Allow(job.Key+" passing"):
		a.log.WarnContext(ctx, "an alert could not be delivered yet; it is tried again", "to", a.o.label(job.Key), "problem", e.Problem)
	}
	pause, err := a.noteFailure(ctx, job, e)
	if err != nil {
		a.logState(ctx, err)
	}
	return pause
}

func (a *Alerts) noteFailure(ctx context.Context, job *jobs.Job, e *notice.Error) (time.Duration, error) {
	now, err := a.now(ctx)
	if err != nil {
		return time.Second, fmt.Errorf("alerts: %w", err)
	}
	others := a.others(job.Key)
	// That on-call cannot be paged is reported at once.
	urgent := e.Permanent && a.o.notifier(job.Key).Pager()
	f, err := change(ctx, a.store, a.store.failureKey(job.Key), func(f *failure) (bool, error) {
		was := *f
		if f.Since.IsZero() {
			f.Since = now
		}
		f.Problem = e.Problem
		if len(others) > 0 && f.Notified == "" && (now.Sub(f.Since) >= undeliveredAfter || urgent) {
			f.Notified = "tidegate-alerts-" + job.Key + "-" + timeID(f.Since)
		}
		return *f != was, nil
	})
	if err != nil {
		return time.Second, err
	}
	// A page is enqueued long before its first try.
	own := min(now.Sub(job.CreatedAt)/2, time.Duration(job.RescheduleCount)*2*time.Second)
	pause := min(max(now.Sub(f.Since)/2, own, time.Second), time.Minute)
	if f.Notified == "" {
		return pause, nil
	}
	var list []trigger
	for _, other := range others {
		list = append(list, a.failureTrigger(job.Key, other, "", f))
	}
	return pause, a.send(ctx, list)
}

// failureTrigger is the job that reports the failure of a notifier through another one; to
// a pager also when it is over.
func (a *Alerts) failureTrigger(notifier, through, suffix string, f *failure) trigger {
	t := a.singleTrigger(f.Notified, through, singleJob{
		ID: f.Notified, Of: notifier,
		Undelivered: &undelivered{Count: f.GivenUp, Since: f.Since, Problem: f.Problem, Through: a.o.label(notifier)},
	})
	t.id += suffix
	return t
}

// delivered records a delivery of a notifier, which ends a failure. It costs
// one read if there is none. Its errors are logged: the notice is delivered.
func (a *Alerts) delivered(ctx context.Context, notifier string) {
	if err := a.endFailure(ctx, notifier); err != nil {
		a.logState(ctx, err)
	}
}

func (a *Alerts) endFailure(ctx context.Context, notifier string) error {
	var over failure
	_, err := change(ctx, a.store, a.store.failureKey(notifier), func(f *failure) (bool, error) {
		over = *f
		*f = failure{}
		return over != failure{}, nil
	})
	if err != nil || over.Since.IsZero() {
		return err
	}
	a.logged.Reset()
	a.log.InfoContext(ctx, "alerts are delivered again", "to", a.o.label(notifier), "since", over.Since)
	var list []trigger
	for _, other := range a.others(notifier) {
		if over.Notified != "" && a.o.notifier(other).Pager() {
			list = append(list, a.failureTrigger(notifier, other, ".over", &over))
		}
	}
	if over.GivenUp > 0 {
		list = append(list, a.singleTriggers(fmt.Sprintf("undelivered.%s.%s", notifier, timeID(over.Since)), singleJob{
			Undelivered: &undelivered{Count: over.GivenUp, Since: over.Since, Problem: over.Problem, Through: a.o.label(notifier)},
		})...)
	}
	return a.send(ctx, list)
}

// giveUp counts an alert that is not tried any more, and records its notices as done, so that
// they do not block later ones.
func (a *Alerts) giveUp(ctx context.Context, job *jobs.Job, what alertJob, e *notice.Error) {
	a.log.ErrorContext(ctx, "an alert is given up", "job", job.ID, "to", a.o.label(job.Key), "problem", e.Problem)
	_, err := change(ctx, a.store, a.store.failureKey(job.Key), func(f *failure) (bool, error) {
		f.GivenUp++
		return true, nil
	})
	_, _, ofKeys := keysOf(what.Subject)
	if err == nil && what.Kind == kindIncident && !ofKeys {
		var now time.Time
		if now, err = a.now(ctx); err == nil {
			_, err = change(ctx, a.store, a.store.key("subject", what.Subject), func(s *subject) (bool, error) {
				return s.giveUp(now.Add(-giveUpAfter), job.Key), nil
			})
		}
	}
	if err != nil {
		a.logState(ctx, err)
	}
}
