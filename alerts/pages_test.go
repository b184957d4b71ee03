package alerts

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/fakepager"
)

func withoutSlack(o *setup) { o.Slack.Token, o.Slack.Channel = "", "" }

// What PagerDuty gets.
func TestPageInPagerDuty(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, func(o *setup) { o.PublicURL = "https://tidegate.example/" })
	id := b.trip("shop")
	b.play(15 * time.Minute)
	events := b.pager.Events()
	if len(events) != 1 {
		t.Fatalf("events %v, want one", b.paged())
	}
	e := events[0]
	same(t, "payload", fakepager.Payload{
		Summary: "shop: open by hand for 15 min, by ann; 0 jobs wait; it stays open until it is reset",
		Source:  "tidegate/shop", Severity: "critical", Timestamp: "2050-01-01T12:00:00Z",
		Component: "shop", Group: "tidegate", Class: "circuit breaker open", CustomDetails: e.Payload.CustomDetails,
	}, *e.Payload)
	same(t, "links", []fakepager.Link{{Href: "https://tidegate.example/breakers/shop", Text: "Open in Tidegate"}}, e.Links)
	same(t, "the rest", []string{"trigger", id, "Tidegate", "https://tidegate.example"}, []string{e.Action, e.DedupKey, e.Client, e.ClientURL})
	if d, _ := e.Payload.CustomDetails.(map[string]any); len(d) == 0 {
		t.Error("there are no details")
	}
}

// Whatever PagerDuty does at the page and at its end, both get there, in order.
func TestFaultsOfPagerDuty(t *testing.T) {
	t.Parallel()
	all := map[string]fakehttp.Fault{
		"429 with a hint": fakehttp.RateLimited(30 * time.Second), "429 without a hint": fakehttp.RateLimitedBare(),
		"status 500": fakehttp.WithStatus(http.StatusInternalServerError), "a gateway's page, 502": fakehttp.HTML(http.StatusBadGateway),
		"a portal's page, 200": fakehttp.HTML(http.StatusOK), "no answer": fakehttp.Hanging(), "a broken connection": fakehttp.Dropping(),
		"a refused event": fakehttp.WithError("no such key"),
	}
	for name, fault := range all {
		for _, acts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, acting %v", name, acts), func(t *testing.T) {
				t.Parallel()
				b := newHarness(t, 2)
				b.line.hangs = fault.Kind == fakehttp.Hang
				fail := func() {
					f := fault.Times(3)
					f.Acts = acts
					b.pager.SetFault(f)
				}
				id := b.trip("shop")
				fail()
				b.play(20 * time.Minute)
				if _, open := b.pager.Open()[id]; !open {
					t.Errorf("there is no page after 20 min: %v", b.paged())
				}
				b.reset("shop")
				fail()
				b.play(time.Hour)
				incidents := b.pager.Incidents()
				if len(incidents) != 1 || incidents[0].State != fakepager.Resolved || incidents[0].DedupKey != id {
					t.Errorf("incidents in PagerDuty: %+v", incidents)
				}
				if left := b.waiting(); len(left) > 0 {
					t.Errorf("jobs are left: %v", left)
				}
				// Slack has nothing to do with it.
				b.toldInOrder(id, true)
			})
		}
	}
}

// A page that could not be sent while it mattered is not sent any more: nothing has to be done.
func TestLatePage(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	id := b.trip("shop")
	b.play(14 * time.Minute)
	slackLift, pagerLift := b.slack.SetFault(fakehttp.WithStatus(503)), b.pager.SetFault(fakehttp.WithStatus(503))
	b.play(15 * time.Minute)
	if len(b.pager.Requests()) == 0 {
		t.Fatal("PagerDuty was not called")
	}
	b.play(16 * time.Minute)
	b.reset("shop")
	b.play(18 * time.Minute)
	slackLift()
	pagerLift()
	b.play(time.Hour)
	same(t, "channel", []string{id + ".message", id + ".recovery"}, b.sent())
	// It may have got the trigger, for all that anybody knows; the end of it does no harm.
	for _, e := range b.pager.Events() {
		if e.Action != "resolve" {
			t.Errorf("PagerDuty got %v", b.paged())
		}
	}
}

// PagerDuty takes the trigger, but its response is lost, and it refuses the first attempts to end the page: the
// page ends too.
func TestLostTriggerIsResolved(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	b.trip("shop")
	lift := b.pager.SetFault(fakehttp.Dropping().AfterActing())
	b.play(15 * time.Minute)
	if len(b.pager.Open()) != 1 {
		t.Fatalf("events %v", b.paged())
	}
	lift()
	lift = b.pager.SetFault(fakehttp.RateLimited(30 * time.Second))
	b.reset("shop")
	b.play(17 * time.Minute)
	lift()
	b.play(time.Hour)
	if open := b.pager.Open(); len(open) > 0 {
		t.Errorf("still open: %v, events %v", open, b.paged())
	}
}

