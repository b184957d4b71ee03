package alerts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tidegate/tidegate/alerts/internal/post"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
)

// Step is one step of [Alerts.Test].
type Step struct {
	// Of is the label of a notifier, such as "Slack"; What is what was tried.
	Of, What string
	// Problem is what is wrong and what to do, "" if it worked.
	Problem string
}

// Test checks the settings and sends one alert of each kind, marked as a test, in the order of
// real ones, and reports each step. Redis is not needed. The error has the number of failed steps.
func (a *Alerts) Test(ctx context.Context, report func(Step)) error {
	if report == nil {
		return errors.New("alerts: test: the function report is nil")
	}
	steps, failed := 0, 0
	try := func(to notice.Notifier, what string, f func() error) bool {
		err := f()
		if ctx.Err() != nil {
			return false
		}
		steps++
		if err != nil {
			failed++
		}
		report(Step{Of: to.Label(), What: what, Problem: post.Words(err)})
		return err == nil
	}
	for _, to := range a.o.Notifiers {
		if c, ok := to.(notice.Checker); ok && !try(to, "settings", func() error {
			for _, p := range c.Check(ctx) {
				if p.Fatal {
					return &notice.Error{Problem: p.Text}
				}
			}
			return nil
		}) {
			continue
		}
		var root notice.Root
		for i, s := range a.samples(to.Pager()) {
			editor, edits := to.(notice.Editor)
			if s.update && !edits {
				continue
			}
			worked := try(to, s.what, func() error {
				switch {
				case s.update:
					return editor.Update(ctx, s.notice, &root)
				case i > 0 && !s.notice.Kind.Reply():
					return to.Send(ctx, s.notice, &notice.Root{}) // another thread
				}
				return to.Send(ctx, s.notice, &root)
			})
			if i == 0 && !worked {
				break
			}
		}
	}
	if ctx.Err() == nil && failed > 0 {
		return fmt.Errorf("%d of %d steps failed", failed, steps)
	}
	return ctx.Err()
}

// sample is a notice for a test.
type sample struct {
	what   string
	notice *notice.Notice
	update bool // it updates the first one
}

// samples are notices of an invented incident, and one of each other kind.
func (a *Alerts) samples(pager bool) []sample {
	const d, because = "test-destination", "a test of Tidegate's alerts: nothing has happened"
	now, c := time.Now().Truncate(time.Second), a.composer
	id := "test-" + timeID(time.Now())
	open := situation{
		Now: now, Destination: d, Name: d, State: breaker.Open, Until: now.Add(5 * time.Minute), Backlog: 12, Expiring: 1,
		thread: thread{ID: id, Cause: breaker.CauseThreshold, By: a.o.Worker, Since: now, Keys: 1, counts: counts{Wasted: 3, Rescheduled: 3}},
		Answers: []refusal{{
			At: now, Destination: d, Job: "test-job", Status: http.StatusTooManyRequests,
			Body: "This is a test of Tidegate's alerts. Nothing has happened.",
		}},
	}
	over, keys := open, open
	over.State, over.Ended, over.Until, over.Expiring = breaker.Closed, now.Add(4*time.Minute), time.Time{}, -1
	keys.Name, keys.KeysOpen = d+allKeys, 1
	keys.Open = []keySituation{{breaker.Status{OpenedAt: now, OpenUntilRedis: open.Until, IncidentCause: open.Cause}, "test-key", 3}}
	page := c.compose(notice.Page, &open)
	list := []sample{
		{"message of an incident", c.compose(notice.Opened, &open), false},
		{"page", page, false},
		{"update of the message", c.compose(notice.Opened, &over), true},
		{"recovery", c.compose(notice.Recovered, &over), false},
		{"message about keys", c.compose(notice.Opened, &keys), false},
	}
	switch {
	case pager:
		page.Critical, page.Link, page.Summary = false, "", spans("Test of Tidegate's alerts: nothing has happened")
		list = []sample{{"trigger", page, false}, {"resolve", list[3].notice, false}}
	case a.o.OpenTooLong <= 0:
		list = slices.Delete(list, 1, 2)
	}
	kinds := []string{unreached, unservedJobs, flows, blockedKeys, redisLost, redisBack}
	if pager {
		kinds = nil
	}
	for _, kind := range kinds {
		problem := because
		if kind == flows {
			problem = "served"
		}
		n := (&single{
			Kind: kind, Destination: d, At: now, Since: now.Add(-2 * time.Hour), By: a.o.Worker, Problem: problem, Backlog: 12, Job: "test-job", Key: "test-key",
		}).compose(c)
		n.Kind, n.Attention = notice.Single, false // each in another thread
		list = append(list, sample{singles[kind].test, n, false})
	}
	for _, x := range list {
		x.notice.ID, x.notice.Dedup = id, cmp.Or(x.notice.Dedup, id)
	}
	return list
}
