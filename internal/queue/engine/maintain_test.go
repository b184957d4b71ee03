package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// asForward looks at a queue until nothing is moved any more, and returns how many were.
func asForward(t *testing.T, c *Engine, queue string) int {
	t.Helper()
	c.ForwardIn(queue, 0)
	total := 0
	for {
		n := workerOf(c).Maintain()
		if total += n; n == 0 {
			return total
		}
	}
}

// Due jobs are moved all together, however many, and not before the queue is looked at.
func TestForwardMovesAll(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	const n = 450
	c := New(s.rdb, Options{Queues: []string{s.queue}})
	defer c.CloseGate(context.Background())
	due := func(from, to int) {
		for i := from; i < to; i++ {
			s.at(store.ScheduledKey(s.queue), fmt.Sprint("s", i), store.StateScheduled, time.Unix(1, 0))
			s.at(store.RetryKey(s.queue), fmt.Sprint("r", i), store.StateRetry, time.Unix(1, 0))
		}
	}
	due(0, n)
	if got := asForward(t, c, s.queue); got != 2*n {
		t.Errorf("moved %d, want all %d", got, 2*n)
	}
	due(n, n+1)
	if got := workerOf(c).Maintain(); got != 0 {
		t.Errorf("moved %d although no message has come", got)
	}
	if got := asForward(t, c, s.queue); got != 2 {
		t.Errorf("moved %d, want 2", got)
	}
}

// A beat that fails is no beat: the next one moves what is due.
func TestForwardAfterAnOutage(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	gone := true
	c := New(&wire{UniversalClient: s.rdb, answer: func(call) *redis.Cmd {
		if gone {
			return redis.NewCmdResult(nil, errGone)
		}
		return nil
	}}, Options{Queues: []string{s.queue}})
	defer c.CloseGate(context.Background())
	s.at(store.ScheduledKey(s.queue), "a", store.StateScheduled, time.Unix(1, 0))
	if got := asForward(t, c, s.queue); got != 0 {
		t.Errorf("moved %d without Redis", got)
	}
	gone = false
	if got := asForward(t, c, s.queue); got != 1 {
		t.Errorf("moved %d once Redis was back, want 1", got)
	}
}

// A queue is looked at after a message, when its next job is due, and each 500 ms while a job
// is in flight.
func TestLooks(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	w := &wire{UniversalClient: s.rdb}
	c := New(w, Options{Queues: []string{s.queue}})
	defer c.CloseGate(context.Background())
	worker, now := workerOf(c), time.Now()
	expect := func(what string, after time.Duration, want int) {
		t.Helper()
		before := len(w.sent("forward"))
		for node, looks := range worker.begin(now.Add(after)) {
			worker.forward(looks)
			worker.forwarding.end(node)
		}
		if got := len(w.sent("forward")) - before; got != want {
			t.Errorf("%s: %d looks, want %d", what, got, want)
		}
	}
	expect("without a message", time.Hour, 0)
	worker.Resync()
	expect("after the subscription has begun", time.Second, 1)
	expect("soon after", time.Hour, 0)
	d := &Delivery{Queue: s.queue, ID: "a"}
	c.flight.add(d)
	expect("with a job in flight", time.Hour, 1)
	expect("with a job in flight, soon after", time.Hour+actionInterval-1, 0)
	expect("with a job in flight, later", time.Hour+actionInterval, 1)
	c.flight.remove(d)
	s.at(store.ScheduledKey(s.queue), "b", store.StateScheduled, time.Now().Add(time.Hour))
	c.ForwardIn(s.queue, 0)
	expect("after a message", 2*time.Hour, 1)
	if in := time.Until(c.nextForward()); in < 59*time.Minute || in > time.Hour {
		t.Errorf("a job that is due in an hour is looked for in %s", in)
	}
}

// waitsAs puts one job of each state in which a job can wait, with names of the
// states, and gives them an end.
func (s *testQueue) waitsAs(expires time.Time) (ids []string) {
	s.t.Helper()
	s.pending("is-pending", "is-paused")
	s.at(store.ScheduledKey(s.queue), "is-scheduled", store.StateScheduled, time.Now().Add(time.Hour))
	s.at(store.RetryKey(s.queue), "is-retry", store.StateRetry, time.Now().Add(time.Hour))
	s.hash("is-waiting", store.StateWaiting)
	s.must(s.rdb.ZAdd(context.Background(), store.ParkedKey(s.queue, store.StateWaiting), redis.Z{Score: 1, Member: "is-waiting"}).Err())
	s.act(store.Pause, store.Done, "is-paused")
	ids = []string{"is-paused", "is-pending", "is-retry", "is-scheduled", "is-waiting"}
	s.expiring(expires, ids...)
	return ids
}

