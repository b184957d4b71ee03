package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakehttp"
	"github.com/tidegate/tidegate/internal/fakepager"
	"github.com/tidegate/tidegate/internal/fakeslack"
	"github.com/tidegate/tidegate/jobs"
)

// post is the method that a message comes by.
const post = "chat.postMessage"

// pageLate is how late PagerDuty may be told whatever goes wrong with Slack.
const pageLate = 15 * time.Second

// Slack is in trouble while a breaker opens, pages and closes: afterwards it is told of
// all of it, in order, and of nothing twice. PagerDuty is told in time.
func alertsWhileSlackIsInTrouble(t *testing.T) {
	short, limited := 5*time.Second, 5*time.Second
	if long {
		short, limited = time.Minute, 30*time.Second
	}
	fault := func(f fakehttp.Fault) func(*alerting) func() {
		return func(a *alerting) func() { return a.slack.SetFault(f) }
	}
	type row struct {
		name  string
		lasts time.Duration // longer than all of the incident
		begin func(*alerting) (end func())
		lost  int // posts whose answer is lost
	}
	rows := []row{
		{"429 with Retry-After", limited, fault(fakehttp.RateLimited(3 * time.Second).During(limited)), 0},
		{"503 after having acted", 0, fault(fakehttp.WithStatus(http.StatusServiceUnavailable).AfterActing().On(post).Times(3)), 3},
		{"cut after having acted, then refuses", 2 * short, func(a *alerting) func() {
			a.slack.SetFault(fakehttp.Dropping().AfterActing().On(post).Times(1))
			down := make(chan func(), 1)
			go func() {
				defer close(down)
				if a.slack.AwaitRequests(within(a.t, 20*time.Second), func(all []fakehttp.Request) bool {
					return slices.ContainsFunc(all, func(r fakehttp.Request) bool { return r.Fault != "" && !r.Done.IsZero() })
				}) == nil {
					down <- a.slackDown()
				}
			}()
			return func() {
				if up := <-down; up != nil {
					up()
				}
			}
		}, 1},
	}
	if long {
		// TestFaultsAtEachStep of alerts has all kinds without waiting.
		rows = append(rows,
			row{"429 without Retry-After", limited, fault(fakehttp.RateLimitedBare().During(limited)), 0},
			row{"ok false ratelimited", limited, fault(fakehttp.WithError("ratelimited").During(limited)), 0},
			row{"503", short, fault(fakehttp.WithStatus(http.StatusServiceUnavailable)), 0},
			row{"cut after having acted", 0, fault(fakehttp.Dropping().AfterActing().On(post).Times(3)), 3},
			row{"hangs after having acted", 0, fault(fakehttp.Hanging().AfterActing().On(post).Times(3)), 3},
			row{"connection refused", short, (*alerting).slackDown, 0},
		)
	}
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
			a.set(map[string]string{"ALERT_OPEN_TOO_LONG": "2s"})
			a.startWorkers(2)
			began := time.Now()
			end := c.begin(a)
			a.limit(40)
			a.awaitPager(2*time.Second+pageLate+5*time.Second, 1)
			a.heal()
			a.awaitState(breaker.Closed, 20*time.Second)
			resolved := a.awaitPager(pageLate, 2)[1]
			told := len(a.slack.Messages())
			if c.lost == 0 && told > 0 {
				t.Errorf("%d messages arrived while Slack was in trouble", told)
			}
			if left := c.lasts - time.Since(began); left > 0 {
				<-time.After(left) // the outage itself
			}
			if c.lasts > 0 {
				end()
			}
			over := time.Now()
			soon := 20 * time.Second // tries come a second apart at first
			if c.lost > 0 || long {
				soon = 75 * time.Second // what may have arrived is looked for after half a minute
			}
			a.awaitSlack(3*time.Minute, "the recovery", func(s story) bool { return len(s.replies) > 0 })
			took := time.Since(over)
			if took > soon {
				t.Errorf("all was told %s after the trouble, want at most %s", took, soon)
			}
			a.settle(2 * time.Minute)
			in, s := a.checkOneIncident()
			trigger := a.pager.Events()[0]
			if late := trigger.At.Sub(in.Started.Add(2 * time.Second)); late < 0 || late > pageLate {
				t.Errorf("PagerDuty was told %s after the page was due", late)
			}
			if late := resolved.At.Sub(in.Ended); late > pageLate {
				t.Errorf("PagerDuty's page was resolved %s after the incident", late)
			}
			acted := 0
			for _, r := range a.slack.Requests() {
				if r.Fault != "" {
					acted++
				}
			}
			if c.lost != acted && c.lost > 0 {
				t.Errorf("%d answers were lost, want %d", acted, c.lost)
			}
			t.Logf("all was told %s after the trouble; the page came %s after it was due; %d calls met the fault; last %q",
				took.Round(time.Millisecond), trigger.At.Sub(in.Started.Add(2*time.Second)).Round(time.Millisecond), acted, s.replies[0].Text)
		})
	}
}

