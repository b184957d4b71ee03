package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/fakehttp"
	"github.com/tidegate/tidegate/internal/fakepager"
	"github.com/tidegate/tidegate/internal/fakeslack"
	"github.com/tidegate/tidegate/jobs"
)

// onlyMessage checks that Slack has got one message, and returns what it says.
func (a *alerting) onlyMessage() string {
	a.t.Helper()
	all := a.slack.Messages()
	if len(all) != 1 || all[0].ThreadTS != "" {
		a.t.Fatalf("%d messages, want one", len(all))
	}
	return all[0].Text
}

// Jobs that fail together are one alert, whichever workers they fail in.
func alertsOfFailedBurst(t *testing.T) {
	const n = 12
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.set(map[string]string{"ALERT_FAILED_BURST": "5/1m"})
	a.api.SetScript(func(int, *http.Request) *fakeapi.Answer {
		return &fakeapi.Answer{Status: http.StatusBadRequest, Body: "what is this?"}
	})
	a.startWorkers(3)
	ids := a.enqueue(n)
	a.awaitSlack(20*time.Second, "the burst", func(s story) bool { return len(s.messages) > 0 })
	redistest.Await(t, 2*time.Minute, "all jobs have failed and are counted", func() bool {
		counted := 0
		for _, v := range a.rdb.HVals(t.Context(), "tidegate:{"+store.AlertsDestination+"}:failed:"+a.dest).Val() {
			var one int
			_, _ = fmt.Sscan(v, &one)
			counted += one
		}
		return counted == n
	})
	for _, id := range ids {
		if j := a.job(id); j.Status != jobs.Failed {
			t.Errorf("job %s is %s", id, j.Status)
		}
	}
	a.settle(20 * time.Second)
	var failed int
	text := a.onlyMessage()
	if _, err := fmt.Sscanf(text, a.dest+": %d jobs failed within 1 min", &failed); err != nil || failed < 5 || failed > n {
		t.Errorf("the message says %q (%v)", text, err)
	}
	if !strings.Contains(text, "400") {
		t.Errorf("the message does not say how the last one failed: %q", text)
	}
}

// A job that kills its worker is told of once.
func alertsOfPoison(t *testing.T) {
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.set(map[string]string{"MAX_CRASHES": "1"})
	a.api.SetScript(func(int, *http.Request) *fakeapi.Answer { return &fakeapi.Answer{Delay: 20 * time.Second} })
	victim := a.startWorkers(1)[0]
	ids := a.enqueue(1, jobs.Key("alice"))
	if err := a.api.Wait(within(t, 20*time.Second), func(s fakeapi.Stats) bool { return s.InFlight == 1 }); err != nil {
		t.Fatal(err)
	}
	victim.kill()
	if lost := a.ageLeasesOf(victim.pid(), a.dest); len(lost) != 1 {
		t.Fatalf("the dead worker had %q in hand, want 1", lost)
	}
	a.startWorkers(2)
	a.awaitSlack(30*time.Second, "the poison job", func(s story) bool { return len(s.messages) > 0 })
	a.settle(20 * time.Second)
	if j := a.job(ids[0]); j.Status != jobs.Failed || j.Crashes != 1 {
		t.Errorf("the job is %s after %d crashes", j.Status, j.Crashes)
	}
	if text, want := a.onlyMessage(), a.dest+": a job killed 1 worker and was stopped: "+ids[0]; text != want {
		t.Errorf("the message says %q, want %q", text, want)
	}
	if text := spoken("", a.slack.Messages()[0].Blocks); !strings.Contains(text, "alice") || !strings.Contains(text, "tidegate history "+ids[0]) {
		t.Errorf("the message names neither key nor command:\n%s", text)
	}
}