// One beat has the jobs ended whose time is over, whatever they wait for, and
// whether or not the gate lets jobs through.
func TestHeartbeatExpires(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("gate closed ", closed), func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			told := make(chan int, 10)
			c := New(s.rdb, Options{Queues: []string{s.queue}, Expired: func(queue string, n int) {
				if queue != s.queue {
					t.Errorf("told of %s", queue)
				}
				told <- n
			}})
			defer c.Finish()
			defer c.CloseGate(context.Background())
			c.waiting.Store(closed)
			s.active("runs")
			s.expiring(s.now().Add(-time.Second), "runs")
			ids := s.waitsAs(s.now().Add(-time.Second))
			s.pending("fresh")
			s.expiring(s.now().Add(time.Hour), "fresh")
			asForward(t, c, s.queue)
			select {
			case n := <-told:
				if n != len(ids) {
					t.Errorf("%d have expired, want %d", n, len(ids))
				}
			case <-time.After(time.Minute):
				t.Fatal("nothing has expired")
			}
			want := map[string]string{
				"pending": "is-pending is-paused fresh", "tombstones": "2", "expiry": "fresh", "active": "runs", "lease": "runs",
				"expired": "is-paused is-pending is-retry is-scheduled is-waiting", "runs": "active", "fresh": "pending",
			}
			for _, id := range ids {
				want[id] = "expired"
			}
			if diff := cmp.Diff(want, s.look()); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
			for id, status := range map[string]string{
				"is-pending": "pending", "is-scheduled": "pending", "is-retry": "retry_pending", "is-paused": "paused", "is-waiting": "waiting",
			} {
				story := s.story(id)
				if last := story[len(story)-1]; last[2:] != "expired expired: while "+status {
					t.Errorf("history of %s ends with %q", id, last)
				}
			}

			// The one that ran is looked at again when it comes back.
			applyToJob(s, "runs", store.Outcome{Kind: store.KindRetry, At: time.Now().Add(time.Hour)})
			asForward(t, c, s.queue)
			if n := <-told; n != 1 || s.look()["runs"] != "expired" {
				t.Errorf("%d have expired, the job that ran is %s", n, s.look()["runs"])
			}
		})
	}
}

// As many as there are expire, portion by portion.
func TestHeartbeatExpiresMany(t *testing.T) {
	t.Parallel()
	const n = 350
	s := realQueue(t)
	told := make(chan int, 100)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Expired: func(_ string, n int) { told <- n }})
	defer c.Finish()
	defer c.CloseGate(context.Background())
	ids := numbered(n)
	s.pending(ids...)
	s.expiring(time.Unix(1, 0), ids...)
	asForward(t, c, s.queue)
	total, most := 0, 0
	for total < n {
		select {
		case k := <-told:
			total, most = total+k, max(most, k)
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d have expired", total, n)
		}
	}
	if most > 100 {
		t.Errorf("%d in one portion, want at most 100", most)
	}
	if got := s.rdb.ZCard(context.Background(), store.ParkedKey(s.queue, store.StateExpired)).Val(); got != n {
		t.Errorf("%d have expired", got)
	}
}

// A running Server expires jobs within a beat, and with a closed gate too.
func TestServerExpires(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"open", "gate closed", "destination paused"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			g := &fakeGate{}
			switch state {
			case "gate closed":
				g.held = make(chan struct{})
			case "destination paused":
				if _, err := store.PauseQueue(t.Context(), s.rdb, s.queue, "", ""); err != nil {
					t.Fatal(err)
				}
			}
			c := New(s.rdb, Options{Queues: []string{s.queue + ":high", s.queue}, Concurrency: 1, Gate: g})
			defer c.Finish()
			stop := runServer(t, c, completing(func(id string) { t.Errorf("%s was run", id) }))
			defer stop()
			s.at(store.ScheduledKey(s.queue), "a", store.StateScheduled, time.Now().Add(time.Hour))
			s.at(store.RetryKey(s.queue), "b", store.StateRetry, time.Now().Add(time.Hour))
			s.expiring(time.Now().Add(200*time.Millisecond), "a", "b")
			redistest.Eventually(t, "they have expired", func() bool { return s.look()["expired"] == "a b" })
		})
	}
}

