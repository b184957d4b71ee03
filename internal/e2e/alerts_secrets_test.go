package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakehttp"
	"github.com/tidegate/tidegate/internal/fakepager"
	"github.com/tidegate/tidegate/internal/fakeslack"
	"github.com/tidegate/tidegate/jobs"
)

// Secrets that are easy to find, wherever they are.
const (
	canary        = "CANARY"
	canaryToken   = "xoxb-" + canary + "0-" + canary + "1-token"
	canaryWebhook = canary + "2hook" + canary + "3hook"
	canaryKey     = canary + "4key0" + canary + "5key0" + canary + "6k"
)

// newCanaries tells Slack by both of its ways, and PagerDuty, with secrets that are
// looked for at the end.
func newCanaries(t *testing.T) *alerting {
	t.Helper()
	a := newAlerting(t, fakeslack.Options{Token: canaryToken, WebhookSecret: canaryWebhook}, fakepager.Options{RoutingKey: canaryKey, AnyKeyForm: true})
	a.complains = true
	a.set(map[string]string{
		"SLACK_BOT_TOKEN": canaryToken, "SLACK_WEBHOOK_URL": a.slack.WebhookURL(), "PAGERDUTY_ROUTING_KEY": canaryKey,
		"ALERT_OPEN_TOO_LONG": "1s", "LOG_LEVEL": "debug",
	})
	return a
}

// putOff waits until an alert about an incident, for Slack or PagerDuty, has been put
// off.
func (a *alerting) putOff(incident, to string) {
	a.t.Helper()
	redistest.Await(a.t, 2*time.Minute, "an alert of "+incident+" for "+to+" is deferred", func() bool {
		page, err := a.client.List(context.Background(), jobs.ListOptions{
			Filter: jobs.Filter{Destination: store.AlertsDestination, Key: to}, Limit: 1000,
		})
		return err == nil && slices.ContainsFunc(page.Items, func(j *jobs.Job) bool {
			return j.RescheduleCount > 0 && strings.HasPrefix(j.ID, incident+".")
		})
	})
}

