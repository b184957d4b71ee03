package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/fakepager"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeslack"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// oncall is whom a page mentions in these tests.
const oncall = "<!subteam^S0123ABCD>"

// alerting is a fleet whose workers tell a fake Slack and a fake PagerDuty. It has a
// Redis of its own: all workers on one deliver each other's alerts.
type alerting struct {
	*fleet
	slack   *fakeslack.Slack
	pager   *fakepager.Pager
	limited *atomic.Bool // the API refuses every call
	// complains says that errors in the workers' logs are to be expected.
	complains bool
}

// newAlerting tells Slack with a bot token, and PagerDuty.
func newAlerting(t *testing.T, slack fakeslack.Options, pager fakepager.Options) *alerting {
	t.Helper()
	a := &alerting{
		fleet: newFleet(t, redistest.Start(t, redistest.WithAOF()), fakeapi.Options{Latency: 20 * time.Millisecond}),
		slack: fakeslack.New(slack), pager: fakepager.New(pager), limited: &atomic.Bool{},
	}
	for _, start := range []func(string) (string, error){a.slack.Start, a.pager.Start} {
		if _, err := start(""); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = a.slack.Close()
		_ = a.pager.Close()
		if t.Failed() {
			a.dump()
		}
	})
	a.api.SetScript(func(int, *http.Request) *fakeapi.Answer {
		if a.limited.Load() {
			return &fakeapi.Answer{Status: http.StatusTooManyRequests, Body: `{"error":"too many calls"}`}
		}
		return nil
	})
	a.set(map[string]string{
		"CIRCUIT_BREAKER_COOLDOWN_MS":     "1200", // further apart than updates may come
		"CIRCUIT_BREAKER_COOLDOWN_JITTER": "0",
		"CIRCUIT_BREAKER_EARLY_TESTS":     "false", // the cooldown alone spaces its probes
		"RETRY_LOOP_INTERVAL_MS":          "200",
		"SLACK_BOT_TOKEN":                 fakeslack.DefaultToken,
		"SLACK_CHANNEL":                   fakeslack.DefaultChannel,
		"SLACK_API_URL":                   a.slack.APIURL(),
		"ALERT_OPEN_TOO_LONG":             "3s",
		"ALERT_ONCALL_MENTION":            oncall,
		"PAGERDUTY_ROUTING_KEY":           fakepager.DefaultKey,
		"PAGERDUTY_API_URL":               a.pager.EnqueueURL(),
	})
	return a
}

// set changes the environment of workers and commands that start from now on; an empty
// value takes a variable out.
func (a *alerting) set(env map[string]string) {
	for name, value := range env {
		if value == "" {
			delete(a.env, name)
			continue
		}
		a.env[name] = value
	}
}

// startWorkers starts n workers and looks at their logs when the test is over.
func (a *alerting) startWorkers(n int) []*worker {
	a.t.Helper()
	var out []*worker
	for range n {
		w := a.start()
		out = append(out, w)
		a.t.Cleanup(func() {
			log := w.log.String()
			for _, secret := range []string{fakeslack.DefaultToken, fakeslack.DefaultSecret, fakepager.DefaultKey} {
				if strings.Contains(log, secret) {
					a.t.Errorf("a secret of the alerting stands in a worker's log: %s", secret)
				}
			}
			for _, line := range w.lines() {
				// A busy machine may keep Redis from answering for a while.
				if !a.complains && strings.Contains(line, `"level":"ERROR"`) && !strings.Contains(line, "redis does not answer") {
					a.t.Errorf("worker %d logged an error: %s", w.pid(), line)
				}
			}
		})
	}
	return out
}

// within is a context for one wait.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), max(d, leastPatience))
	t.Cleanup(cancel)
	return ctx
}

// story is what a channel shows: the messages that stand by themselves, the replies
// that are shown in the channel too, and the other replies.
type story struct{ messages, pages, replies []fakeslack.Message }

func storyOf(all []fakeslack.Message) story {
	var s story
	for _, m := range all {
		switch {
		case m.Deleted:
		case m.ThreadTS == "":
			s.messages = append(s.messages, m)
		case m.Broadcast:
			s.pages = append(s.pages, m)
		default:
			s.replies = append(s.replies, m)
		}
	}
	return s
}

