package publisher_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// diary notes when calls begin and end.
type diary struct {
	mu      sync.Mutex
	entries []string
}

func (d *diary) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, s)
}

// at is the place of an entry, -1 if there is none.
func (d *diary) at(s string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Index(d.entries, s)
}

// diamond is A in one destination, B and C after it in another, and D after both in
// the first one again.
type diamond struct {
	one, two   *fixture
	a, b, c, d *jobs.Job
}

func newDiamond(t *testing.T) *diamond {
	t.Helper()
	s := redistest.Shared(t)
	return &diamond{one: fixtureOn(t, s), two: fixtureOn(t, s)}
}

func (f *diamond) enqueue(opts ...jobs.Option) {
	f.a = f.one.enqueue(opts...)
	f.b = f.two.enqueue(jobs.After(f.a.ID))
	f.c = f.two.enqueue(jobs.After(f.a.ID))
	f.d = f.one.enqueue(jobs.After(f.b.ID, f.c.ID))
}

// mustBe checks the statuses of all four.
func (f *diamond) mustBe(t *testing.T, when string, a, b, c, d jobs.Status) {
	t.Helper()
	got := []jobs.Status{f.one.record(f.a.ID).Status, f.two.record(f.b.ID).Status, f.two.record(f.c.ID).Status, f.one.record(f.d.ID).Status}
	if want := []jobs.Status{a, b, c, d}; !slices.Equal(got, want) {
		t.Errorf("%s: A, B, C, D are %v, want %v", when, got, want)
	}
}

// Children run after their parents, also in other destinations, and a parent that is
// to be called again releases nothing.
func TestDependenciesRunInOrder(t *testing.T) {
	t.Parallel()
	f := newDiamond(t)
	f.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 60 * time.Second}))
	f.mustBe(t, "at first", jobs.Pending, jobs.Waiting, jobs.Waiting, jobs.Waiting)
	var diary diary
	names := map[string]string{f.a.ID: "A", f.b.ID: "B", f.c.ID: "C", f.d.ID: "D"}
	outcomes := make(chan error, 10) // of A
	handler := func(_ context.Context, j *jobs.Job) error {
		name := names[j.ID]
		diary.note(name + " begins")
		<-time.After(5 * time.Millisecond)
		if name == "A" {
			if err := <-outcomes; err != nil {
				return err
			}
		}
		diary.note(name + " ends")
		return nil
	}
	f.one.run(f.one.options(), handler, publisher.Breaker(breaker.Options{Disabled: true}))
	f.two.run(f.two.options(), handler)

	outcomes <- errors.New("boom")
	f.one.want(publisher.Retried)
	f.mustBe(t, "A is to be retried", jobs.RetryPending, jobs.Waiting, jobs.Waiting, jobs.Waiting)
	if err := f.one.client.Pause(context.Background(), f.a.ID); err != nil {
		t.Fatal(err)
	}
	f.mustBe(t, "A is paused", jobs.Paused, jobs.Waiting, jobs.Waiting, jobs.Waiting)
	if err := f.one.client.Resume(context.Background(), f.a.ID); err != nil {
		t.Fatal(err)
	}
	f.one.makeDue(f.a.ID)
	outcomes <- jobs.Reschedule(time.Hour)
	f.one.want(publisher.Rescheduled)
	f.mustBe(t, "A is rescheduled", jobs.Pending, jobs.Waiting, jobs.Waiting, jobs.Waiting)
	f.one.makeDue(f.a.ID)
	outcomes <- jobs.RateLimited(time.Hour)
	f.one.want(publisher.Rescheduled)
	f.mustBe(t, "A is rate limited", jobs.Pending, jobs.Waiting, jobs.Waiting, jobs.Waiting)
	if f.one.rdb.Exists(context.Background(), store.OutboxKey(f.one.queue())).Val() != 0 {
		t.Error("A has something to tell before it has ended")
	}
	f.one.makeDue(f.a.ID)
	outcomes <- nil
	f.one.waitStatus(f.d.ID, jobs.Completed)
	f.mustBe(t, "at the end", jobs.Completed, jobs.Completed, jobs.Completed, jobs.Completed)
	for _, pair := range [][2]string{{"A ends", "B begins"}, {"A ends", "C begins"}, {"B ends", "D begins"}, {"C ends", "D begins"}} {
		if first, second := diary.at(pair[0]), diary.at(pair[1]); first < 0 || second < first {
			t.Errorf("%s after %s: %v", pair[0], pair[1], diary.entries)
		}
	}
	f.one.mustBeEmpty()
	f.two.mustBeEmpty()
}