// Whatever goes wrong with the alerting, its secrets are told to nobody else.
func alertsKeepSecretsInTrouble(t *testing.T) {
	a := newCanaries(t)
	both := func(f fakehttp.Fault) func() {
		return func() {
			a.slack.SetFault(f)
			a.pager.SetFault(f)
		}
	}
	phases := []struct {
		name  string
		begin func()
	}{
		{"503", both(fakehttp.HTML(http.StatusServiceUnavailable))},
		{"503 after having acted", both(fakehttp.WithStatus(http.StatusServiceUnavailable).AfterActing())},
		{"cut", both(fakehttp.Dropping())},
		{"refused", func() {
			for _, down := range []func() error{a.slack.Down, a.pager.Down} {
				if err := down(); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"an error, and one of the webhook", func() {
			a.slack.SetFault(fakehttp.WithError("invalid_auth").On("auth.test", post, "chat.update"))
			a.slack.SetFault(fakehttp.WithError("no_service").On(fakeslack.Webhook))
			a.pager.SetFault(fakehttp.WithError("Invalid routing key"))
		}},
		{"hangs after having acted", both(fakehttp.Hanging().AfterActing())},
		{"429 with Retry-After", both(fakehttp.RateLimited(3 * time.Second))},
		{"429 without Retry-After", both(fakehttp.RateLimitedBare())},
	}
	for i := range phases {
		prefix := "DESTINATION_" + strconv.Itoa(i)
		a.set(map[string]string{prefix + "_NAME": fmt.Sprintf("%s-%d", a.dest, i), prefix + "_URL": a.url})
	}
	workers := a.startWorkers(2)
	for i, phase := range phases {
		began := time.Now()
		phase.begin()
		s, err := breaker.Trip(t.Context(), a.rdb, fmt.Sprintf("%s-%d", a.dest, i), breaker.TripOptions{For: time.Hour, By: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		if phase.name == "refused" {
			a.putOff(s.Incident, "slack")
			a.putOff(s.Incident, "pagerduty")
		} else {
			awaitFault(t, a.slack.Fake, began)
			awaitFault(t, a.pager.Fake, began)
		}
		if phase.name == "an error, and one of the webhook" {
			out, stderr, code := a.tidegate("alerts", "test")
			if code != 1 {
				t.Errorf("alerts test: exit %d", code)
			}
			a.checkText("what alerts test says", out+stderr)
		}
		for _, fix := range []func() error{a.slack.Up, a.pager.Up} {
			if err := fix(); err != nil {
				t.Fatal(err)
			}
		}
		a.slack.LiftFaults()
		a.pager.LiftFaults()
		t.Logf("%s: %s", phase.name, time.Since(began).Round(time.Millisecond))
	}
	a.awaitSlack(time.Minute, "a message", func(s story) bool { return len(s.messages) > 0 })
	a.awaitPager(time.Minute, 1)
	a.checkSecrets(workers)
}

// awaitFault waits until a call that began since has met a fault and ended.
func awaitFault(t *testing.T, f *fakehttp.Fake, since time.Time) {
	t.Helper()
	err := f.AwaitRequests(within(t, 40*time.Second), func(all []fakehttp.Request) bool {
		return slices.ContainsFunc(all, func(r fakehttp.Request) bool { return r.Fault != "" && r.At.After(since) && !r.Done.IsZero() })
	})
	if err != nil {
		t.Fatalf("no call met the fault: %v", err)
	}
}

// Errors of connections quote addresses, and one of them is a secret.
func alertsKeepSecretsFromConnectionErrors(t *testing.T) {
	const nowhere = "nothing-is-here.invalid"
	for _, c := range []struct {
		name string
		env  func(a *alerting) map[string]string
	}{
		{"unknown hosts", func(*alerting) map[string]string {
			return map[string]string{"SLACK_WEBHOOK_URL": "", "SLACK_API_URL": "http://" + nowhere + "/api/", "PAGERDUTY_API_URL": "https://" + nowhere + "/v2/enqueue"}
		}},
		{"webhook at an unknown host", func(*alerting) map[string]string {
			return map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_CHANNEL": "", "SLACK_WEBHOOK_URL": "https://" + nowhere + "/services/T/B/" + canaryWebhook}
		}},
		{"webhook that refuses connections", func(*alerting) map[string]string {
			return map[string]string{
				"SLACK_BOT_TOKEN": "", "SLACK_CHANNEL": "", "SLACK_WEBHOOK_URL": "http://127.0.0.1:1/services/T/B/" + canaryWebhook,
				"PAGERDUTY_API_URL": "http://127.0.0.1:1/v2/enqueue",
			}
		}},
		{"webhook that speaks no TLS", func(a *alerting) map[string]string {
			return map[string]string{
				"SLACK_BOT_TOKEN": "", "SLACK_CHANNEL": "",
				"SLACK_WEBHOOK_URL": strings.Replace(a.slack.WebhookURL(), "http:", "https:", 1),
			}
		}},
		{"webhook that redirects", func(a *alerting) map[string]string {
			a.slack.SetFault(fakehttp.WithStatus(http.StatusTemporaryRedirect).On(fakeslack.Webhook))
			return map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_CHANNEL": ""}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newCanaries(t)
			a.set(c.env(a))
			workers := a.startWorkers(1)
			s, err := breaker.Trip(t.Context(), a.rdb, a.dest, breaker.TripOptions{For: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			a.putOff(s.Incident, "slack")
			out, stderr, code := a.tidegate("alerts", "test")
			if code != 1 || !strings.Contains(out, "FAILED") {
				t.Errorf("alerts test: exit %d: %s%s", code, out, stderr)
			}
			a.checkText("what alerts test says", out+stderr)
			t.Logf("%s", strings.ReplaceAll(strings.TrimSpace(out), "\n", "; "))
			out, stderr, _ = a.tidegate("config", "check")
			a.checkText("what config check says", out+stderr)
			a.checkSecrets(workers)
		})
	}
}

// checkText looks for secrets in a text.
func (f *fleet) checkText(what, text string) {
	f.t.Helper()
	if i := strings.Index(text, canary); i >= 0 {
		f.t.Errorf("a secret stands in %s: …%q…", what, text[max(0, i-200):min(len(text), i+60)])
	}
}

// checkSecrets looks for secrets wherever somebody may read.
func (a *alerting) checkSecrets(workers []*worker) {
	a.t.Helper()
	for _, w := range workers {
		if log := w.log.String(); !strings.Contains(log, `"level":"DEBUG"`) {
			a.t.Error("the log is not at debug level")
		} else {
			a.checkText("a worker's log", log)
		}
	}
	if n := a.checkRedis(); n < 10 {
		a.t.Errorf("only %d keys in Redis", n)
	}
	for _, base := range []string{a.slack.URL(), a.pager.URL()} {
		a.checkText("what was sent", a.fetch(base+"/_state"))
	}
	out, stderr, code := a.tidegate("list", "--destination", store.AlertsDestination, "--limit", "1000", "-o", "json")
	a.checkText("list", out+stderr)
	var page struct{ Items []jobs.Job }
	if err := json.Unmarshal([]byte(out), &page); err != nil || code != 0 || len(page.Items) == 0 {
		a.t.Fatalf("list: exit %d, %v: %s%s", code, err, out, stderr)
	}
	for _, j := range page.Items[:min(len(page.Items), 6)] {
		for _, args := range [][]string{{"get", j.ID}, {"get", j.ID, "-o", "json"}, {"history", j.ID, "-o", "json"}} {
			out, stderr, code := a.tidegate(args...)
			if code != 0 {
				a.t.Errorf("%v: exit %d: %s", args, code, stderr)
			}
			a.checkText(strings.Join(args, " "), out+stderr)
		}
	}
}

// fetch is what a URL of a fake's answers.
func (a *alerting) fetch(url string) string {
	a.t.Helper()
	req, err := http.NewRequestWithContext(within(a.t, 10*time.Second), http.MethodGet, url, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := (&http.Client{Timeout: 2 * time.Minute}).Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || len(body) == 0 {
		a.t.Fatalf("%s: %v", url, err)
	}
	return string(body)
}

// checkRedis looks for secrets in all that Redis holds, and returns how many keys that is.
func (f *fleet) checkRedis() int {
	f.t.Helper()
	ctx := context.Background()
	keys, err := f.rdb.Keys(ctx, "*").Result()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, key := range keys {
		var value any
		kind := f.rdb.Type(ctx, key).Val()
		switch kind {
		case "string":
			value, err = f.rdb.Get(ctx, key).Result()
		case "hash":
			value, err = f.rdb.HGetAll(ctx, key).Result()
		case "list":
			value, err = f.rdb.LRange(ctx, key, 0, -1).Result()
		case "set":
			value, err = f.rdb.SMembers(ctx, key).Result()
		case "zset":
			value, err = f.rdb.ZRange(ctx, key, 0, -1).Result()
		case "none":
			continue // it has expired meanwhile
		default:
			f.t.Errorf("%s is a %s", key, kind)
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			f.t.Fatal(err)
		}
		f.checkText("Redis at "+key, fmt.Sprint(key, value))
	}
	return len(keys)
}
