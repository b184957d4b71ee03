package alerts

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// refuse is a call that the API refuses: the breaker counts it, and the workers report it.
func (b *harness) refuse(status int, body string, outcome breaker.Outcome) string {
	b.t.Helper()
	job := fmt.Sprint("job-", b.now().UnixNano(), "-", len(b.tasks), "-", body)
	of := publisher.OutcomeFailure
	if status == 429 {
		of = publisher.OutcomeRateLimited
	}
	var o publisher.Options
	b.workers[0].Observe(&o)
	o.Observers[0].OnAnswer(publisher.Answer{Destination: "shop", Job: job, At: b.now(), Status: status, Body: body, Outcome: of})
	return b.call("shop", outcome.WithJob(job))
}

// limit opens shop by a 429, outage by ten calls that end in 503.
func (b *harness) limit(hint time.Duration) string {
	b.t.Helper()
	return b.refuse(429, "slow down", breaker.RateLimited(hint))
}

func (b *harness) outage() (id string) {
	b.t.Helper()
	for i := range 10 {
		id = b.refuse(503, fmt.Sprint("upstream ", i), breaker.Answered(503))
	}
	return id
}

// content is what a message of the channel shows, with its blocks.
func (b *harness) content(id string) string {
	b.t.Helper()
	for _, m := range b.slack.Messages() {
		if m.Metadata != nil && m.Metadata.EventPayload["id"] == id {
			return m.Text + "\n" + string(m.Blocks)
		}
	}
	b.t.Fatalf("there is no message %s, but %v", id, b.sent())
	return ""
}

// The outage begins before a message about the limit and its end was sent: both are sent, in order.
func TestMissedKindsAreToldInOrder(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	first := b.limit(time.Minute)
	b.moveTo(start.Add(time.Minute + time.Second))
	b.call("shop", breaker.Success())
	second := b.outage()
	b.play(2 * time.Minute)
	same(t, "channel", []string{first + ".message", first + ".recovery", second + ".message"}, b.sent())
	if left := b.waiting(); len(left) != 2 { // the pages of Slack and PagerDuty
		t.Errorf("jobs are left: %v", left)
	}
}

// Limits and outages take turns within minutes: each opening is a message of its own, with its own beginning and its own
// responses, and gets one reply at its end. The third of a kind within ten minutes, as a small window makes them, has a
// message only if it lasts for a minute.
func TestEachOpeningIsAMessage(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	b.plain = true
	var want []string
	for i := range 4 {
		began := b.now()
		limit := b.refuse(429, fmt.Sprint("too many, ", i), breaker.RateLimited(time.Minute))
		b.play(b.elapsed() + time.Minute + time.Second)
		b.call("shop", breaker.Success())
		b.play(b.elapsed() + time.Second)
		down := b.outage()
		b.play(b.elapsed() + 10*time.Second)
		b.call("shop", breaker.Success())
		b.play(b.elapsed() + 40*time.Second)
		want = append(want, limit+".message", limit+".recovery")
		if i < 2 {
			want = append(want, down+".message", down+".recovery")
		}
		for _, m := range b.slack.Messages() {
			first, id := string(m.Versions[0].Blocks), m.Metadata.EventPayload["id"]
			if id == limit+".message" && (m.PostedAt.Sub(began) != time.Duration(i/2)*time.Minute || !strings.Contains(first, began.Format(time.TimeOnly)) ||
				strings.Count(first, "too many, ") != 1 || !strings.Contains(first, fmt.Sprint("too many, ", i))) {
				t.Errorf("limit %d at %s, posted at %s: %s", i, began, m.PostedAt, first)
			}
			if id == down+".message" && (strings.Contains(first, `"429"`) || !strings.Contains(first, `"503"`)) {
				t.Errorf("outage %d: %s", i, first)
			}
		}
	}
	b.play(time.Hour)
	same(t, "channel", want, b.sent())
	b.limit(time.Minute)
	b.settle()
	same(t, "messages after a pause", len(want)+1, len(b.sent()))
	b.reset("shop")
	b.play(2 * time.Hour)
	if left := b.waiting(); len(left) > 0 {
		t.Errorf("jobs are left: %v", left)
	}
}

// An operator takes a limit over, and opens the breaker by hand: it stays one incident and one message.
func TestTripOfAnOpenBreakerStaysOneMessage(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	id := b.limit(time.Minute)
	b.settle()
	same(t, "incident", id, b.trip("shop"))
	b.lookAround()
	b.play(2 * time.Minute)
	b.reset("shop")
	b.play(2*time.Minute + 30*time.Second)
	other := b.limit(time.Minute)
	b.lookAround()
	b.settle()
	if got := b.content(other + ".message"); !strings.HasPrefix(got, "shop is rate limited until") {
		t.Errorf("the later limit reads %.300s", got)
	}
	b.play(3 * time.Minute)
	same(t, "channel", []string{id + ".message", id + ".recovery", other + ".message"}, b.sent())
}

