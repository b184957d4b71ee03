package alerts

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

func bursts(o *setup) { o.FailedBurst, o.FailedWithin = 50, 5*time.Minute }

// ended has all workers report poison jobs to Redis.
func (b *harness) ended() {
	b.t.Helper()
	b.send()
	b.settle()
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

// Failed jobs of all queues count, those of names that the destination also serves too, as long as they
// are as young as FAILED_WITHIN.
func TestBurst(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2, bursts)
	queues := append(store.DefaultNamespace.Queues("shop"), store.DefaultNamespace.Queues("old-shop")...)
	fail := func(from, n int) {
		worker, err := json.Marshal(store.Worker{SeenAt: b.now().UnixMilli(), Destinations: []string{"old-shop", "shop"}, ServedBy: map[string]string{"old-shop": "shop"}})
		if err := errors.Join(err, b.rdb.HSet(t.Context(), store.DefaultNamespace.WorkersKey(), "worker", worker).Err()); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			z := redis.Z{Score: float64(b.now().UnixMilli()), Member: fmt.Sprint("job-", from+i)}
			if err := b.rdb.ZAdd(t.Context(), store.FailedKey(queues[i%len(queues)]), z).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	fail(0, 30)
	b.play(6 * time.Minute)
	fail(100, 49)
	same(t, "below the bound", []string(nil), b.lookFor())
	b.play(7 * time.Minute)
	fail(200, 1)
	want := []string{"shop: 50 jobs failed within 5 min; the last one: "}
	same(t, "at the bound", want, b.lookFor())
	b.play(8 * time.Minute)
	fail(300, 30)
	same(t, "later", want, b.lookFor())
}

// A destinations file that workers cannot take up is one alert of the fleet, resolved once all can.
func TestDestinationsFile(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*setup){"Slack": func(*setup) {}, "a pager alone": func(o *setup) { o.Slack.Token = "" }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newHarness(t, 2, change)
			look := func(at time.Duration, problems ...string) {
				t.Helper()
				b.play(at)
				for i, problem := range problems {
					worker, err := json.Marshal(store.Worker{SeenAt: b.now().UnixMilli(), ConfigVersion: "a1b2c3d4", ConfigProblem: problem})
					if err := errors.Join(err, b.rdb.HSet(t.Context(), store.DefaultNamespace.WorkersKey(), fmt.Sprint("w", i+1), worker).Err()); err != nil {
						t.Fatal(err)
					}
				}
				b.lookFor()
			}
			look(1*time.Minute, "", "")
			look(2*time.Minute, "", "line 3: tmeout is no setting")
			look(3*time.Minute, "line 3: tmeout is no setting", "line 3: tmeout is no setting")
			look(4 * time.Minute) // no worker is alive
			look(5*time.Minute, "line 9: another", "")
			look(7*time.Minute, "", "")
			look(8*time.Minute, "", "")
			if name == "Slack" {
				same(t, "channel", []string{
					"The destinations file cannot be taken up by 1 worker: line 3: tmeout is no setting",
					"The destinations file is good again after 5 min",
				}, b.texts())
				return
			}
			same(t, "open at the pager", 0, len(b.pager.Open()))
			same(t, "incidents of the pager", 1, len(b.pager.Incidents()))
		})
	}
}

// Poison jobs are reported at once, and those of one destination every ten minutes at most.
func TestPoisonJobs(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	poison := func(at time.Duration, destination, job string) {
		b.play(at)
		for _, a := range b.workers { // two report it: the job ran into both
			a.notePoison(single{Destination: destination, Job: job, Count: 3, Problem: "killed"})
		}
		b.ended()
	}
	poison(9*time.Minute, "shop", "job-1")
	poison(9*time.Minute, "blog", "job-2")
	poison(10*time.Minute, "shop", "job-3")
	poison(19*time.Minute, "shop", "job-4")
	same(t, "channel", []string{
		"shop: a job killed 3 workers and was stopped: job-1",
		"blog: a job killed 3 workers and was stopped: job-2",
		"shop: a job killed 3 workers and was stopped: job-4",
	}, b.texts())
	same(t, "calls of PagerDuty", 0, b.pager.Calls())
}

