package alerts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
)

// What lies in Redis cannot be read: it counts as nothing, and alerting goes on.
func TestRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "no JSON", "[]", `{"cases":"of another version"}`, `{"cases":[{"id":7}]}`, `{"cases":[{"openings":"x"},{}]}`, "null", `"\u0000"`} {
		t.Run(raw, func(t *testing.T) {
			t.Parallel()
			b := newHarness(t, 1)
			for _, name := range []string{"shop", "shop/*"} {
				if err := b.rdb.Set(t.Context(), key("record", "slack", name), raw, 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			b.lookAround()
			id := b.trip("shop")
			b.trip("shop/ann")
			b.play(20 * time.Minute)
			b.reset("shop")
			b.reset("shop/ann")
			b.play(time.Hour)
			var of []string
			for _, told := range b.sent() {
				if strings.HasPrefix(told, id) {
					of = append(of, told)
				}
			}
			same(t, "channel", []string{id + ".message", id + ".page", id + ".recovery"}, of)
			same(t, "messages", 5, len(b.sent()))
		})
	}
}

// A failover brings a Redis whose clock is ten minutes behind: new incidents are reported.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager)
	b.play(time.Hour)
	first := b.trip("shop")
	b.settle()
	b.reset("shop")
	b.settle()
	b.clock.set(b.now().Add(-10 * time.Minute))
	second := b.trip("shop")
	b.settle()
	b.play(b.elapsed() + 5*time.Minute)
	b.reset("shop")
	b.play(3 * time.Hour)
	got := b.sent()
	for _, want := range []string{first + ".message", first + ".recovery"} {
		if len(only(got, want)) != 1 {
			t.Errorf("%s is sent %d times", want, len(only(got, want)))
		}
	}
	if len(only(got, second)) == 0 {
		t.Errorf("the second incident is not reported: %v", got)
	}
	if last := b.channel()[len(got)-1]; !strings.Contains(last.Text, "closed by hand") {
		t.Errorf("the last message is %q", last.Text)
	}
}

// A breaker's data is lost while it is open: its message does not stay open.
func TestLostBreakerIsReportedAsOver(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager)
	id := b.trip("shop")
	b.play(time.Minute)
	keys, err := b.rdb.Keys(t.Context(), "tidegate:{shop}:*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	if err := b.rdb.Del(t.Context(), keys...).Err(); err != nil {
		t.Fatal(err)
	}
	b.play(2 * time.Minute)
	b.lookAround()
	b.play(10 * time.Minute)
	same(t, "channel", []string{id + ".message", id + ".recovery"}, b.sent())
	if last := b.channel()[1].Text; !strings.Contains(last, "lost") {
		t.Errorf("the last message is %q", last)
	}
}

// Secrets that answers repeat get nowhere: not into the log, an error, Redis or a message.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	const canary, routing = "CANARYcanaryCANARYcanary", "c0ffeec0ffeec0ffeec0ffeec0ffee00"
	token := "xoxb-" + canary
	hostile := []string{
		"<h1>Not Found</h1>The requested URL /services/T0/B0/" + canary + " was not found; you sent " + routing + " with Bearer " + token,
		`{"ok":false,"error":"` + token + `","needed":"` + token + `"}`,
		`{"ok":false,"error":"missing_scope","needed":"` + strings.ToLower(canary) + " " + token + `"}`,
		`{"status":"invalid event","message":"` + routing + `","errors":["no such key ` + routing + `"]}`,
		`{"ok":true,"channel":"` + canary + `"}`, canary,
	}
	for i, body := range hostile {
		for _, status := range []int{0, 200, 302, 404, 429} { // 0: no answer
			t.Run(fmt.Sprint(i, " with status ", status), func(t *testing.T) {
				t.Parallel()
				b := newHarness(t, 0)
				b.worker(func(o *setup) {
					o.Slack.Token, o.Pager.Key = token, routing
					o.Slack.Webhook = strings.TrimSuffix(b.slack.APIURL(), "/api/") + "/services/T0/B0/" + canary
				})
				b.line.instead = answer(status, body, "Location", "/services/T0/B0/"+canary, "Retry-After", canary) //nolint:bodyclose // the caller's to close
				if status == 0 {
					b.line.instead = func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
				}
				b.workers[0].logProblems(t.Context())
				b.call("shop", breaker.RateLimited(0))
				for _, at := range []time.Duration{0, 6 * time.Minute, 15 * time.Minute, 25 * time.Hour} {
					b.moveTo(start.Add(at))
					b.settle()
				}
				_ = b.workers[0].Test(t.Context(), func(s Step) { _, _ = fmt.Fprintln(b.log, s) })
				seen := b.log.String()
				for _, task := range b.tasks {
					seen += fmt.Sprint(task.err)
				}
				values, err := dump(t.Context(), b.rdb)
				if err != nil {
					t.Fatal(err)
				}
				for _, secret := range []string{canary, strings.ToLower(canary), routing} {
					if at := strings.Index(seen, secret); at >= 0 {
						t.Errorf("a log or an error has a secret: …%s", seen[max(0, at-200):at+len(secret)])
					}
					for name, value := range values {
						if strings.Contains(value, secret) {
							t.Errorf("in Redis, %s has a secret: %s", name, value)
						}
					}
				}
			})
		}
	}
}

// dump returns all that is in a Redis.
func dump(ctx context.Context, rdb *redis.Client) (map[string]string, error) {
	names, err := rdb.Keys(ctx, "*").Result()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, name := range names {
		kind, err := rdb.Type(ctx, name).Result()
		if err != nil {
			return nil, err
		}
		var value any
		switch kind {
		case "string":
			value, err = rdb.Get(ctx, name).Result()
		case "hash":
			value, err = rdb.HGetAll(ctx, name).Result()
		case "list":
			value, err = rdb.LRange(ctx, name, 0, -1).Result()
		case "zset":
			value, err = rdb.ZRange(ctx, name, 0, -1).Result()
		case "set":
			value, err = rdb.SMembers(ctx, name).Result()
		}
		if err != nil {
			return nil, err
		}
		out[name] = fmt.Sprint(value)
	}
	return out, nil
}