// awaitSlack waits until Slack shows what is wanted.
func (a *alerting) awaitSlack(d time.Duration, what string, cond func(story) bool) story {
	a.t.Helper()
	if err := a.slack.Await(within(a.t, d), func(all []fakeslack.Message) bool { return cond(storyOf(all)) }); err != nil {
		a.t.Fatalf("Slack does not show within %s: %s: %v; alerts: %s", d, what, err, a.alertJobs())
	}
	return storyOf(a.slack.Messages())
}

// awaitPager waits until PagerDuty has got n events.
func (a *alerting) awaitPager(d time.Duration, n int) []fakepager.Event {
	a.t.Helper()
	if err := a.pager.Await(within(a.t, d), func(all []fakepager.Event) bool { return len(all) >= n }); err != nil {
		a.t.Fatalf("PagerDuty has not got %d events within %s: %v; alerts: %s", n, d, err, a.alertJobs())
	}
	return a.pager.Events()
}

// settle returns when no alert is left to be delivered.
func (a *alerting) settle(d time.Duration) {
	a.t.Helper()
	redistest.Await(a.t, d, "all alerts are delivered", func() bool {
		return a.stats(store.AlertsDestination)[0].Backlog == 0
	})
}

// alertJobs lists the alerts that are not delivered, for messages.
func (a *alerting) alertJobs() string {
	page, err := a.client.List(context.Background(), jobs.ListOptions{Filter: jobs.Filter{Destination: store.AlertsDestination}, Limit: 1000})
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, j := range page.Items {
		at := ""
		if !j.AvailableAt.IsZero() {
			at = j.AvailableAt.Format(time.TimeOnly)
		}
		if j.Status != jobs.Completed {
			out = append(out, fmt.Sprintf("%s %s %s r%d %s", j.ID, j.Status, at, j.RescheduleCount, j.LastError))
		}
	}
	return strings.Join(out, "; ")
}

// dump shows what was told, when a test has failed.
func (a *alerting) dump() {
	for i, m := range a.slack.Messages() {
		a.t.Logf("Slack %d: %s thread %q broadcast %v edits %d: %q", i+1, m.PostedAt.Format("15:04:05.000"), m.ThreadTS, m.Broadcast, m.Edits, m.Versions)
	}
	for _, r := range a.slack.Requests() {
		a.t.Logf("Slack call %d: %s to %s %s %d %s", r.N, r.At.Format("15:04:05.000"), r.Done.Format("15:04:05.000"), r.Method, r.Status, r.Fault)
	}
	for _, e := range a.pager.Events() {
		a.t.Logf("PagerDuty: %s %s %s", e.At.Format("15:04:05.000"), e.Action, e.DedupKey)
	}
}

// limit makes the API refuse every call and gives it n of them to refuse.
func (a *alerting) limit(n int) []string {
	a.t.Helper()
	a.limited.Store(true)
	return a.enqueue(n)
}

// heal lets the API accept calls again.
func (a *alerting) heal() { a.limited.Store(false) }

// lastIncident is the last incident of the destination as the command shows it.
func (a *alerting) lastIncident() breaker.Incident {
	a.t.Helper()
	out, stderr, code := a.tidegate("breaker", "incidents", a.dest, "-o", "json")
	var page struct{ Items []breaker.Incident }
	if err := json.Unmarshal([]byte(out), &page); err != nil || code != 0 || len(page.Items) == 0 {
		a.t.Fatalf("breaker incidents: exit %d, %v: %s%s", code, err, out, stderr)
	}
	return page.Items[len(page.Items)-1]
}

// failedProbes are the times of the probes that were refused.
func (a *alerting) failedProbes() []time.Time {
	var out []time.Time
	for _, e := range a.history() {
		if e.To == breaker.Open && e.Cause == breaker.CauseProbe {
			out = append(out, e.At)
		}
	}
	return out
}