// lookFor has the workers look for what no event reports.
func (b *harness) lookFor() []string {
	b.t.Helper()
	for _, a := range b.workers {
		if err := errors.Join(a.check(b.t.Context()), a.flush(b.t.Context())); err != nil {
			b.t.Fatal(err)
		}
	}
	b.settle()
	return b.texts()
}

// A destination that no worker reaches or serves gets one message when that begins and one when it ends, without Prometheus;
// a pager alone gets an incident, which ends.
func TestDestinationsWithoutWorkers(t *testing.T) {
	t.Parallel()
	t.Run("Slack", func(t *testing.T) {
		t.Parallel()
		loseWorkers(t, newHarness(t, 2), func(when string, want []string, got []string) { same(t, when, want, got) })
	})
	t.Run("a pager alone", func(t *testing.T) {
		t.Parallel()
		b := newHarness(t, 2, withoutSlack)
		loseWorkers(t, b, func(string, []string, []string) {})
		same(t, "open at the pager", 0, len(b.pager.Open()))
		same(t, "incidents of the pager", 2, len(b.pager.Incidents()))
		if e := b.pager.Events()[0]; e.Action != "trigger" || e.Payload.Severity != "critical" || e.Payload.Class != "destination out of reach" {
			t.Errorf("PagerDuty: %v", b.paged())
		}
	})
}

// loseWorkers plays that no worker reaches shop, and that none serves blog, until both are over.
func loseWorkers(t *testing.T, b *harness, same func(when string, want, got []string)) {
	t.Helper()
	client, err := jobs.NewClient(b.rdb, jobs.WithDestinations("shop", "blog"))
	if err != nil {
		t.Fatal(err)
	}
	b.clock.set(time.Now())
	began := b.now().Truncate(time.Second)
	serve := func(after time.Duration, unreachable map[string]store.Unreachable, destinations ...string) {
		t.Helper()
		b.clock.set(began.Add(after))
		if err := b.rdb.Del(t.Context(), b.workers[0].store.key("limit", "scan", "workers")).Err(); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(store.Worker{SeenAt: b.now().UnixMilli(), Destinations: destinations, Unreachable: unreachable})
		seen := map[string]any{}
		for _, d := range destinations {
			seen[d] = b.now().UnixMilli()
		}
		if err := errors.Join(err, b.rdb.HSet(t.Context(), store.DefaultNamespace.WorkersKey(), "w", text).Err(),
			b.rdb.HSet(t.Context(), store.DefaultNamespace.DestinationsKey(), seen).Err()); err != nil {
			t.Fatal(err)
		}
		b.lookFor()
	}
	away := map[string]store.Unreachable{"shop": {Since: began.UnixMilli(), Problem: "dial tcp 127.0.0.1:1: connect: connection refused"}}
	serve(0, nil, "shop", "blog")
	if _, err := client.Enqueue(t.Context(), jobs.New("blog", "x", jobs.ID("post"))); err != nil {
		t.Fatal(err)
	}
	serve(time.Minute, away, "shop", "blog")
	same("too soon", []string(nil), b.texts())
	serve(3*time.Minute, away, "shop")
	serve(4*time.Minute, away, "shop")
	unreached := fmt.Sprintf("shop: no worker reaches it, since %s UTC: dial tcp 127.0.0.1:\u20601: connect: connection refused", began.UTC().Format(time.TimeOnly))
	same("out of reach", []string{unreached}, b.texts())
	serve(5*time.Minute, nil, "shop")
	serve(12*time.Minute, nil, "shop")
	serve(13*time.Minute, nil, "shop")
	want := []string{unreached, "shop: a worker reaches it again", "blog: no worker serves it; 1 job waits"}
	same("without a worker", want, b.texts())
	serve(14*time.Minute, nil, "shop", "blog")
	serve(15*time.Minute, nil, "shop", "blog")
	same("over", append(want, "blog: a worker serves it again"), b.texts())
}

// A message has the limit that its breaker has learned.
func TestMessageHasTheLearnedLimit(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager)
	id := b.limit(0)
	redistest.SetRecord(t, b.rdb, "tidegate:{shop}:breaker", "learned_since", start.UnixMilli(),
		"learner", `{"pace":{"stage":"holding","slow":5,"length":300,"seen":3}}`)
	b.settle()
	if got := b.content(id + ".message"); !strings.Contains(got, "; learned limit: about 60 calls per 5 min") {
		t.Errorf("the message is %s", got)
	}
}
