package alerts

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeslack"
)

// redisHarness is some workers that ask a Redis which is lost when the test says so.
type redisHarness struct {
	*harness
	down    bool
	watches []*redisWatch
}

func newRedisBench(t *testing.T, n int, change ...func(*setup)) *redisHarness {
	t.Helper()
	r := &redisHarness{harness: newHarness(t, n, change...)}
	for i, a := range r.workers {
		w := newRedisWatch(a)
		w.now = r.clock.Now
		w.ping = func(context.Context) (duty, error) {
			if r.down {
				return dutyNone, errors.New("dial tcp: connection refused")
			}
			return [...]duty{dutyFirst, dutyDeputy, dutyNone}[min(i, 2)], nil
		}
		r.watches = append(r.watches, w)
	}
	return r
}

// look has all workers look at an instant.
func (r *redisHarness) look(at time.Duration) {
	r.t.Helper()
	r.moveTo(start.Add(at))
	for _, w := range r.watches {
		w.look(r.t.Context())
	}
}

func TestRedisLostAndBack(t *testing.T) {
	t.Parallel()
	r := newRedisBench(t, 2)
	r.look(0)
	r.down = true
	r.look(10 * time.Second)
	r.look(40*time.Second - time.Millisecond)
	same(t, "calls within 30 seconds", 0, r.slack.Calls()+r.pager.Calls())
	for at := 40 * time.Second; at < 2*time.Minute; at += 5 * time.Second {
		r.look(at)
	}
	id := r.watches[0].notice(single{Kind: redisLost}).ID
	lost := seen{ID: id, At: 40 * time.Second, Text: r.texts()[0]}
	same(t, "channel", []seen{lost}, r.channel())
	if !strings.HasPrefix(lost.Text, "worker worker-1 cannot reach Redis since 12:00:10 UTC: ") {
		t.Errorf("text %q", lost.Text)
	}
	same(t, "open in PagerDuty", 1, len(r.pager.Open()))
	r.down = false
	r.look(2 * time.Minute)
	r.look(3 * time.Minute)
	same(t, "channel", []seen{lost, {
		ID: id + "-back", At: 2 * time.Minute, Reply: id, Broadcast: true, Text: "worker worker-1 reaches Redis again after 1 min 50 s",
	}}, r.channel())
	if incidents := r.pager.Incidents(); len(incidents) != 1 || incidents[0].State != "resolved" {
		t.Errorf("PagerDuty: %v", r.paged())
	}
}

// A worker loses its duty after a minute without a heartbeat. If the first worker is lost together with Redis, the deputy
// notifies Slack after 10 minutes, and no other worker does.
func TestFirstWorkerIsLostWithRedis(t *testing.T) {
	t.Parallel()
	r := newRedisBench(t, 4)
	ask := func(me string, want duty) {
		t.Helper()
		if d, err := r.workers[0].ping(t.Context(), me); d != want || err != nil {
			t.Errorf("worker %s has the duty %d, %v; want %d", me, d, err, want)
		}
	}
	ask("a", dutyFirst)
	ask("b", dutyDeputy)
	ask("c", dutyNone)
	ask("a", dutyFirst)
	r.moveTo(start.Add(time.Minute))
	ask("c", dutyFirst)
	ask("b", dutyDeputy)
	r.look(2 * time.Minute)
	r.down, r.watches = true, r.watches[1:]
	for at := 2 * time.Minute; at < 20*time.Minute; at += 5 * time.Second {
		r.look(at)
	}
	r.down = false
	r.look(20 * time.Minute)
	id := r.watches[0].notice(single{Kind: redisLost}).ID
	var got []seen
	for _, s := range r.channel() {
		got = append(got, seen{ID: s.ID, At: s.At, Reply: s.Reply})
	}
	same(t, "channel", []seen{{ID: id, At: 12 * time.Minute}, {ID: id + "-back", At: 20 * time.Minute, Reply: id}}, got)
	if e := r.pager.Incidents(); len(e) != 1 || e[0].OpenedAt.Sub(start) != 2*time.Minute+lostAfter {
		t.Errorf("PagerDuty: %v", r.paged())
	}
}

// An outage of less than 30 seconds makes no alert.
func TestShortOutageOfRedis(t *testing.T) {
	t.Parallel()
	r := newRedisBench(t, 2)
	for at := time.Duration(0); at < 10*time.Minute; at += 5 * time.Second {
		r.down = at%(30*time.Second) >= 5*time.Second
		r.look(at)
	}
	same(t, "calls", 0, r.slack.Calls()+r.pager.Calls())
}

// Slack is away together with Redis, as when the network is: it gets the alert as soon as
// Slack can be reached.
func TestRedisAndSlackLost(t *testing.T) {
	t.Parallel()
	for _, f := range []fakehttp.Fault{fakehttp.Dropping(), fakehttp.Dropping().AfterActing(), fakehttp.WithStatus(503).AfterActing()} {
		r := newRedisBench(t, 2, withoutPager)
		r.slack.SetFault(f.During(3 * time.Minute))
		r.look(0)
		r.down = true
		for at := time.Duration(0); at < 5*time.Minute; at += 5 * time.Second {
			r.look(at)
		}
		r.down = false
		r.look(5 * time.Minute)
		id := r.watches[0].notice(single{Kind: redisLost}).ID
		same(t, "channel", []string{id, id + "-back"}, slices.Compact(r.sent()))
		if n := len(r.sent()); n > 7 {
			t.Errorf("%d messages, want one in 30 seconds at most", n)
		}
	}
}

// With a webhook, each worker reports by itself, and once.
func TestRedisLostThroughAWebhook(t *testing.T) {
	t.Parallel()
	r := newRedisBench(t, 1, withoutPager, func(o *setup) {
		withoutSlack(o)
		o.Slack.Webhook = strings.TrimSuffix(o.Slack.API, "/api/") + "/services/T000/B000/" + fakeslack.DefaultSecret
	})
	r.look(0)
	r.down = true
	for at := time.Duration(0); at < 5*time.Minute; at += 5 * time.Second {
		r.look(at)
	}
	r.down = false
	r.look(5 * time.Minute)
	r.look(6 * time.Minute)
	if got := r.texts(); len(got) != 2 || !strings.Contains(got[0], "cannot reach Redis") || !strings.Contains(got[1], "reaches Redis again") {
		t.Errorf("channel: %q", got)
	}
}
