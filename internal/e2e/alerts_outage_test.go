package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/testkit/fakepager"
	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

// post is the method that a message comes by.
const post = "chat.postMessage"

// pageLate is how late PagerDuty may be told whatever goes wrong with Slack.
const pageLate = 15 * time.Second

// Slack is in trouble while a breaker opens, pages and closes: afterwards it is told of
// all of it, in order, and of nothing twice. PagerDuty is told in time.
func alertsWhileSlackIsInTrouble(t *testing.T) {
	const short, limited = 5 * time.Second, 5 * time.Second
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
