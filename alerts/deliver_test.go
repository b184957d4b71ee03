package alerts

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
)

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// withoutPager leaves PagerDuty out of what a worker is configured for.
func withoutPager(o *setup) { o.Pager.Key = "" }

// A whole incident, from its opening through a failed probe and the page to the
// recovery.
func TestIncident(t *testing.T) {
	t.Parallel()
	for _, twice := range []bool{false, true} {
		t.Run(fmt.Sprintf("each job run twice is %v", twice), func(t *testing.T) {
			t.Parallel()
			b := newHarness(t, 2)
			b.twice = twice
			id := b.call("shop", breaker.RateLimited(0))
			b.play(time.Minute)
			b.call("shop", breaker.RateLimited(0))
			b.play(15*time.Minute - time.Millisecond)
			same(t, "before the page", []seen{{
				ID: id + ".message", Edits: 1, Text: "shop is still rate limited until 12:02:00 UTC: 2 rate-limited answers; 0 jobs wait",
			}}, b.channel())
			if len(b.paged()) > 0 {
				t.Errorf("PagerDuty got %v", b.paged())
			}
			page := fmt.Sprintf("%s.page-%d", id, start.Add(15*time.Minute).Unix())
			same(t, "waiting", []string{page + ".pagerduty +15m0s", page + ".slack +15m0s"}, b.waiting())
			b.play(20 * time.Minute)
			b.call("shop", breaker.Success())
			b.play(time.Hour)
			same(t, "channel", []seen{
				{ID: id + ".message", Edits: 3, Text: "shop has recovered after 20 min: 0 jobs wait"},
				{
					ID: id + ".page", At: 15 * time.Minute, Reply: id + ".message", Broadcast: true,
					Text: "@ann shop has been rate limited for 15 min: 2 rate-limited answers; 0 jobs wait",
				},
				{
					ID: id + ".recovery", At: 20 * time.Minute, Reply: id + ".message",
					Text: "shop has recovered after 20 min: 2 wasted calls, 1 failed probe, 0 jobs rescheduled; 0 jobs wait",
				},
			}, b.channel())
			same(t, "pages", []string{"trigger " + id + " +15m0s", "resolve " + id + " +20m0s"}, b.paged())
			if left := b.waiting(); len(left) > 0 {
				t.Errorf("jobs are left: %v", left)
			}
		})
	}
}

// On-call got the recovery, and a moment later it opens again: that is another incident, with a page if it lasts.
func TestOpenedAgainAfterItsPage(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	id := b.call("shop", breaker.RateLimited(0))
	b.play(20 * time.Minute)
	b.call("shop", breaker.Success())
	b.play(20*time.Minute + 10*time.Second)
	next := b.call("shop", breaker.RateLimited(30*time.Minute))
	b.play(40 * time.Minute)
	b.reset("shop")
	b.play(time.Hour)
	same(t, "channel", []string{
		id + ".message", id + ".page", id + ".recovery", next + ".message", next + ".page", next + ".recovery",
	}, b.sent())
	same(t, "pages", []string{
		"trigger " + id + " +15m0s", "resolve " + id + " +20m0s", "trigger " + next + " +35m10s", "resolve " + next + " +40m0s",
	}, b.paged())
	if left := b.waiting(); len(left) > 0 {
		t.Errorf("jobs are left: %v", left)
	}
}

// Five workers get all transitions and each of them runs each job, all at once.
func TestFiveWorkersNotifyOnce(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 5)
	id := b.trip("shop")
	other := b.trip("blog")
	b.storm()
	b.moveTo(start.Add(15 * time.Minute))
	b.storm()
	b.reset("shop")
	b.reset("blog")
	b.storm()
	for _, id := range []string{id, other} {
		var got []string
		for _, told := range b.sent() {
			if len(told) > len(id) && told[:len(id)] == id {
				got = append(got, told)
			}
		}
		same(t, "channel", []string{id + ".message", id + ".page", id + ".recovery"}, got)
	}
	var triggers, resolves []string
	for _, e := range b.pager.Events() {
		if e.Action == "trigger" {
			triggers = append(triggers, e.DedupKey)
		} else {
			resolves = append(resolves, e.DedupKey)
		}
	}
	slices.Sort(triggers)
	slices.Sort(resolves)
	want := []string{id, other}
	slices.Sort(want)
	same(t, "triggers", want, triggers)
	same(t, "resolves", want, resolves)
}

