package alerts

import (
	"context"
	"fmt"

	"github.com/tidegate/tidegate/jobs"
)

// notice is one thing to tell; exactly one of the first fields is set.
type notice struct {
	Burst       *burst       `json:"burst,omitempty"`
	Poison      *poisoned    `json:"poison,omitempty"`
	Overdue     *overdue     `json:"overdue,omitempty"`
	Unreached   *unreached   `json:"unreached,omitempty"`
	Unserved    *unserved    `json:"unserved,omitempty"`
	Undelivered *undelivered `json:"undelivered,omitempty"`
	// Trouble is the id of the trouble that one of them is told of who can be reached; it
	// may be over by then.
	Trouble string `json:"trouble,omitempty"`
}

// write is the message; nil if the notice says nothing.
func (n *notice) write(w writer) *message {
	var m message
	switch {
	case n.Burst != nil:
		m = w.failedBurst(*n.Burst)
	case n.Poison != nil:
		m = w.poisonJob(*n.Poison)
	case n.Overdue != nil:
		m = w.oldestPending(*n.Overdue)
	case n.Unreached != nil:
		m = w.unreachedDestination(*n.Unreached)
	case n.Unserved != nil:
		m = w.unservedDestination(*n.Unserved)
	case n.Undelivered != nil:
		m = w.undeliveredAlerts(*n.Undelivered)
	default:
		return nil
	}
	return &m
}

// about names what the notice is about, for PagerDuty.
func (n *notice) about() (source, class string) {
	switch {
	case n.Burst != nil:
		return n.Burst.Destination, "failed jobs"
	case n.Poison != nil:
		return n.Poison.Destination, "poison job"
	case n.Overdue != nil:
		return n.Overdue.Destination, "old pending job"
	case n.Unreached != nil:
		return n.Unreached.Destination, "unreachable destination"
	case n.Unserved != nil:
		return n.Unserved.Destination, "destination without workers"
	}
	return "alerts", "undelivered alerts"
}

// deliverNotice tells one thing, once.
func (a *Alerts) deliverNotice(ctx context.Context, job *jobs.Job, n *notice) error {
	m := n.write(a.write)
	if m == nil {
		return jobs.Discard(fmt.Errorf("alerts: job %s has nothing to tell", job.ID))
	}
	if a.tooOld(ctx, job) {
		return jobs.Discard(fmt.Errorf("alerts: nobody delivered it within %s", giveUpAfter))
	}
	if job.Key == toPager {
		return a.pageNotice(ctx, job, n, m)
	}
	if n.Trouble != "" {
		now, _, err := load[trouble](ctx, a.store, troubleKey(toPager))
		if err != nil || now.Told != n.Trouble {
			return err // it is over
		}
	}
	turn, err := a.store.lock(ctx, key("lock", "notice", job.ID), job.ID)
	if err != nil {
		return err
	}
	defer turn.unlock(ctx)
	t := &teller{a: a, turn: turn, name: key("said", job.ID)}
	if err := t.load(ctx); err != nil {
		return err
	}
	if t.said.Posted {
		return nil
	}
	if err := t.post(ctx, post{message: *m, ID: job.ID}, *m); err != nil {
		return err
	}
	t.said.Posted = true
	return t.save(ctx)
}

// pageNotice tells PagerDuty of one thing. Of trouble with Slack it tells what is true when
// it gets there.
func (a *Alerts) pageNotice(ctx context.Context, job *jobs.Job, n *notice, m *message) error {
	dedup := job.ID
	if n.Trouble != "" {
		dedup = n.Trouble
		now, _, err := load[trouble](ctx, a.store, troubleKey(toSlack))
		if err != nil {
			return err
		}
		if now.Told != dedup {
			return a.pager.resolve(ctx, dedup)
		}
	}
	source, class := n.about()
	err := a.pager.trigger(ctx, dedup, pagerPayload{
		Summary: cutSummary(plain(m.Text)), Source: "tidegate/" + source, Severity: severityWarning, Group: "tidegate", Class: class,
	}, job.CreatedAt, "")
	if err == nil {
		a.heard(ctx, toPager)
	}
	return err
}

// noticeTrigger is the job that tells of it, in Slack if there is one.
func (a *Alerts) noticeTrigger(id string, n *notice) trigger {
	to := toSlack
	if !a.o.slack() {
		to = toPager
	}
	return trigger{id: id, key: to, job: alertJob{Kind: kindNotice, Notice: n}}
}