// spoken is all that people read of a message: the text and every string in its blocks.
func spoken(text string, blocks json.RawMessage) string {
	out := []string{text}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				walk(v[name])
			}
		}
	}
	var v any
	if json.Unmarshal(blocks, &v) == nil {
		walk(v)
	}
	return strings.Join(out, "\n")
}

// checkOneIncident checks that one incident was told of as it has to be: one message
// that ends as over, one page, one recovery, in this order, and to PagerDuty one
// trigger and one resolve.
func (a *alerting) checkOneIncident() (breaker.Incident, story) {
	a.t.Helper()
	in := a.lastIncident()
	all := a.slack.Messages()
	s := storyOf(all)
	if len(s.messages) != 1 || len(s.pages) != 1 || len(s.replies) != 1 {
		a.t.Fatalf("%d messages, %d pages and %d recoveries, want one of each", len(s.messages), len(s.pages), len(s.replies))
	}
	message, page, recovery := s.messages[0], s.pages[0], s.replies[0]
	if all[0].TS != message.TS || all[1].TS != page.TS || all[2].TS != recovery.TS {
		a.t.Error("they did not come in the order message, page, recovery")
	}
	if page.ThreadTS != message.TS || recovery.ThreadTS != message.TS {
		a.t.Errorf("page and recovery reply to %q and %q, not to the message %q", page.ThreadTS, recovery.ThreadTS, message.TS)
	}
	if blocks := spoken("", page.Blocks); !strings.Contains(page.Text, oncall) || !strings.Contains(blocks, oncall) {
		a.t.Errorf("the page does not mention on-call: %q, %s", page.Text, blocks)
	}
	for _, m := range []fakeslack.Message{message, recovery} {
		if strings.Contains(spoken(m.Text, m.Blocks), oncall) {
			a.t.Errorf("on-call is mentioned by what is no page: %q", m.Text)
		}
	}
	if want := a.dest + " has recovered after "; !strings.HasPrefix(message.Text, want) || !strings.HasPrefix(recovery.Text, want) {
		a.t.Errorf("at the end the message says %q and the reply %q, want both to begin with %q", message.Text, recovery.Text, want)
	}
	if want := costs(in.Wasted, in.Probes, in.Rescheduled); !strings.Contains(recovery.Text, want) {
		a.t.Errorf("the recovery says %q; the incident had %s", recovery.Text, want)
	}
	events := a.pager.Events()
	if len(events) != 2 || events[0].Action != "trigger" || events[1].Action != "resolve" {
		a.t.Fatalf("PagerDuty got %+v, want a trigger and a resolve", events)
	}
	for _, e := range events {
		if e.DedupKey != in.ID {
			a.t.Errorf("the dedup key of %s is %q, want the incident's id %q", e.Action, e.DedupKey, in.ID)
		}
	}
	return in, s
}

// costs says what an incident has cost as recoveries do.
func costs(wasted, probes, rescheduled int) string {
	count := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", n, many)
	}
	return count(wasted, "wasted call", "wasted calls") + ", " + count(probes, "failed probe", "failed probes") +
		", " + count(rescheduled, "job rescheduled", "jobs rescheduled")
}

// wholeIncident lets an incident open, last until it has paged, and close.
func (a *alerting) wholeIncident(n int) []string {
	a.t.Helper()
	ids := a.limit(n)
	a.awaitSlack(60*time.Second, "the message", func(s story) bool { return len(s.messages) > 0 })
	a.awaitSlack(60*time.Second, "the page", func(s story) bool { return len(s.pages) > 0 })
	a.awaitPager(20*time.Second, 1)
	a.heal()
	a.awaitSlack(60*time.Second, "the recovery", func(s story) bool { return len(s.replies) > 0 })
	a.awaitPager(20*time.Second, 2)
	a.settle(60 * time.Second)
	return ids
}

// workerOf finds the one that calls itself host:pid.
func workerOf(t *testing.T, all []*worker, name string) *worker {
	t.Helper()
	i := slices.IndexFunc(all, func(w *worker) bool { return strings.HasSuffix(name, fmt.Sprintf(":%d", w.pid())) })
	if i < 0 {
		t.Fatalf("%q is none of the workers", name)
	}
	return all[i]
}