// storm has all workers run all due jobs at once, until none is left.
func (b *harness) storm() {
	b.t.Helper()
	for range 200 {
		b.fetch()
		type run struct {
			task *task
			err  error
		}
		var due []*task
		for _, t := range b.tasks {
			if !t.done && !t.due.After(b.now()) {
				due = append(due, t)
			}
		}
		if len(due) == 0 {
			return
		}
		results := make(chan run, len(due)*len(b.workers))
		var all sync.WaitGroup
		for _, t := range due {
			for _, a := range b.workers {
				all.Go(func() {
					job := *t.job
					results <- run{t, a.Publish(b.t.Context(), &job)}
				})
			}
		}
		all.Wait()
		close(results)
		ends := map[*task]bool{}
		for r := range results {
			b.after(r.task, r.err)
			ends[r.task] = ends[r.task] || r.err == nil
		}
		for t, done := range ends {
			t.done = done // in one worker it has come to its end
		}
		b.moveTo(b.now().Add(time.Second))
	}
	b.t.Errorf("there is no end of jobs: %v", b.waiting())
}

// The workers that got an opening die before they have written it to Redis. One that
// starts afterwards looks around.
func TestMissedIncidentsAreNotified(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	b.lookAround() // a worker watched
	b.dead = true
	b.play(time.Minute)
	id := b.trip("shop")
	b.play(2 * time.Minute)
	same(t, "channel", []string(nil), b.sent())
	b.worker()
	b.lookAround()
	b.play(16 * time.Minute)
	same(t, "channel", []string{id + ".message", id + ".page"}, b.sent())
	b.reset("shop")
	b.play(18 * time.Minute)
	b.lookAround()
	b.play(20 * time.Minute)
	same(t, "channel", []string{id + ".message", id + ".page", id + ".recovery"}, b.sent())
	same(t, "pages", []string{"trigger " + id + " +16m0s", "resolve " + id + " +18m0s"}, b.paged())
	// There is nothing more to find.
	b.play(30 * time.Minute)
	b.lookAround()
	if left := b.waiting(); len(left) > 0 {
		t.Errorf("a scan of what is sent makes the jobs %v", left)
	}
}

func (b *harness) lookAround() {
	b.t.Helper()
	for _, a := range b.workers {
		if err := a.scan(b.t.Context(), b.now()); err != nil {
			b.t.Fatal(err)
		}
	}
	b.send()
}

// A webhook can neither edit nor reply: each step is a separate message.
func TestWebhookOnly(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 0)
	b.worker(withoutPager, func(o *setup) { o.Slack.Token, o.Slack.Channel, o.Slack.Webhook = "", "", b.slack.WebhookURL() })
	b.trip("shop")
	b.play(15 * time.Minute)
	b.reset("shop")
	b.play(30 * time.Minute)
	same(t, "channel", []string{
		"shop: opened by hand until it is reset, by ann; 0 jobs wait",
		"@ann shop: open by hand for 15 min, by ann; 0 jobs wait; it stays open until it is reset",
		"shop was closed by hand after 15 min: 0 wasted calls, 0 failed probes, 0 jobs rescheduled; 0 jobs wait",
	}, b.texts())
}

// The first start reports what is open and what ended within the last hour, nothing older.
func TestIncidentsBeforeTheStart(t *testing.T) {
	t.Parallel()
	for after, reported := range map[time.Duration]bool{59 * time.Minute: true, 61 * time.Minute: false} {
		b := newHarness(t, 1)
		b.dead = true
		for day := range 3 {
			b.play(time.Duration(day) * 24 * time.Hour)
			b.trip("shop")
			b.play(time.Duration(day)*24*time.Hour + 10*time.Minute)
			b.reset("shop")
		}
		read, err := breaker.DefaultNamespace.ReadOne(t.Context(), b.rdb, breaker.Query{Incidents: 10}, "shop")
		incidents := read.Incidents
		if err != nil || len(incidents) != 3 {
			t.Fatal(incidents, err)
		}
		b.play(b.elapsed() + after)
		b.dead = false
		b.lookAround()
		b.settle()
		last := incidents[2].ID
		var want []string
		if reported {
			want = []string{last + ".message", last + ".recovery"}
		}
		same(t, fmt.Sprintf("%v after its end", after), want, b.sent())
		next := b.trip("shop")
		b.settle()
		same(t, "with the next one", append(want, next+".message"), b.sent())
		same(t, "pages", []string(nil), b.paged())
	}
}
