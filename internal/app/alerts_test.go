package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/fakepager"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeslack"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// people are a Slack and a PagerDuty that listen.
func people(t *testing.T) (*fakeslack.Slack, *fakepager.Pager, []string) {
	t.Helper()
	slack, pager := fakeslack.New(fakeslack.Options{}), fakepager.New(fakepager.Options{})
	if _, err := slack.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slack.Close() })
	pagerURL, err := pager.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pager.Close() })
	return slack, pager, []string{
		"SLACK_BOT_TOKEN=" + fakeslack.DefaultToken, "SLACK_CHANNEL=#alerts", "SLACK_API_URL=" + slack.APIURL(),
		"PAGERDUTY_ROUTING_KEY=" + fakepager.DefaultKey, "PAGERDUTY_API_URL=" + pagerURL,
	}
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// From the first refusal to the recovery: one message, one page, one reply, and the
// same for PagerDuty, though three workers watch.
func TestAlertsOfOneIncident(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	server := redistest.Start(t)
	slack, pager, told := people(t)
	_, url := startAPI(t, fakeapi.Options{Limiter: &fakeapi.FixedWindow{Quota: 3, Window: 6 * time.Second}})
	cfg := load(t, append(told, "REDIS_URL="+server.URL(), "DESTINATION_0_NAME=shop", "DESTINATION_0_URL="+url,
		"CIRCUIT_BREAKER_COOLDOWN_MS=1500", "ALERT_OPEN_TOO_LONG=2s", "ALERT_ONCALL_MENTION=S0123ABCD")...)
	rdb := server.Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	var stops []func() error
	for range 3 {
		stops = append(stops, run(t, cfg))
	}
	redistest.Eventually(t, "a worker has registered", func() bool { // else no worker serves the jobs
		fleet, err := client.Workers(t.Context())
		return err == nil && fleet.Serve("shop")
	})
	for range 5 {
		if _, err := client.Enqueue(t.Context(), jobs.New("shop", 7)); err != nil {
			t.Fatal(err)
		}
	}
	err = slack.Await(soon(t), func(all []fakeslack.Message) bool { return len(all) >= 3 })
	if err == nil {
		err = pager.Await(soon(t), func(all []fakepager.Event) bool { return len(all) >= 2 })
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Errorf("stopped with %v", err)
		}
	}
	var story []string
	for _, m := range slack.Messages() {
		story = append(story, fmt.Sprintf("thread %v, broadcast %v, %d edits:\n%s", m.ThreadTS != "", m.Broadcast, m.Edits, m.Text))
	}
	for _, e := range pager.Events() {
		story = append(story, e.Action+" "+e.DedupKey)
	}
	if err != nil {
		t.Fatalf("%v; told was:\n%s", err, strings.Join(story, "\n"))
	}
	t.Log(strings.Join(story, "\n"))

	read, err := breaker.DefaultNamespace.ReadOne(t.Context(), rdb, breaker.Query{Incidents: breaker.All}, "shop")
	incidents := read.Incidents
	if err != nil || len(incidents) != 1 {
		t.Fatalf("incidents %+v, %v; want one", incidents, err)
	}
	messages := slack.Messages()
	if len(messages) != 3 {
		t.Fatalf("%d messages, want the one of the incident, the page and the recovery", len(messages))
	}
	first, page, recovery := messages[0], messages[1], messages[2]
	if first.ThreadTS != "" || first.Edits == 0 || page.ThreadTS != first.TS || !page.Broadcast || recovery.ThreadTS != first.TS || recovery.Broadcast {
		t.Errorf("message %+v, page %+v, recovery %+v", first, page, recovery)
	}
	if !strings.Contains(page.Text+string(page.Blocks), "S0123ABCD") {
		t.Error("the page mentions nobody")
	}
	events := pager.Events()
	if got := []string{events[0].Action, events[1].Action}; !slices.Equal(got, []string{"trigger", "resolve"}) || len(events) != 2 {
		t.Errorf("PagerDuty heard %v", got)
	}
	for _, e := range events {
		if e.DedupKey != incidents[0].ID {
			t.Errorf("dedup key %q, want the incident's id %q", e.DedupKey, incidents[0].ID)
		}
	}
}