// A sleeping engine looks at the queue whose message has come, not at its others.
func TestMessageCostsOneFetch(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	w := &wire{UniversalClient: s.rdb}
	c := New(w, Options{Queues: []string{s.queue + ":high", s.queue, s.queue + ":low"}, Concurrency: 2})
	worker := NewWorker(w, WorkerOptions{PollEvery: time.Hour}, c)
	worker.Start()
	defer worker.Finish()
	defer worker.CloseGate(context.Background())
	c.Wake() // its first fetch also asks for held keys
	redistest.Eventually(t, "the engine sleeps", func() bool { return !c.run.awake() })
	before := len(w.sent("fetch"))
	worker.Ready(s.queue)
	redistest.Eventually(t, "it sleeps again", func() bool { return !c.run.awake() })
	if got := len(w.sent("fetch")) - before; got != 1 {
		t.Errorf("%d fetches after a message of one queue, want 1", got)
	}
	before = len(w.sent("fetch"))
	s.pending("a")
	worker.Ready(s.queue)
	if !worker.Next() || worker.Take().Queue != s.queue {
		t.Error("no job is next")
	}
	redistest.Eventually(t, "it sleeps while the job runs", func() bool { return !c.run.awake() })
	if got := len(w.sent("fetch")) - before; got != 1 {
		t.Errorf("%d fetches for one job, want 1", got)
	}
	before = len(w.sent("fetch"))
	c.Wake()
	redistest.Eventually(t, "it sleeps after the poll", func() bool { return !c.run.awake() })
	if got := len(w.sent("fetch")) - before; got != 3 {
		t.Errorf("%d fetches after a poll, want 3", got)
	}
}

// slowGate takes its time to admit jobs with a key.
type slowGate struct {
	openGate
	asked, goOn chan struct{}
}

func (g *slowGate) Admit(ctx context.Context, queue, key string, cost int, message string, permit any) Admission {
	close(g.asked)
	<-g.goOn
	return g.openGate.Admit(ctx, queue, key, cost, message, permit)
}

// Jobs that are fetched along with a completion take no slot before they are handed out: one that
// became free meanwhile is used.
func TestSlotThatIsFreeWhileJobsAreAdmitted(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := &slowGate{asked: make(chan struct{}), goOn: make(chan struct{})}
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 3, Gate: g, Retention: time.Hour})
	worker := NewWorker(s.rdb, WorkerOptions{PollEvery: time.Hour}, c)
	worker.Start()
	defer worker.Finish()
	defer worker.CloseGate(context.Background())
	begin := func(id string) *Delivery {
		t.Helper()
		if !worker.Next() {
			t.Fatalf("no job is next, want %s", id)
		}
		d := worker.Take()
		if d.ID != id {
			t.Fatalf("next is %s, want %s", d.ID, id)
		}
		return d
	}
	complete := store.Outcome{Kind: store.KindComplete}
	s.pending("job0")
	worker.Ready(s.queue)
	first := begin("job0")
	first.Decide(complete, nil)
	worker.After(first) // from now on completions fetch
	s.pending("job1", "job2", "job3")
	worker.Ready(s.queue)
	begin("job1")
	second, third := begin("job2"), begin("job3")
	s.keyed("k", "with-key")
	s.pending("last")
	second.Decide(complete, nil)
	next := make(chan *Delivery, 1)
	go func() { next <- worker.After(second) }()
	<-g.asked
	third.Decide(store.Outcome{Kind: store.KindRetry, At: time.Now().Add(time.Hour)}, nil)
	if d := worker.After(third); d != nil {
		t.Fatalf("%s is handed out before its key was asked for", d.ID)
	}
	redistest.Eventually(t, "the engine looks for a free slot", func() bool { return len(c.flight.freed) == 0 })
	<-time.After(20 * time.Millisecond) // it finds none; a look that comes later finds one, and the test nothing
	close(g.goOn)
	if d := <-next; d == nil || d.ID != "with-key" {
		t.Fatalf("after job2 comes %v", d)
	}
	begin("last")
}
