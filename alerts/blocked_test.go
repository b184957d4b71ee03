package alerts

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// problem ends the summary of each message.
const problem = "; last error: answered 422: title too long"

// shop is a destination with a real publisher, whose API refuses the jobs with the payload "bad".
type shop struct {
	*harness
	client *jobs.Client
	ended  chan publisher.JobEvent
}

func newShop(t *testing.T, b *harness, onFail publisher.OnFail) *shop {
	t.Helper()
	b.clock.set(time.Now())
	for _, a := range b.workers {
		a.local = b.clock.Now
	}
	s := &shop{harness: b, ended: make(chan publisher.JobEvent, 100)}
	rdb := connect(t, b.addr, b.db) // by Redis's own clock
	var err error
	if s.client, err = jobs.NewClient(rdb, jobs.WithDestinations("shop")); err != nil {
		t.Fatal(err)
	}
	o := publisher.Options{Logger: redistest.Logger(t)}
	b.workers[0].Observe(&o)
	o.Observe(publisher.Observer{OnJob: func(e publisher.JobEvent) { s.ended <- e }})
	p, err := publisher.New(rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle("shop", publisher.Func(func(_ context.Context, j *jobs.Job) error {
		if string(j.Payload) == `"bad"` {
			return jobs.Discard(errors.New("answered 422: title too long"))
		}
		return nil
	}), publisher.Order(jobs.OrderKey, onFail)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return s
}

// enqueue enqueues a job of a key.
func (s *shop) enqueue(id, key, payload string) {
	s.t.Helper()
	if _, err := s.client.Enqueue(s.t.Context(), jobs.New("shop", payload, jobs.ID(id), jobs.Key(key))); err != nil {
		s.t.Fatal(err)
	}
}

// await waits until a job has ended, and has its alert enqueued.
func (s *shop) await(id, result string) {
	s.t.Helper()
	select {
	case e := <-s.ended:
		if e.Job.ID != id || e.Result != result {
			s.t.Fatalf("%s: %s, want %s: %s", e.Job.ID, e.Result, id, result)
		}
	case <-time.After(time.Minute):
		s.t.Fatalf("%s has not ended for a minute", id)
	}
	s.send()
}

func (s *shop) awaitStatus(id string, want jobs.Status) {
	s.t.Helper()
	redistest.Eventually(s.t, id+" is "+string(want), func() bool {
		j, err := s.client.Get(s.t.Context(), id)
		return err == nil && j.Status == want
	})
}

func (s *shop) cancel(id string) {
	s.t.Helper()
	if err := s.client.Cancel(s.t.Context(), id); err != nil {
		s.t.Fatal(err)
	}
}

// A failed job that blocks its key gets one message, whatever the number of keys within ten minutes; the keys that block
// later and are still blocked then get the next one.
func TestBlockedKeys(t *testing.T) {
	t.Parallel()
	for _, twice := range []bool{false, true} {
		t.Run(fmt.Sprintf("each job run twice is %v", twice), func(t *testing.T) {
			t.Parallel()
			b := newHarness(t, 2, withoutPager)
			b.twice = twice
			s := newShop(t, b, publisher.OnFailBlock)
			began := b.elapsed()
			s.enqueue("a-1", "alice", "bad")
			s.await("a-1", publisher.FailedFinal)
			for _, id := range []string{"a-2", "a-3"} {
				s.enqueue(id, "alice", "good")
				s.awaitStatus(id, jobs.Waiting)
			}
			b.play(began + 10*time.Second)
			want := []string{"shop: a-1 failed and blocks key alice; 2 jobs wait behind it" + problem}
			same(t, "at once", want, b.texts())

			for _, key := range []string{"bob", "carol", "dora"} {
				s.enqueue(key+"-1", key, "bad")
				s.await(key+"-1", publisher.FailedFinal)
			}
			b.play(began + 9*time.Minute)
			same(t, "within ten minutes", want, b.texts())
			s.cancel("a-1")
			s.await("a-2", publisher.Completed)
			s.await("a-3", publisher.Completed)
			s.cancel("bob-1")

			b.play(began + 12*time.Minute)
			want = append(want, "shop: carol-1 failed and blocks key carol; failed jobs block 1 other key"+problem)
			same(t, "after ten minutes", want, b.texts())
			s.enqueue("emil-1", "emil", "bad")
			s.await("emil-1", publisher.FailedFinal)
			s.cancel("emil-1")
			b.play(began + time.Hour)
			same(t, "all that are left were in a message", want, b.texts())
			if left := b.waiting(); len(left) > 0 {
				t.Errorf("jobs are left: %v", left)
			}
			if err := s.client.Retry(t.Context(), "carol-1"); err != nil {
				t.Fatal(err)
			}
			s.await("carol-1", publisher.FailedFinal)
			b.play(began + 61*time.Minute)
			same(t, "it fails again", append(want, "shop: carol-1 failed and blocks key carol; failed jobs block 1 other key"+problem), b.texts())
		})
	}
}

// Slack is down: the message comes once it is back, by one job.
func TestBlockedKeyWhileSlackIsDown(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager)
	s := newShop(t, b, publisher.OnFailBlock)
	began := b.elapsed()
	b.slack.SetFault(fakehttp.WithStatus(503))
	s.enqueue("a-1", "alice", "bad")
	s.await("a-1", publisher.FailedFinal)
	b.play(began + 30*time.Minute)
	b.slack.LiftFaults()
	b.play(began + 40*time.Minute)
	same(t, "channel", []string{"shop: a-1 failed and blocks key alice" + problem}, b.texts())
}

// A failed job that blocks nothing gets no message, and costs no job.
func TestSkippedFailuresAreNoAlerts(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager)
	s := newShop(t, b, publisher.OnFailSkip)
	began := b.elapsed()
	s.enqueue("a-1", "alice", "bad")
	s.await("a-1", publisher.FailedFinal)
	s.enqueue("a-2", "alice", "good")
	s.await("a-2", publisher.Completed)
	b.play(began + time.Minute)
	same(t, "channel", []string(nil), b.texts())
	same(t, "jobs", 0, len(b.tasks))
}

// A pager gets it only without another notifier, as a warning.
func TestBlockedKeyAtThePagerAlone(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutSlack)
	s := newShop(t, b, publisher.OnFailBlock)
	began := b.elapsed()
	s.enqueue("a-1", "alice", "bad")
	s.await("a-1", publisher.FailedFinal)
	b.play(began + time.Minute)
	events := b.pager.Events()
	if len(events) != 1 || events[0].Action != "trigger" || events[0].Payload.Severity != "warning" || events[0].Payload.Summary != "shop: a-1 failed and blocks key alice"+problem {
		t.Errorf("PagerDuty: %+v", events)
	}
}