// A job that waits for too long is told of once, by one of the workers, with the reason.
func alertsOfOldestPending(t *testing.T) {
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.set(map[string]string{"ALERT_OLDEST_PENDING": "2s"})
	if _, stderr, code := a.tidegate("queue", "pause", a.dest); code != 0 {
		t.Fatalf("pause: exit %d: %s", code, stderr)
	}
	a.enqueue(3)
	redistest.Await(t, 2*time.Minute, "they have waited for two seconds", func() bool { return a.stats(a.dest)[0].OldestPendingAge > 2.1 })
	a.startWorkers(3)
	a.awaitSlack(20*time.Second, "the job", func(s story) bool { return len(s.messages) > 0 })
	a.settle(20 * time.Second)
	text := a.onlyMessage()
	if !strings.HasPrefix(text, a.dest+": the oldest job has waited for ") || !strings.HasSuffix(text, ": it is paused; 3 jobs wait") {
		t.Errorf("the message says %q", text)
	}
}

// Redis is killed and comes back after more than half a minute. Where Slack lets the
// app read the channel it is told once, elsewhere by each worker once at most; that
// Redis is back is a reply.
func alertsOfRedisLost(t *testing.T) {
	const workers = 3
	for _, c := range []struct {
		name   string
		scopes []string
		most   int
	}{
		{"channel can be read", nil, 1},
		{"channel cannot be read", []string{"chat:write"}, workers},
	} {
		if c.scopes != nil && !long {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			a := newAlerting(t, fakeslack.Options{Scopes: c.scopes}, fakepager.Options{})
			all := a.startWorkers(workers)
			a.server.Kill()
			lost := time.Now()
			// All have told or have seen that somebody has when as many have told PagerDuty,
			// which is first, and have looked or posted after that.
			a.awaitPager(90*time.Second, workers)
			err := a.slack.AwaitRequests(within(t, 60*time.Second), func(all []fakehttp.Request) bool {
				n := 0
				for _, r := range all {
					if !r.Done.IsZero() && r.At.After(lost) && (r.Method == post && c.scopes != nil || r.Method == "conversations.history") {
						n++
					}
				}
				return n >= workers
			})
			if err != nil {
				t.Fatal(err)
			}
			told := a.awaitSlack(20*time.Second, "the message", func(s story) bool { return len(s.messages) > 0 })
			away := time.Since(lost)
			a.server.Restart()
			a.awaitSlack(30*time.Second, "that Redis is back", func(s story) bool { return len(s.pages) > 0 })
			if err := a.pager.Wait(within(t, 30*time.Second), func() bool { return len(a.pager.Open()) == 0 }); err != nil {
				t.Errorf("the page is not resolved: %v", a.pager.Open())
			}
			ids := a.enqueue(20)
			a.waitCompleted(ids, 30*time.Second)
			// Each worker has noticed that it is back.
			for _, w := range all {
				redistest.Await(t, 2*time.Minute, "the worker is in touch with Redis", func() bool { return strings.Contains(w.log.String(), "redis answers again") })
			}
			<-time.After(6 * time.Second) // each looks every five seconds: nobody is to say anything more

			s := storyOf(a.slack.Messages())
			if n := len(s.messages); n < 1 || n > c.most {
				t.Errorf("%d messages, want 1 to %d", n, c.most)
			}
			if n := len(s.pages); n < 1 || n > c.most || len(s.replies) != 0 {
				t.Errorf("%d replies in the channel and %d others, want 1 to %d and none", n, len(s.replies), c.most)
			}
			for _, m := range s.messages {
				if !strings.Contains(m.Text, " cannot reach Redis since ") {
					t.Errorf("a message says %q", m.Text)
				}
			}
			for _, m := range s.pages {
				if !strings.Contains(m.Text, " reaches Redis again after ") {
					t.Errorf("a reply says %q", m.Text)
				}
			}
			if incidents := a.pager.Incidents(); len(incidents) != 1 || incidents[0].Triggers != workers {
				t.Errorf("PagerDuty has %+v, want one incident of which %d workers told", incidents, workers)
			}
			t.Logf("told %s after Redis was killed; Redis was away for %s: %d messages, %d replies, %q",
				told.messages[0].PostedAt.Sub(lost).Round(time.Second), away.Round(time.Second), len(s.messages), len(s.pages), told.messages[0].Text)
		})
	}
}
