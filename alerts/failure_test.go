package alerts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	slackapi "github.com/slack-go/slack"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeslack"
)

func only(list []string, part string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !strings.Contains(s, part) })
}

// Slack takes nothing for more than a day: what happened meanwhile is given up, and new incidents
// are reported as ever.
func TestGivenUpAfterADay(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager, func(o *setup) { o.OpenTooLong = time.Hour })
	lift := b.slack.SetFault(fakehttp.WithError("channel_not_found"))
	b.trip("shop")
	if err := b.workers[0].turned(t.Context(), single{Kind: unreached, Destination: "shop", At: b.now(), Since: b.now(), Backlog: -1}, true, b.now()); err != nil {
		t.Fatal(err)
	}
	b.send()
	b.settle()
	b.play(20 * time.Minute)
	b.reset("shop")
	b.moveTo(start.Add(25*time.Hour + 21*time.Minute)) // the tries between are all the same
	b.lookAround()
	b.settle()
	same(t, "waiting", []string(nil), b.waiting())
	if n := strings.Count(b.log.String(), "an alert is given up"); n == 0 {
		t.Error("no alert that is given up is logged")
	}
	lift()
	second := b.trip("shop")
	b.settle()
	same(t, "channel", []string{second + ".message"}, b.sent())
}

// While one job of an incident waits for Slack, there is no second one that does.
func TestOneJobTriesForAll(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2, withoutPager)
	b.slack.SetFault(fakehttp.WithStatus(503))
	for i := range 10 {
		b.play(time.Duration(i) * time.Minute)
		b.trip("shop")
		b.play(b.elapsed() + 10*time.Second)
		b.reset("shop")
	}
	b.play(30 * time.Minute)
	waiting := b.waiting()
	if len(waiting) != 1 {
		t.Errorf("%d jobs try: %v", len(waiting), waiting)
	}
	calls := b.slack.Calls()
	b.play(90 * time.Minute)
	if n := b.slack.Calls() - calls; n > 60*2+2 {
		t.Errorf("%d calls in an hour, want one or two a minute", n)
	}
	b.slack.LiftFaults()
	b.play(2 * time.Hour)
	if len(b.sent()) == 0 || len(b.waiting()) > 0 {
		t.Errorf("sent %v, waiting %v", b.sent(), b.waiting())
	}
}

// The job that stands in for the others dies with its worker: another one takes over.
func TestJobThatStandsInDies(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager)
	b.slack.SetFault(fakehttp.WithStatus(503))
	id := b.trip("shop")
	b.play(10 * time.Second)
	for _, task := range b.tasks {
		task.done = true
	}
	b.play(time.Minute)
	b.slack.LiftFaults()
	b.reset("shop")
	b.play(10 * time.Minute)
	same(t, "channel", []string{id + ".message", id + ".recovery"}, b.sent())
}

// The token is revoked in the middle of an incident: what follows comes through the
// webhook, in short messages.
func TestRevokedTokenFallsBackToTheWebhook(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(b *harness){
		"token revoked": func(b *harness) { b.slack.SetToken("xoxb-another") },
		"channel archived": func(b *harness) {
			b.slack.SetChannel(fakeslack.Channel{ID: fakeslack.DefaultChannel, Name: "alerts", Archived: true})
		},
		"scope taken away": func(b *harness) { b.slack.SetScopes("channels:read") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newHarness(t, 0)
			b.slack.SetChannel(fakeslack.Channel{ID: "C0HOOK0001", Name: "hook"})
			hook := fakeslack.New(fakeslack.Options{Now: b.clock.Now})
			if _, err := hook.Start(""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = hook.Close() })
			b.worker(withoutPager, func(o *setup) { o.Slack.Webhook = hook.WebhookURL() })
			id := b.trip("shop")
			b.play(5 * time.Minute)
			spoil(b)
			hook.SetFault(fakehttp.WithStatus(500).Times(2)) // it fails too, for a moment
			b.play(20 * time.Minute)
			b.reset("shop")
			b.play(time.Hour)
			same(t, "channel", []string{id + ".message"}, b.sent())
			var texts []string
			for _, m := range hook.Messages() {
				texts = append(texts, m.Text)
			}
			same(t, "webhook", []string{
				"@ann shop: open by hand for 15 min 3 s, by ann; 0 jobs wait; it stays open until it is reset",
				"shop was closed by hand after 20 min: 0 wasted calls, 0 failed probes, 0 jobs rescheduled; 0 jobs wait",
			}, texts)
			if !strings.Contains(b.log.String(), `msg="alerts cannot be delivered" to=Slack`) {
				t.Error("nothing is logged of it")
			}
			if left := b.waiting(); len(left) > 0 {
				t.Errorf("jobs are left: %v", left)
			}
		})
	}
}

// People delete the message, or archive its channel and make another one of that name.
// Later notices are sent all the same.
func TestMessageIsGone(t *testing.T) {
	t.Parallel()
	const second = "C0ALERTS02"
	for name, test := range map[string]struct {
		channel string
		spoil   func(t *testing.T, b *harness)
		want    string // channel of page and recovery
	}{
		"message deleted": {"#alerts", func(t *testing.T, b *harness) {
			t.Helper()
			m := b.slack.Messages()[0]
			api := slackapi.New(fakeslack.DefaultToken, slackapi.OptionAPIURL(b.slack.APIURL()))
			if _, _, err := api.DeleteMessageContext(t.Context(), m.Channel, m.TS); err != nil {
				t.Fatal(err)
			}
		}, fakeslack.DefaultChannel},
		"another channel of that name": {"#alerts", func(_ *testing.T, b *harness) {
			b.slack.SetChannel(fakeslack.Channel{ID: fakeslack.DefaultChannel, Name: "alerts-old", Archived: true})
			b.slack.SetChannel(fakeslack.Channel{ID: second, Name: "alerts"})
		}, second},
		"channel set anew": {fakeslack.DefaultChannel, func(_ *testing.T, b *harness) {
			b.slack.SetChannel(fakeslack.Channel{ID: fakeslack.DefaultChannel, Name: "alerts", Archived: true})
			b.slack.SetChannel(fakeslack.Channel{ID: second, Name: "alerts-new"})
			b.workers = nil
			b.worker(withoutPager, func(o *setup) { o.Slack.Channel = second })
		}, second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newHarness(t, 0)
			b.worker(withoutPager, func(o *setup) { o.Slack.Channel = test.channel })
			id := b.trip("shop")
			b.play(time.Minute)
			test.spoil(t, b)
			b.play(20 * time.Minute)
			b.reset("shop")
			b.play(time.Hour)
			var got []string
			for _, m := range b.slack.Messages()[1:] {
				got = append(got, fmt.Sprint(m.Channel, " ", m.Metadata.EventPayload["id"]))
			}
			same(t, "what follows", []string{test.want + " " + id + ".page", test.want + " " + id + ".recovery"}, got)
			// And the next incident is as any other.
			next := b.trip("shop")
			b.settle()
			same(t, "the next", next+".message", b.sent()[len(b.sent())-1])
			if left := b.waiting(); len(left) > 2 {
				t.Errorf("jobs are left: %v", left)
			}
		})
	}
}
