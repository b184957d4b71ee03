package e2e

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/fakehttp"
	"github.com/tidegate/tidegate/internal/fakepager"
	"github.com/tidegate/tidegate/internal/fakeslack"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Alerting neither slows publishing nor makes it fail, also while Slack never answers
// and there is much to report; and a healthy job costs Redis what it costs without. The long
// form measures times, so it runs alone, with and without alerting in turn.
func TestAlertsCostPublishingNothing(t *testing.T) {
	rounds := 2
	if long {
		rounds = 20
	} else {
		t.Parallel()
	}
	both := [2]*neighbours{newNeighbours(t, false), newNeighbours(t, true)}
	var medians [2][]float64
	var commands [2]map[string]float64
	for i, n := range both {
		n.measureIdle()
		commands[i] = map[string]float64{}
	}
	for range rounds {
		for i, n := range both {
			for name, calls := range n.commandsPerJob() {
				if least, known := commands[i][name]; !known || calls < least {
					commands[i][name] = calls
				}
			}
		}
	}
	for _, n := range both {
		n.trouble()
	}
	// Whatever else the machine does makes them worse, never better.
	slow := func() bool {
		return long && (len(medians[0]) == 0 || slices.Min(medians[1]) > 1.5*slices.Min(medians[0]))
	}
	for round := 0; round == 0 || long && round < rounds || slow() && round < 6*rounds; round++ {
		for i, n := range both {
			medians[i] = append(medians[i], n.publish().Seconds())
		}
	}
	for _, n := range both {
		n.check()
	}
	t.Logf("seconds within which half of the jobs were published: %.3f without alerting, %.3f with it", medians[0], medians[1])
	for _, name := range slices.Sorted(maps.Keys(commands[1])) {
		if with, without := commands[1][name], commands[0][name]; max(with, without) > 0.1 {
			t.Logf("a job costs %.2f %s without alerting, %.2f with it", without, name, with)
		}
	}
	if slow() {
		t.Errorf("half of the jobs were published within %.3f s, without alerting within %.3f s", slices.Min(medians[1]), slices.Min(medians[0]))
	}
	for name, with := range commands[1] {
		// One more for each job would be 1; how many jobs are fetched at once varies.
		if without := commands[0][name]; with > max(without, 0)+0.75 {
			t.Errorf("a healthy job costs %.2f %s, without alerting %.2f", with, name, without)
		}
	}
}

// neighbours are two destinations of the same workers, one of which is healthy.
type neighbours struct {
	*alerting
	told    bool
	healthy string
	ids     []string
	idle    map[string]float64
}

// newNeighbours starts workers whose alerts, if there are any, are for a Slack that
// never answers.
func newNeighbours(t *testing.T, told bool) *neighbours {
	t.Helper()
	n := &neighbours{alerting: newAlerting(t, fakeslack.Options{}, fakepager.Options{}), told: told}
	if told {
		n.set(map[string]string{"ALERT_OPEN_TOO_LONG": "1s", "ALERT_FAILED_BURST": "5/1m", "ALERT_OLDEST_PENDING": "1h"})
	} else {
		n.set(map[string]string{
			"SLACK_BOT_TOKEN": "", "SLACK_CHANNEL": "", "PAGERDUTY_ROUTING_KEY": "", "ALERT_ONCALL_MENTION": "", "ALERT_OPEN_TOO_LONG": "",
		})
	}
	n.slack.SetFault(fakehttp.Hanging())
	n.healthy = n.dest + "-healthy"
	n.serveToo(n.healthy)
	n.api.SetLatency(50 * time.Millisecond)
	n.api.SetScript(func(_ int, r *http.Request) *fakeapi.Answer {
		if n.limited.Load() && strings.HasPrefix(r.URL.Path, "/limited") {
			return &fakeapi.Answer{Status: http.StatusTooManyRequests}
		}
		return nil
	})
	n.startWorkers(2)
	n.publish() // warms up
	return n
}

// publish has 300 jobs of the healthy destination published, and returns how long half
// of them took from the first call on: idle workers look for jobs at intervals.
func (n *neighbours) publish() time.Duration {
	n.t.Helper()
	specs := make([]*jobs.Spec, 300)
	for i := range specs {
		specs[i] = jobs.New(n.healthy, i)
	}
	before := len(n.api.Receipts())
	ids := n.enqueueSpecs(specs)
	n.ids = append(n.ids, ids...)
	ours := map[string]bool{}
	for _, id := range ids {
		ours[id] = true
	}
	var calls []fakeapi.Receipt
	redistest.Await(n.t, 2*time.Minute, "all are published", func() bool {
		calls = slices.DeleteFunc(n.api.Receipts()[before:], func(r fakeapi.Receipt) bool { return !ours[r.Key] || r.Done.IsZero() })
		return len(calls) == len(ids)
	})
	return calls[len(calls)/2].Done.Sub(calls[0].At)
}

// measureIdle counts what is called without jobs.
func (n *neighbours) measureIdle() {
	n.t.Helper()
	n.idle = n.count(func() { <-time.After(time.Second) }) // the time without jobs
}

// count is how often each command is called in a second, inside of scripts too.
func (n *neighbours) count(during func()) map[string]float64 {
	n.t.Helper()
	n.server.ResetStats(n.t)
	began := time.Now()
	during()
	stats, seconds := n.server.CommandStats(n.t), time.Since(began).Seconds()
	out := map[string]float64{}
	for name, calls := range stats {
		out[name] = float64(calls) / seconds
	}
	out[""] = seconds
	return out
}

// commandsPerJob is what a job costs Redis beyond what is called without jobs.
func (n *neighbours) commandsPerJob() map[string]float64 {
	n.t.Helper()
	before := len(n.ids)
	busy := n.count(func() { n.publish() })
	perSecond := float64(len(n.ids)-before) / busy[""]
	delete(busy, "")
	for name := range busy {
		busy[name] = (busy[name] - n.idle[name]) / perSecond
	}
	return busy
}

// trouble opens the other destination's breaker, of which there is much to tell.
func (n *neighbours) trouble() {
	n.t.Helper()
	n.limited.Store(true)
	specs := make([]*jobs.Spec, 20)
	for i := range specs {
		specs[i] = jobs.New(n.dest, i, jobs.Path("/limited"))
	}
	n.enqueueSpecs(specs)
	redistest.Await(n.t, 2*time.Minute, "a probe has failed", func() bool { return len(n.failedProbes()) > 0 })
	if !n.told {
		return
	}
	if err := n.slack.AwaitRequests(within(n.t, 10*time.Second), func(all []fakehttp.Request) bool {
		return slices.ContainsFunc(all, func(r fakehttp.Request) bool { return r.Method == post })
	}); err != nil {
		n.t.Fatal(err)
	}
	n.awaitPager(10*time.Second, 1)
}

// check checks that every job was published by the first call, and that Slack hung.
func (n *neighbours) check() {
	n.t.Helper()
	n.waitCompleted(n.ids, 10*time.Second)
	accepted := n.api.Accepted()
	for _, id := range n.ids {
		if j := n.job(id); j.Attempt != 0 || j.RescheduleCount != 0 || accepted[id] != 1 {
			n.t.Errorf("job %s: %d retries, put off %d times, accepted %d times", id, j.Attempt, j.RescheduleCount, accepted[id])
		}
	}
	for _, r := range n.slack.Requests() {
		if r.Status != 0 {
			n.t.Errorf("Slack answered a call of %s", r.Method)
		}
	}
}