// slackDown makes Slack refuse connections until what it returns is called.
func (a *alerting) slackDown() (up func()) {
	if err := a.slack.Down(); err != nil {
		a.t.Error(err)
	}
	return func() {
		if err := a.slack.Up(); err != nil {
			a.t.Error(err)
		}
	}
}

// The worker that posts dies between Slack's acceptance and its answer: the others find
// the message and post no second one.
func alertsOutliveWhoDelivers(t *testing.T) {
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	workers := a.startWorkers(3)
	lift := a.slack.SetFault(fakehttp.Hanging().AfterActing().On(post).Times(1))
	defer lift()
	ids := a.limit(40)
	a.awaitSlack(20*time.Second, "the message", func(s story) bool { return len(s.messages) == 1 })
	victim := workerOf(t, workers, a.deliverer())
	victim.kill()
	killed := time.Now()
	a.wholeIncidentOf(ids)
	if !long {
		// The alert that it had in hand would be found lost within two minutes.
		lost := a.ageLeasesOf(victim.pid(), store.AlertsDestination)
		if len(lost) != 1 {
			t.Fatalf("the dead worker had %q in hand, want one alert", lost)
		}
		a.startWorkers(1)
		redistest.Await(t, 2*time.Minute, "the alert comes back", func() bool {
			a.hurry(store.AlertsDestination)
			return a.job(lost[0]).Status.Final()
		})
	}
	a.settle(150 * time.Second)
	_, s := a.checkOneIncident()
	t.Logf("the page came %s after the death of who had posted the message", s.pages[0].PostedAt.Sub(killed).Round(time.Millisecond))
}

// deliverer is the worker that has the opening in hand for Slack.
func (a *alerting) deliverer() string {
	a.t.Helper()
	var by []string
	redistest.Await(a.t, 2*time.Minute, "a worker notifies Slack", func() bool {
		page, err := a.client.List(a.t.Context(), jobs.ListOptions{Filter: jobs.Filter{
			Destination: store.AlertsDestination, Statuses: []jobs.Status{jobs.Running},
		}})
		if err != nil {
			a.t.Fatal(err)
		}
		by = nil
		for _, j := range page.Items {
			if full, err := a.client.Get(a.t.Context(), j.ID); err == nil && full.Status == jobs.Running {
				by = append(by, full.Worker)
			}
		}
		slices.Sort(by)
		by = slices.Compact(by)
		return len(by) == 1
	})
	return by[0]
}

// wholeIncidentOf is the rest of wholeIncident once the message is there.
func (a *alerting) wholeIncidentOf(ids []string) {
	a.t.Helper()
	a.awaitSlack(90*time.Second, "the page", func(s story) bool { return len(s.pages) > 0 })
	a.awaitPager(20*time.Second, 1)
	a.heal()
	a.awaitSlack(90*time.Second, fmt.Sprintf("the recovery, of %d jobs", len(ids)), func(s story) bool { return len(s.replies) > 0 })
	a.awaitPager(20*time.Second, 2)
}
