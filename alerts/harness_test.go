package alerts

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/alerts/pagerduty"
	"github.com/tidegate/tidegate/alerts/slack"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/fakepager"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeslack"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/jobs"
)

// harness is where incidents are played in no time: a Redis, a Slack, a PagerDuty, workers,
// and a clock that all of them go by and that only the test moves.
type harness struct {
	t     *testing.T
	clock *fakeClock
	addr  string
	db    int
	rdb   *redis.Client // by the clock
	slack *fakeslack.Slack
	pager *fakepager.Pager
	log   *loggingtest.Buffer
	line  *line

	workers []*Alerts
	turn    int
	seen    map[string]uint64 // the last transition of each breaker that the workers got
	tasks   []*task
	gates   map[string]time.Time // by key: its breaker is open until then

	plain bool // breakers learn nothing
	twice bool // each job is run again after it has succeeded
	dead  bool // workers get no transitions
}

// task is a job of the fake publisher.
type task struct {
	job  *jobs.Job
	due  time.Time
	done bool
	err  error // with which it ended
	runs []time.Time
}

// setup is how a worker is configured.
type setup struct {
	Options
	Slack slack.Options
	Pager pagerduty.Options
}

// configured is how the workers of a harness are, unless a test says otherwise.
func configured(b *harness) *setup {
	return &setup{
		Options: Options{
			Destinations: []string{"shop"}, Worker: "worker-1",
			Logger: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		},
		Slack: slack.Options{Token: fakeslack.DefaultToken, Channel: "#alerts", API: b.slack.APIURL(), Mention: "@ann", Transport: b.line},
		Pager: pagerduty.Options{Key: fakepager.DefaultKey, API: b.pager.EnqueueURL(), Transport: b.line},
	}
}

