package alerts

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// undeliveredAfter is how long one who is told cannot be reached before the other one
// is told of that.
const undeliveredAfter = 5 * time.Minute

// trouble is what keeps alerts from being delivered.
type trouble struct {
	Since time.Time `json:"since"`
	// Problem is in words.
	Problem string `json:"problem"`
	// GivenUp counts alerts that are not tried any more.
	GivenUp int `json:"given_up,omitempty"`
	// Told is the id under which those were told who can be reached.
	Told string `json:"told,omitempty"`
}

func troubleKey(to string) string { return key("trouble", to) }

// nameOf is what people call it.
func nameOf(to string) string {
	if to == toPager {
		return "PagerDuty"
	}
	return "Slack"
}

// complain logs what somebody has to mend.
func (a *Alerts) complain(ctx context.Context, to string, err error) {
	problem := inWords(err)
	if a.logOnce(to + problem) {
		a.log.ErrorContext(ctx, "alerts cannot be delivered", "to", nameOf(to), "problem", problem)
	}
}

// heard notes that somebody could be told something, which ends a trouble. It costs one
// read where there is none. Its own errors are logged: what was told is told.
func (a *Alerts) heard(ctx context.Context, to string) {
	if err := a.relieved(ctx, to); err != nil {
		a.notKept(ctx, err)
	}
}

func (a *Alerts) notKept(ctx context.Context, err error) {
	if a.logOnce("kept") {
		a.log.WarnContext(ctx, "the state of alerting could not be kept", "error", err)
	}
}

// troubled notes that somebody could not be told, has others told if that lasts, and
// says when to try again: after half of the time that it has lasted, for this job or at
// all, from a second to a minute.
func (a *Alerts) troubled(ctx context.Context, job *jobs.Job, cause error) (pause time.Duration) {
	to := job.Key
	_, isLimited := limited(cause)
	switch {
	case needsAPerson(cause):
		a.complain(ctx, to, cause)
	case !isLimited && a.logOnce(to+" passing"):
		a.log.WarnContext(ctx, "an alert could not be delivered yet; it is tried again", "to", nameOf(to), "problem", inWords(cause))
	}
	pause, err := a.noteTrouble(ctx, job, cause)
	if err != nil {
		a.notKept(ctx, err)
	}
	return pause
}

func (a *Alerts) noteTrouble(ctx context.Context, job *jobs.Job, cause error) (time.Duration, error) {
	to := job.Key
	now, err := a.now(ctx)
	if err != nil {
		return time.Second, fmt.Errorf("alerts: %w", err)
	}
	t, err := change(ctx, a.store, troubleKey(to), func(t *trouble) (bool, error) {
		was := *t
		if t.Since.IsZero() {
			t.Since = now
		}
		t.Problem = inWords(cause)
		other := a.pager != nil && to == toSlack || a.o.slack() && to == toPager
		// That nobody can be paged is worth knowing at once.
		if other && t.Told == "" && (now.Sub(t.Since) >= undeliveredAfter || to == toPager && needsAPerson(cause)) {
			t.Told = "tidegate-alerts-" + to + "-" + timeID(t.Since)
		}
		return *t != was, nil
	})
	if err != nil {
		return time.Second, err
	}
	// A page is enqueued long before its first try.
	own := min(now.Sub(job.CreatedAt)/2, time.Duration(job.RescheduleCount)*2*time.Second)
	pause := min(max(now.Sub(t.Since)/2, own, time.Second), time.Minute)
	if t.Told == "" {
		return pause, nil
	}
	return pause, a.send(ctx, []trigger{troubleTrigger(to, t.Told, "", t)})
}

// troubleTrigger is the job that tells PagerDuty that Slack cannot be told, or, when that
// is over, that it can again; or Slack that PagerDuty cannot.
func troubleTrigger(to, id, suffix string, t *trouble) trigger {
	other := toPager
	if to == toPager {
		other = toSlack
	}
	return trigger{id: id + suffix, key: other, job: alertJob{Kind: kindNotice, Notice: &notice{
		Undelivered: &undelivered{Count: t.GivenUp, Since: t.Since, Problem: t.Problem, Through: nameOf(to)}, Trouble: id,
	}}}
}

// relieved ends a trouble.
func (a *Alerts) relieved(ctx context.Context, to string) error {
	var over trouble
	_, err := change(ctx, a.store, troubleKey(to), func(t *trouble) (bool, error) {
		over = *t
		*t = trouble{}
		return over != trouble{}, nil
	})
	if err != nil || over.Since.IsZero() {
		return err
	}
	a.mu.Lock()
	clear(a.logged)
	a.mu.Unlock()
	a.log.InfoContext(ctx, "alerts are delivered again", "to", nameOf(to), "since", over.Since)
	var list []trigger
	if over.Told != "" && to == toSlack {
		list = append(list, troubleTrigger(to, over.Told, ".over", &over))
	}
	if over.GivenUp > 0 {
		list = append(list, a.noticeTrigger(fmt.Sprintf("undelivered.%s.%s", to, timeID(over.Since)), &notice{
			Undelivered: &undelivered{Count: over.GivenUp, Since: over.Since, Problem: over.Problem, Through: nameOf(to)},
		}))
	}
	return a.send(ctx, list)
}

// noteUndelivered counts an alert that is given up.
func (a *Alerts) noteUndelivered(ctx context.Context, job *jobs.Job, cause error) {
	a.log.ErrorContext(ctx, "an alert is given up", "job", job.ID, "to", nameOf(job.Key), "problem", inWords(cause))
	_, err := change(ctx, a.store, troubleKey(job.Key), func(t *trouble) (bool, error) {
		t.GivenUp++
		return true, nil
	})
	if err != nil {
		a.notKept(ctx, err)
	}
}
