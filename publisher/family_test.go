package publisher_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
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

// Any end of a parent but completed cancels all that come after it, with the reason.
func TestChildrenOfAParentThatDoesNotComplete(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		opts   []jobs.Option
		end    func(*diamond) error // while the call of A is under way
		answer error                // of A
		status jobs.Status
		reason string // after "parent A "
	}{
		{name: "failed", answer: errors.New("boom"), status: jobs.Failed, reason: "failed: boom"},
		{name: "out of reschedules", opts: []jobs.Option{jobs.MaxReschedules(0)}, answer: jobs.Reschedule(0), status: jobs.Failed, reason: "failed: max reschedules (0) exceeded"},
		{name: "cancelled while it runs", end: func(f *diamond) error {
			return f.one.client.Cancel(context.Background(), f.a.ID, jobs.Because("no longer needed"))
		}, answer: context.Canceled, status: jobs.Cancelled, reason: "was cancelled: no longer needed"},
		{name: "expired after its call", opts: []jobs.Option{jobs.TTL(6 * time.Second)}, answer: jobs.Reschedule(time.Hour), status: jobs.Expired, reason: "expired"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newDiamond(t)
			f.enqueue(tc.opts...)
			inCall, goOn := make(chan struct{}, 1), make(chan struct{})
			handler := func(ctx context.Context, j *jobs.Job) error {
				if j.ID != f.a.ID {
					t.Errorf("%s was called", j.ID)
					return nil
				}
				inCall <- struct{}{}
				select {
				case <-goOn:
				case <-ctx.Done():
				}
				return tc.answer
			}
			f.one.run(f.one.options(), handler)
			f.two.run(f.two.options(), handler)
			signal(t, "the call of A", inCall)
			if tc.end != nil {
				if err := tc.end(f); err != nil {
					t.Fatal(err)
				}
			} else {
				close(goOn)
			}
			f.one.waitStatus(f.d.ID, jobs.Cancelled)
			f.mustBe(t, "at the end", tc.status, jobs.Cancelled, jobs.Cancelled, jobs.Cancelled)
			parentA := "parent " + f.a.ID + " " + tc.reason
			for _, id := range []string{f.b.ID, f.c.ID} {
				if got := f.two.record(id).LastError; got != parentA {
					t.Errorf("last error of a child: %q, want %q", got, parentA)
				}
			}
			got := f.one.record(f.d.ID).LastError
			if got != "parent "+f.b.ID+" was cancelled: "+parentA && got != "parent "+f.c.ID+" was cancelled: "+parentA {
				t.Errorf("last error of the grandchild: %q", got)
			}
			f.one.mustBeEmpty()
			f.two.mustBeEmpty()
		})
	}
}

// mute is a Redis that a worker which is about to die reaches no more when it wants
// to tell children of their parent's end.
type mute struct{ redis.UniversalClient }

var errMute = errors.New("cut off")

func (m mute) ZRange(ctx context.Context, key string, start, stop int64) *redis.StringSliceCmd {
	cmd := redis.NewStringSliceCmd(ctx)
	cmd.SetErr(errMute)
	return cmd
}

// A worker that dies between a parent's end and the release of its children leaves
// that to the others: they find it by themselves.
func TestChildrenOfADeadWorkersParents(t *testing.T) {
	t.Parallel()
	const n = 20
	s := redistest.Shared(t)
	one, two := fixtureOn(t, s), fixtureOn(t, s)
	ctx := context.Background()
	var children []string
	bad := map[string]bool{}
	for i := range n {
		parent := one.enqueue()
		bad[parent.ID] = i%2 == 1
		children = append(children, two.enqueue(jobs.After(parent.ID)).ID)
	}
	rdb := one.rdb
	one.rdb = mute{rdb}
	stop := one.run(one.options(), func(_ context.Context, j *jobs.Job) error {
		if bad[j.ID] {
			return errors.New("boom")
		}
		return nil
	})
	for range n {
		one.event()
	}
	stop()
	one.rdb = rdb
	if got := rdb.ZCard(ctx, store.OutboxKey(one.queue())).Val(); got != n {
		t.Fatalf("%d of %d parents have something to tell", got, n)
	}
	two.run(two.options(), func(context.Context, *jobs.Job) error { return nil })
	for _, id := range children {
		if got := two.record(id); got.Status != jobs.Waiting {
			t.Fatalf("child %s is %s", id, got.Status)
		}
	}
	// Another worker of the parents' destination comes along, with nothing to do.
	one.run(one.options(), func(context.Context, *jobs.Job) error {
		t.Error("called again")
		return nil
	})
	for i, id := range children {
		want := jobs.Completed
		if i%2 == 1 {
			want = jobs.Cancelled
		}
		two.waitStatus(id, want)
	}
	one.mustBeEmpty()
	two.mustBeEmpty()
}