// Without Slack, PagerDuty gets these alerts.
func TestPoisonJobInPagerDuty(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutSlack)
	b.workers[0].notePoison(single{Destination: "shop", Job: "job-1", Count: 3})
	b.ended()
	if e := b.pager.Events(); len(e) != 1 || e[0].Action != "trigger" || e[0].Payload.Severity != "warning" || e[0].Payload.Class != "poison job" {
		t.Errorf("PagerDuty: %v", b.paged())
	}
}

// The last refusals are the reason that an alert gives.
func TestAnswersAreTheReason(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	for i := range 5 {
		b.workers[0].noteRefusal(refusal{At: b.now(), Destination: "shop", Kind: limited, Job: fmt.Sprint("job-", i), Status: 429, Body: fmt.Sprint("too many, ", i)})
	}
	if err := b.workers[0].flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.call("shop", breaker.RateLimited(0))
	b.settle()
	blocks := string(b.slack.Messages()[0].Blocks)
	for i := range 5 {
		if has := strings.Contains(blocks, fmt.Sprint("too many, ", i)); has != (i >= 2) {
			t.Errorf("answer %d is shown: %v, want the last three", i, has)
		}
	}
}

func TestOldestPendingJob(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2, func(o *setup) { o.OldestPending = time.Hour })
	client, err := jobs.NewClient(b.rdb, jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	job, err := client.Enqueue(t.Context(), jobs.New("shop", "x"))
	if err != nil {
		t.Fatal(err)
	}
	from := job.CreatedAt
	look := func(after time.Duration) []string {
		t.Helper()
		b.moveTo(from.Add(after))
		return slices.DeleteFunc(b.lookFor(), func(text string) bool { return strings.HasPrefix(text, "shop: no worker serves it") })
	}
	b.clock.set(from)
	same(t, "after an hour", 0, len(look(time.Hour)))
	first := []string{"shop: the oldest job has waited for 1 h 1 min: no worker has served shop yet; start one with: tidegate worker; 1 job waits"}
	same(t, "after a minute more", first, look(61*time.Minute))
	same(t, "half an hour later", first, look(91*time.Minute))
	same(t, "an hour later", 2, len(look(2*time.Hour+2*time.Minute)))
}

// heartbeat writes the record of a worker that serves the destination shop.
func (b *harness) heartbeat(name string, unreachable map[string]store.Unreachable) {
	b.t.Helper()
	text, err := json.Marshal(store.Worker{
		StartedAt: start.UnixMilli(), SeenAt: b.now().UnixMilli(), Destinations: []string{"shop"}, Unreachable: unreachable,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.rdb.HSet(b.t.Context(), store.DefaultNamespace.WorkersKey(), name, text).Err(); err != nil {
		b.t.Fatal(err)
	}
}

// The message about an old job that is not in line says what the job waits for.
func TestWhyTheOldestJobWaits(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	client, err := jobs.NewClient(b.rdb, jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	b.heartbeat("w", nil)
	for id, at := range map[string]time.Time{"in-line": b.now(), "later": b.now().Add(time.Hour)} {
		if _, err := client.Enqueue(t.Context(), jobs.New("shop", "x", jobs.ID(id), jobs.At(at))); err != nil {
			t.Fatal(err)
		}
	}
	a := b.workers[0]
	same(t, "of a job in line", "", a.whyItWaits(t.Context(), "in-line"))
	same(t, "of one that does not exist", "", a.whyItWaits(t.Context(), "gone"))
	if got := a.whyItWaits(t.Context(), "later"); !strings.HasPrefix(got, "scheduled: starts ") {
		t.Errorf("of one for later: %q", got)
	}
}

// That an API refuses jobs and accepts others is notified once an hour, with their number and one of them.
func TestJobsRefusedAlone(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	look := func(after time.Duration) []string {
		t.Helper()
		b.moveTo(start.Add(after))
		return b.lookFor()
	}
	same(t, "none", []string(nil), look(time.Minute))
	now, err := b.rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for i, job := range []string{"post-1", "post-2", "post-2"} {
		err := store.DefaultNamespace.CountRefusedAlone(t.Context(), b.rdb, "shop", job, "refused 4 times while 812 other calls were accepted", now, i < 2, i == 2)
		if err != nil {
			t.Fatal(err)
		}
	}
	said := []string{"shop: the API refuses 2 jobs and accepts others; the last one: post-2"}
	same(t, "two", said, look(2*time.Minute))
	same(t, "two, later", said, look(10*time.Minute))
}