// options are those of a setup after changes.
func (s *setup) options(t testing.TB, change ...func(*setup)) Options {
	t.Helper()
	for _, f := range change {
		f(s)
	}
	s.Pager.PublicURL = s.PublicURL
	var errs []error
	add := func(n notice.Notifier, err error) {
		s.Notifiers = append(s.Notifiers, n)
		errs = append(errs, err)
	}
	if s.Slack.Token != "" || s.Slack.Webhook != "" {
		add(slack.New(s.Slack))
	}
	if s.Pager.Key != "" {
		add(pagerduty.New(s.Pager))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return s.Options
}

// newHarness returns a harness with n workers.
func newHarness(t *testing.T, n int, change ...func(*setup)) *harness {
	t.Helper()
	b := &harness{
		t: t, clock: &fakeClock{now: start}, log: &loggingtest.Buffer{}, seen: map[string]uint64{}, gates: map[string]time.Time{},
	}
	b.addr, b.db = ownDatabase(t)
	b.rdb = connect(t, b.addr, b.db, b.clock)
	b.slack = fakeslack.New(fakeslack.Options{Now: b.clock.Now})
	b.pager = fakepager.New(fakepager.Options{Now: b.clock.Now})
	b.line = &line{b: b, next: &http.Transport{MaxIdleConnsPerHost: 2}}
	for _, f := range []interface {
		Start(string) (string, error)
		Close() error
	}{b.slack, b.pager} {
		if _, err := f.Start(""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(b.line.next.CloseIdleConnections)
	for range n {
		b.worker(change...)
	}
	return b
}

// worker adds one.
func (b *harness) worker(change ...func(*setup)) *Alerts {
	b.t.Helper()
	a, err := New(b.rdb, configured(b).options(b.t, change...))
	if err != nil {
		b.t.Fatal(err)
	}
	b.workers = append(b.workers, a)
	return a
}

// --- time and what happens

func (b *harness) now() time.Time { return b.clock.Now() }

// elapsed is how long the test has lasted.
func (b *harness) elapsed() time.Duration { return b.now().Sub(start) }

// moveTo sets the clock, and lets what Redis keeps for a time grow old.
func (b *harness) moveTo(t time.Time) {
	b.t.Helper()
	if d := t.Sub(b.now()); d > 0 {
		if err := age.Run(b.t.Context(), b.rdb, nil, d.Milliseconds()).Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	b.clock.set(t)
}

// trip opens a breaker until it is reset and returns the incident.
func (b *harness) trip(name string) string {
	b.t.Helper()
	s, err := breaker.DefaultNamespace.Trip(b.t.Context(), b.rdb, name, breaker.TripOptions{By: "ann"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.deliver(name)
	return s.Incident
}

func (b *harness) reset(name string) {
	b.t.Helper()
	if _, err := breaker.DefaultNamespace.Reset(b.t.Context(), b.rdb, name, "ann"); err != nil {
		b.t.Fatal(err)
	}
	b.deliver(name)
}

// call makes one call through a breaker, as a worker of a fleet does that has just
// started, and returns the incident that there is then.
func (b *harness) call(name string, outcome breaker.Outcome) string {
	b.t.Helper()
	destination, key, err := breaker.ParseName(name)
	if err != nil {
		b.t.Fatal(err)
	}
	all, err := breaker.New(b.t.Context(), b.rdb, breaker.Options{
		Destination: destination, FailureThreshold: 1, Cooldown: time.Minute, Instance: "worker-1", Logger: slog.New(slog.DiscardHandler), NoLearning: b.plain,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	br := all
	if key != "" {
		br = all.Key(key)
	}
	permit, err := br.Allow(b.t.Context())
	if err != nil {
		b.t.Fatalf("a call of %s at +%v: %v", name, b.elapsed(), err)
	}
	if _, err := permit.Report(b.t.Context(), outcome); err != nil {
		b.t.Fatal(err)
	}
	if err := all.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.deliver(name)
	s, err := breaker.DefaultNamespace.Get(b.t.Context(), b.rdb, name)
	if err != nil {
		b.t.Fatal(err)
	}
	return s.Incident
}

// deliver gives the workers the transitions of a breaker, and writes to Redis what they make of
// that.
func (b *harness) deliver(name string) {
	b.t.Helper()
	read, err := breaker.DefaultNamespace.ReadOne(b.t.Context(), b.rdb, breaker.Query{History: 100}, name)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range read.History {
		if e.Generation <= b.seen[name] {
			continue
		}
		b.seen[name] = e.Generation
		for _, a := range b.workers {
			if !b.dead {
				a.onTransition(e)
			}
		}
	}
	b.send()
}

func (b *harness) send() {
	b.t.Helper()
	for _, a := range b.workers {
		if err := a.flush(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
}

// --- jobs

// fetch takes note of the jobs that have been enqueued.
func (b *harness) fetch() {
	b.t.Helper()
	if !b.clock.enqueues() {
		return
	}
	client := b.workers[0].client
	for cursor := ""; ; {
		page, err := client.List(b.t.Context(), jobs.ListOptions{Filter: jobs.Filter{Destination: Destination}, Cursor: cursor, Limit: 100})
		if err != nil {
			b.t.Fatal(err)
		}
		for _, listed := range slices.Backward(page.Items) {
			if b.task(listed.ID) != nil {
				continue
			}
			j, err := client.Get(b.t.Context(), listed.ID)
			if err != nil {
				b.t.Fatal(err)
			}
			due := j.AvailableAt
			if due.Before(b.now()) {
				due = b.now() // by the machine's clock
			}
			j.CreatedAt = b.now()
			b.tasks = append(b.tasks, &task{job: j, due: due})
		}
		if cursor = page.Next; cursor == "" {
			b.clock.enqueues() // to list them looks like it
			return
		}
	}
}

func (b *harness) task(id string) *task {
	for _, t := range b.tasks {
		if t.job.ID == id {
			return t
		}
	}
	return nil
}

// next is the job that is to be run next, if it is due by then.
func (b *harness) next(until time.Time) *task {
	b.fetch()
	var first *task
	for _, t := range b.tasks {
		if gate := b.gates[t.job.Key]; t.due.Before(gate) {
			t.due = gate
		}
		if !t.done && !t.due.After(until) && (first == nil || t.due.Before(first.due)) {
			first = t
		}
	}
	return first
}

// play runs the jobs that become due until an instant after start, each at its time.
func (b *harness) play(until time.Duration) {
	b.t.Helper()
	end := start.Add(until)
	for n := 0; ; n++ {
		t := b.next(end)
		if t == nil {
			break
		}
		if n > 20_000 {
			b.t.Fatalf("at +%v there is no end of jobs; the next one is %s", b.elapsed(), t.job.ID)
		}
		if t.due.After(b.now()) {
			b.moveTo(t.due)
		}
		b.run(t)
	}
	if end.After(b.now()) {
		b.moveTo(end)
	}
}

// settle runs what is due now.
func (b *harness) settle() { b.t.Helper(); b.play(b.elapsed()) }

// run has the next worker run a job.
func (b *harness) run(t *task) {
	b.t.Helper()
	a := b.workers[(b.turn+len(t.runs)/2)%len(b.workers)] // not in step with the jobs
	b.turn++
	job := *t.job
	job.RescheduleCount = len(t.runs)
	t.runs = append(t.runs, b.now())
	err := a.Publish(b.t.Context(), &job)
	if err == nil && b.twice {
		if err := b.workers[b.turn%len(b.workers)].Publish(b.t.Context(), &job); err != nil {
			b.t.Errorf("%s is run again: %v", job.ID, err)
		}
	}
	b.after(t, err)
}

// after does with a job what the publisher does with it.
func (b *harness) after(t *task, err error) {
	b.t.Helper()
	later, putOff := errors.AsType[*jobs.RescheduleError](err)
	limited, isLimited := errors.AsType[*jobs.RateLimitedError](err)
	failed, isFailed := errors.AsType[*jobs.FailError](err)
	switch {
	case err == nil:
		t.done = true
	case putOff:
		t.due = b.now().Add(max(later.Delay, time.Millisecond))
	case isLimited:
		t.due = b.now().Add(max(limited.RetryAfter, breakerOptions().Cooldown))
		b.gates[t.job.Key] = t.due
	case isFailed && failed.Permanent:
		t.done, t.err = true, err
	default:
		b.t.Errorf("%s ends with %T: %v", t.job.ID, err, err)
		t.done, t.err = true, err
	}
}

// waiting lists the jobs that have not ended: id and time after start.
func (b *harness) waiting() []string {
	b.fetch()
	var out []string
	for _, t := range b.tasks {
		if !t.done {
			out = append(out, fmt.Sprintf("%s +%v", t.job.ID, t.due.Sub(start)))
		}
	}
	slices.Sort(out)
	return out
}
