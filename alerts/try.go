package alerts

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Step is one of the things that [Alerts.Test] tries.
type Step struct {
	// Of is "Slack", "Slack webhook" or "PagerDuty"; What is what was tried.
	Of, What string
	// Problem is what is wrong and what to do, "" if it worked.
	Problem string
}

// Test sends one alert of each kind, marked as a test, in the order in which people
// would get them, and reports each step. Redis is not needed. The error says how many
// steps failed.
func (a *Alerts) Test(ctx context.Context, report func(Step)) error {
	t := &test{a: a, ctx: ctx, report: report, id: "test-" + timeID(time.Now())}
	t.bot()
	t.webhook()
	t.pagerDuty()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if t.failed > 0 {
		return fmt.Errorf("%d of %d steps failed", t.failed, t.steps)
	}
	return nil
}

type test struct {
	a             *Alerts
	ctx           context.Context //nolint:containedctx // it lives as long as one call
	report        func(Step)
	id            string
	steps, failed int
}

// try makes one step and says whether it worked.
func (t *test) try(of, what string, f func() error) bool {
	if t.ctx.Err() != nil {
		return false
	}
	t.steps++
	s := Step{Of: of, What: what}
	if err := f(); err != nil {
		t.failed++
		s.Problem = inWords(err)
	}
	t.report(s)
	return s.Problem == ""
}

// example is an incident that nobody has had.
func (t *test) example() situation {
	now := time.Now().Truncate(time.Second)
	return situation{
		Now: now, Destination: "test-destination", Name: "test-destination", Case: t.id, Incident: t.id,
		State: breaker.Open, Cause: breaker.CauseThreshold, By: t.a.o.Worker,
		Answers: []Answer{{
			At: now, Destination: "test-destination", Job: "test-job", Status: http.StatusTooManyRequests,
			Body: "This is a test of Tidegate's alerts. Nothing has happened.",
		}},
		Since: now, Until: now.Add(5 * time.Minute), Openings: 1, Wasted: 3, Rescheduled: 3, Backlog: 12, Expiring: 1,
	}
}

// notices are one of each other kind.
func (t *test) notices() []struct {
	what string
	m    message
} {
	w, now := t.a.write, time.Now().Truncate(time.Second)
	const d, because = "test-destination", "a test of Tidegate's alerts: nothing has happened"
	return []struct {
		what string
		m    message
	}{
		{"burst of failed jobs", w.failedBurst(burst{Destination: d, Failed: 50, Within: 5 * time.Minute, At: now, LastError: because, LastJob: "test-job"})},
		{"poison job", w.poisonJob(poisoned{Destination: d, Job: "test-job", Crashes: 3, LastError: because, At: now})},
		{"old pending job", w.oldestPending(overdue{Destination: d, Since: now.Add(-2 * time.Hour), Bound: time.Hour, At: now, Backlog: 12, WorkersSeen: now})},
		{"Redis unreachable", w.redisLost(outage{Worker: t.a.o.Worker, Since: now.Add(-lostAfter), Problem: because})},
		{"Redis back", w.redisBack(outage{Worker: t.a.o.Worker, Since: now.Add(-time.Minute), Back: now, Problem: because})},
		{"undelivered alerts", w.undeliveredAlerts(undelivered{Count: 2, Since: now.Add(-giveUpAfter), Problem: because, Through: "Slack"})},
	}
}

// over is the example when it has ended.
func over(s situation) situation {
	s.State, s.Ended, s.Until, s.Expiring = breaker.Closed, s.Since.Add(4*time.Minute), time.Time{}, -1
	return s
}

func (t *test) bot() {
	b, w := t.a.bot, t.a.write
	if b == nil {
		return
	}
	s := t.example()
	if !t.try("Slack", "the bot token", func() error {
		ctx, cancel := context.WithTimeout(t.ctx, slackTimeout)
		defer cancel()
		_, err := b.api.AuthTestContext(ctx)
		if mayNot(err) {
			return nil // the next step will tell
		}
		return err
	}) {
		return
	}
	var at place
	if !t.try("Slack", "message of an incident", func() (err error) {
		at, err = b.send(t.ctx, post{message: w.incident(s), ID: t.id})
		return err
	}) {
		return
	}
	reply := func(what string, m message, page bool) {
		t.try("Slack", what, func() error {
			_, err := b.send(t.ctx, post{message: m, ID: t.id, Thread: at, Broadcast: page, Names: page})
			return err
		})
	}
	if t.a.o.OpenTooLong > 0 {
		reply("page, a reply that mentions on-call", w.page(s, t.a.o.OpenTooLong), true)
	}
	t.try("Slack", "update of the message", func() error { return b.update(t.ctx, at, w.incident(over(s))) })
	reply("recovery, a reply", w.recovery(over(s)), false)
	keys := s
	keys.Name, keys.KeysOpen, keys.KeysSeen = s.Destination+allKeys, 1, 1
	keys.Keys = []keySituation{{Key: "test-key", Since: s.Since, Until: s.Until, Cause: s.Cause, Held: 3}}
	keys.Backlog = 12
	t.try("Slack", "message about keys", func() error {
		_, err := b.send(t.ctx, post{message: w.incident(keys), ID: t.id})
		return err
	})
	for _, n := range t.notices() {
		t.try("Slack", n.what, func() error {
			_, err := b.send(t.ctx, post{message: n.m, ID: t.id})
			return err
		})
	}
}

func (t *test) webhook() {
	h, w := t.a.hook, t.a.write
	if h == nil {
		return
	}
	s := t.example()
	steps := []struct {
		what string
		m    message
	}{
		{"message of an incident", w.shortOpened(s)},
		{"page", w.shortPage(s, max(0, t.a.o.OpenTooLong))},
		{"recovery", w.shortRecovery(over(s))},
	}
	if t.a.bot == nil {
		steps = append(steps, t.notices()...)
	}
	for _, step := range steps {
		if !t.try("Slack webhook", step.what, func() error { return h.send(t.ctx, step.m) }) {
			return
		}
	}
}

func (t *test) pagerDuty() {
	p := t.a.pager
	if p == nil {
		return
	}
	s := t.example()
	if t.try("PagerDuty", "trigger", func() error {
		return p.trigger(t.ctx, t.id, pagerPayload{
			Summary: "Test of Tidegate's alerts: nothing has happened", Source: "tidegate/" + s.Destination, Severity: severityWarning,
			Component: s.Destination, Group: "tidegate", Class: "circuit breaker open", Details: t.a.write.pagerDetails(s),
		}, s.Since, "")
	}) {
		t.try("PagerDuty", "resolve", func() error { return p.resolve(t.ctx, t.id) })
	}
}