func TestPagerDutyOnly(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2, withoutSlack)
	id := b.trip("shop")
	b.settle()
	same(t, "waiting", []string{fmt.Sprintf("%s.page-%d.pagerduty +15m0s", id, start.Add(15*time.Minute).Unix())}, b.waiting())
	b.play(20 * time.Minute)
	b.reset("shop")
	b.play(time.Hour)
	same(t, "pages", []string{"trigger " + id + " +15m0s", "resolve " + id + " +20m0s"}, b.paged())
	same(t, "calls of Slack", 0, b.slack.Calls())
	// Once it is configured, Slack gets new incidents, and none of long before.
	b.play(50 * time.Hour)
	b.workers = nil
	b.worker()
	second := b.trip("shop")
	b.settle()
	same(t, "channel", []string{second + ".message"}, b.sent())
}

// Workers without a notifier leave its alerts to others.
func TestFleetOfUnequalWorkers(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 0)
	b.worker(withoutPager)
	id := b.trip("shop")
	b.settle()
	b.worker(withoutSlack)
	b.lookAround()
	b.play(20 * time.Minute)
	b.reset("shop")
	b.play(time.Hour)
	b.toldInOrder(id, true)
	incidents := b.pager.Incidents()
	if len(incidents) != 1 || incidents[0].DedupKey != id || incidents[0].OpenedAt.Sub(start) > 17*time.Minute || incidents[0].State != fakepager.Resolved {
		t.Errorf("PagerDuty: %v", b.paged())
	}
	if n := strings.Count(b.log.String(), "an alert is left to other workers"); n != 2 {
		t.Errorf("%d lines about alerts left to others, want one of each worker", n)
	}
	if left := b.waiting(); len(left) > 0 {
		t.Errorf("jobs are left: %v", left)
	}
}

// ALERT_OPEN_TOO_LONG is changed while an incident lasts.
func TestPageIsMoved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from, to, want time.Duration
	}{
		"later":  {15 * time.Minute, time.Hour, time.Hour},
		"sooner": {time.Hour, 15 * time.Minute, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newHarness(t, 1, func(o *setup) { o.OpenTooLong = test.from })
			id := b.trip("shop")
			b.play(5 * time.Minute)
			b.workers = nil
			b.worker(func(o *setup) { o.OpenTooLong = test.to })
			b.lookAround()
			b.play(2 * time.Hour)
			same(t, "pages", []string{fmt.Sprintf("trigger %s +%v", id, test.want)}, b.paged())
			got := b.channel()
			if len(got) != 2 || got[1].ID != id+".page" || got[1].At != test.want {
				t.Errorf("channel: %+v", got)
			}
		})
	}
}

// ALERT_OPEN_TOO_LONG=0: PagerDuty gets nothing.
func TestPagingSwitchedOff(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, func(o *setup) { o.OpenTooLong = -1 })
	id := b.trip("shop")
	b.play(24 * time.Hour)
	b.lookAround()
	b.settle()
	b.reset("shop")
	b.play(25 * time.Hour)
	same(t, "channel", []string{id + ".message", id + ".recovery"}, b.sent())
	same(t, "waiting", []string(nil), b.waiting())
	id = b.call("blog", forGood) // Slack's readers learn at once that a person has to sign in
	b.play(26 * time.Hour)
	same(t, "credentials", []string{id + ".message", id + ".page"}, b.sent()[2:])
	same(t, "calls of PagerDuty", 0, b.pager.Calls())
}

// The job of a page runs before its time, as clocks that differ can bring about: the page comes at
// its time.
func TestPageRingsTooEarly(t *testing.T) {
	t.Parallel()
	for _, to := range []string{".slack", ".pagerduty"} {
		b := newHarness(t, 1)
		id := b.trip("shop")
		b.play(15*time.Minute - time.Second)
		page := b.task(fmt.Sprintf("%s.page-%d%s", id, start.Add(15*time.Minute).Unix(), to))
		b.run(page)
		if page.done || page.due.Sub(start) != 15*time.Minute {
			t.Errorf("page%s: done %v, due +%v", to, page.done, page.due.Sub(start))
		}
		b.play(16 * time.Minute)
		same(t, "channel", []string{id + ".message", id + ".page"}, b.sent())
		same(t, "pages", []string{"trigger " + id + " +15m0s"}, b.paged())
	}
}
