package alerts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Step is one step of [Alerts.Test].
type Step struct {
	// Of is the label of a notifier, such as "Slack"; What is what was tried.
	Of, What string
	// Problem is what is wrong and what to do, "" if it worked.
	Problem string
}

// Test sends one alert of each kind, marked as a test, in the order of real ones, and
// reports each step. Redis is not needed. The error has the number of failed steps.
func (a *Alerts) Test(ctx context.Context, report func(Step)) error {
	if report == nil {
		return errors.New("alerts: test: the function report is nil")
	}
	steps, failed := 0, 0
	try := func(of, what string, f func() error) bool {
		if ctx.Err() != nil {
			return false
		}
		steps++
		s := Step{Of: of, What: what}
		if err := f(); err != nil {
			failed++
			s.Problem = notice.Words(err)
		}
		report(s)
		return s.Problem == ""
	}
	for _, to := range a.o.Notifiers {
		samples := a.samples(to.Pager())
		if t, ok := to.(notice.Tester); ok {
			t.Test(ctx, samples, try)
		} else {
			notice.Test(ctx, to.Label(), samples, try, to)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d steps failed", failed, steps)
	}
	return nil
}

// samples are notices of an invented incident, and one of each other kind.
func (a *Alerts) samples(pager bool) []notice.Sample {
	const d, because = "test-destination", "a test of Tidegate's alerts: nothing has happened"
	now, c := time.Now().Truncate(time.Second), a.composer
	id := "test-" + timeID(time.Now())
	open := situation{
		Now: now, Destination: d, Name: d, Thread: id, Incident: id,
		State: breaker.Open, Cause: breaker.CauseThreshold, By: a.o.Worker,
		Answers: []refusal{{
			At: now, Destination: d, Job: "test-job", Status: http.StatusTooManyRequests,
			Body: "This is a test of Tidegate's alerts. Nothing has happened.",
		}},
		Since: now, Until: now.Add(5 * time.Minute), Openings: 1, Wasted: 3, Rescheduled: 3, Backlog: 12, Expiring: 1,
	}
	over := open
	over.State, over.Ended, over.Until, over.Expiring = breaker.Closed, now.Add(4*time.Minute), time.Time{}, -1
	page := c.page(open, max(0, a.o.OpenTooLong))
	var out []notice.Sample
	add := func(what string, n *notice.Notice, update bool) {
		n.ID = id
		if n.Dedup == "" {
			n.Dedup = id
		}
		out = append(out, notice.Sample{What: what, Notice: n, Update: update})
	}
	if pager {
		page.Severity, page.Link = notice.Warning, ""
		page.Summary = plain("Test of Tidegate's alerts: nothing has happened")
		add("trigger", page, false)
		add("resolve", c.recovered(over), false)
		return out
	}
	add("message of an incident", c.opened(open), false)
	if a.o.OpenTooLong > 0 {
		add("page", page, false)
	}
	add("update of the message", c.opened(over), true)
	add("recovery", c.recovered(over), false)
	keys := open
	keys.Name, keys.KeysOpen, keys.KeysSeen = d+allKeys, 1, 1
	keys.Keys = []keySituation{{Key: "test-key", Since: now, Until: open.Until, Cause: open.Cause, Held: 3}}
	add("message about keys", c.opened(keys), false)
	worker := a.o.Worker
	for _, s := range []struct {
		what string
		r    report
	}{
		{"burst of failed jobs", &burst{Destination: d, Failed: 50, Within: 5 * time.Minute, At: now, LastError: because, LastJob: "test-job"}},
		{"poison job", &poisoned{Destination: d, Job: "test-job", Crashes: 3, LastError: because, At: now}},
		{"jobs refused alone", &refusedAlone{d, now, jobs.RefusedAlone{Jobs: 2, Refusals: 7, Since: now.Add(-time.Minute), Job: "test-job", Text: because}}},
		{"old pending job", &overdue{Destination: d, Since: now.Add(-2 * time.Hour), Bound: time.Hour, At: now, Backlog: 12, WorkersSeen: now}},
		{"unreachable destination", &unreached{Destination: d, Since: now.Add(-time.Minute), At: now, Problem: because, Workers: 1}},
		{"destination without workers", &unserved{Destination: d, Since: now.Add(-unservedAfter), At: now, Backlog: 3}},
		{"Redis unreachable", &redisOutage{Worker: worker, Since: now.Add(-lostAfter), Problem: because}},
		{"Redis back", &redisOutage{Worker: worker, Since: now.Add(-time.Minute), Back: now, Problem: because}},
		{"Redis drops keys", &eviction{Since: now, At: now, Policy: "allkeys-lru", Total: 12}},
		{"undelivered alerts", &undelivered{Count: 2, Since: now.Add(-giveUpAfter), Problem: because, Through: "Slack"}},
	} {
		n := s.r.compose(c)
		if n.Kind == notice.Resolved {
			n.Kind = notice.Single // in a thread of its own
		}
		n.Attention = false
		add(s.what, n, false)
	}
	return out
}
