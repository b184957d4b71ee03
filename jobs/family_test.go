package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// tell does what a worker does when a job with children has ended.
func (b *bench) tell(j *jobs.Job) {
	b.t.Helper()
	b.must(store.ReleaseChildren(context.Background(), b.rdb, store.Ref{Queue: queueOf(j), ID: j.ID}))
}

// complete has a worker publish a job, and tell its children.
func (b *bench) complete(j *jobs.Job) {
	b.t.Helper()
	b.run(j, store.StateCompleted)
	b.tell(j)
}

// fail has a worker fail a job with the error "boom", and tell its children.
func (b *bench) fail(j *jobs.Job) {
	b.t.Helper()
	b.run(j, store.StateFailed)
	b.tell(j)
}

func (b *bench) wantStatus(j *jobs.Job, want jobs.Status) {
	b.t.Helper()
	if got := b.get(j.ID).Status; got != want {
		b.t.Errorf("%s is %s, want %s", j.ID, got, want)
	}
}

// wantCancelled checks that a job is cancelled with the reason as its last error and
// in its history.
func (b *bench) wantCancelled(j *jobs.Job, reason string) {
	b.t.Helper()
	got := b.get(j.ID)
	if got.Status != jobs.Cancelled || got.LastError != reason || got.EndedAt == nil {
		b.t.Errorf("%s is %s with last error %q, want cancelled, %q", j.ID, got.Status, got.LastError, reason)
	}
	h := b.history(j.ID)
	if e := h[len(h)-1]; e.Status != jobs.Cancelled || e.Event != "cancelled" || e.Detail != reason || e.By != "" {
		b.t.Errorf("%s: last entry %+v, want %q", j.ID, e, reason)
	}
}

// A job waits until all its parents have completed, wherever they are.
func TestChildWaitsForAllParents(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b, other := benchOn(t, rdb), benchOn(t, rdb)
		parents := []*jobs.Job{b.enqueue(), b.enqueue(jobs.Prioritize(jobs.PriorityLow)), other.enqueue(jobs.Prioritize(jobs.PriorityHigh))}
		ids := idsOf(parents)
		child := b.enqueue(jobs.After(ids...), jobs.Prioritize(jobs.PriorityHigh))
		if child.Status != jobs.Waiting {
			t.Fatalf("enqueued as %s", child.Status)
		}
		if diff := cmp.Diff(child, b.get(child.ID)); diff != "" {
			t.Errorf("(-enqueued +looked up):\n%s", diff)
		}
		if diff := cmp.Diff(ids, child.After); diff != "" {
			t.Errorf("after (-want +got):\n%s", diff)
		}
		for i, p := range parents {
			b.wantStatus(child, jobs.Waiting)
			if n := len(b.waiting(queueOf(child))); n != 0 {
				t.Fatalf("%d jobs in the queue while %d parents have completed", n, i)
			}
			b.complete(p)
			b.tell(p) // a repeated call changes nothing
		}
		b.wantStatus(child, jobs.Pending)
		if diff := cmp.Diff([]string{child.ID}, b.waiting(queueOf(child))); diff != "" {
			t.Errorf("queue (-want +got):\n%s", diff)
		}
		h := b.history(child.ID)
		want := []jobs.HistoryEntry{
			{Version: 1, At: h[0].At, Status: jobs.Waiting, Event: "created", Detail: "after " + strings.Join(ids, ", ")},
			{Version: 2, At: h[len(h)-1].At, Status: jobs.Pending, Event: "released", Detail: "all parents completed"},
		}
		if diff := cmp.Diff(want, h); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
	})
}

// A parent that ends otherwise than completed cancels its children, and theirs, with
// the reason; also those that are paused or wait for others still.
func TestParentThatDoesNotComplete(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx := context.Background()
	for name, tc := range map[string]struct {
		end    func(b *bench, parent *jobs.Job)
		reason string
	}{
		"failed":                  {func(b *bench, p *jobs.Job) { b.fail(p) }, "failed: boom"},
		"cancelled":               {func(b *bench, p *jobs.Job) { b.must(b.Cancel(ctx, p.ID)) }, "was cancelled"},
		"cancelled with a reason": {func(b *bench, p *jobs.Job) { b.must(b.Cancel(ctx, p.ID, jobs.Because("too late"))) }, "was cancelled: too late"},
		"expired":                 {func(b *bench, p *jobs.Job) { b.overdue(p); b.get(p.ID) }, "expired"},
		"marked expired":          {func(b *bench, p *jobs.Job) { b.must(b.MarkExpired(ctx, p.ID)) }, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := server.Client(t)
			b, other := benchOn(t, rdb), benchOn(t, rdb)
			parent, late := b.enqueue(), b.enqueue(jobs.Delay(hour))
			children := []*jobs.Job{
				b.enqueue(jobs.After(parent.ID)),
				other.enqueue(jobs.After(parent.ID), jobs.Prioritize(jobs.PriorityLow)),
				b.enqueue(jobs.After(late.ID, parent.ID), jobs.Delay(2*hour)),
			}
			paused := other.enqueue(jobs.After(parent.ID))
			b.must(b.Pause(ctx, paused.ID))
			children = append(children, paused)
			grandchild := b.enqueue(jobs.After(children[1].ID))
			great := other.enqueue(jobs.After(grandchild.ID))
			cousin := b.enqueue(jobs.After(late.ID))
			tc.end(b, parent)
			why := "parent " + parent.ID + " " + tc.reason
			for _, c := range children {
				b.wantCancelled(c, why)
			}
			b.wantCancelled(grandchild, "parent "+children[1].ID+" was cancelled: "+why)
			b.wantCancelled(great, "parent "+grandchild.ID+" was cancelled: "+why)
			b.wantStatus(cousin, jobs.Waiting)
			b.wantStatus(late, jobs.Pending)
		})
	}
}

// Retrying a failed parent does not revive its cancelled children. They can be
// retried once the parent is alive again, and wait for it.
func TestRetryOfAFamily(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b, other := benchOn(t, rdb), benchOn(t, rdb)
		ctx := context.Background()
		parent, second := b.enqueue(), other.enqueue()
		child := other.enqueue(jobs.After(parent.ID, second.ID))
		grandchild := b.enqueue(jobs.After(child.ID))
		b.complete(second)
		b.fail(parent)
		why := "parent " + parent.ID + " failed: boom"
		b.wantCancelled(child, why)

		err := b.Retry(ctx, child.ID)
		want := fmt.Sprintf("jobs: retry: job %s cannot be retried: it is cancelled because of a parent, which has not completed; retry that one first", child.ID)
		if err == nil || err.Error() != want || !errors.Is(err, jobs.ErrStatus) {
			t.Errorf("retry of a child whose parent has failed: %v, want %s", err, want)
		}
		b.wantCancelled(child, why)

		b.must(b.Retry(ctx, parent.ID))
		b.wantCancelled(child, why)
		b.must(b.Retry(ctx, child.ID))
		b.must(b.Retry(ctx, grandchild.ID))
		b.wantStatus(child, jobs.Waiting)
		b.wantStatus(grandchild, jobs.Waiting)
		if got := b.get(child.ID); got.LastError != "" || got.EndedAt != nil {
			t.Errorf("a retried child has last error %q, ended at %v", got.LastError, got.EndedAt)
		}
		b.complete(parent)
		b.wantStatus(child, jobs.Pending)
		b.wantStatus(grandchild, jobs.Waiting)
		b.complete(child)
		b.wantStatus(grandchild, jobs.Pending)
	})
}

// A child whose parent is not there any more cannot run.
func TestRetryOfAChildWhoseParentIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := context.Background()
	parent := b.enqueue()
	child := b.enqueue(jobs.After(parent.ID))
	b.fail(parent)
	b.must(b.rdb.Del(ctx, store.TaskKey(b.queue(), parent.ID)).Err()) // its retention has ended
	if err := b.Retry(ctx, child.ID); !errors.Is(err, jobs.ErrStatus) {
		t.Errorf("retry: %v", err)
	}
	b.wantCancelled(child, "parent "+parent.ID+" does not exist any more")
}

// A chain of 200 jobs is cancelled from its top by the time that the cancel is
// acknowledged, and nobody's reason is longer for it.
func TestCancelOfALongChain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := benchOn(t, b.rdb)
	const n = 200
	id := func(i int) string { return fmt.Sprint(b.dest, "-", i) }
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New([]string{b.dest, other.dest}[i%2], i, jobs.ID(id(i)))
		if i > 0 {
			jobs.After(id(i - 1)).Apply(specs[i])
		}
	}
	client := benchOn(t, b.rdb, jobs.WithDestinations(b.dest, other.dest))
	results, err := client.EnqueueMany(context.Background(), specs)
	b.must(err)
	for i, r := range results {
		if want := []jobs.Status{jobs.Pending, jobs.Waiting}[min(i, 1)]; r.Err != nil || r.Job.Status != want {
			t.Fatalf("result %d: %+v, %v", i, r.Job, r.Err)
		}
	}
	b.must(b.Cancel(context.Background(), id(0), jobs.Because("enough")))
	top := "parent " + id(0) + " was cancelled: enough"
	b.wantCancelled(results[1].Job, top)
	for i, r := range results[2:] {
		b.wantCancelled(r.Job, "parent "+id(i+1)+" was cancelled: "+top)
	}
	if n := b.rdb.Exists(context.Background(), store.OutboxKey(b.queue()), store.OutboxKey(other.queue())).Val(); n != 0 {
		t.Error("somebody has something to tell still")
	}
}

// awayHook lets nothing through that is about a queue, whose node is away.
type awayHook struct {
	queue string
	calls atomic.Int64 // that were about it
}

var errAway = errors.New("the node is away")

func (h *awayHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *awayHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		// The arguments are keys or values; a child's queue among the values has no braces.
		if strings.Contains(fmt.Sprint(cmd.Args()...), "{"+h.queue+"}") {
			h.calls.Add(1)
			cmd.SetErr(errAway)
			return errAway
		}
		return next(ctx, cmd)
	}
}

func (h *awayHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Children on nodes of a Cluster that are well do not wait for others whose node is away:
// neither those of other parents nor their own siblings.
func TestChildrenDoNotWaitForANodeThatIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Database(t)
	b, well, gone := benchOn(t, server.Client(t)), benchOn(t, server.Client(t)), benchOn(t, server.Client(t))
	ctx := t.Context()
	client := benchOn(t, b.rdb, jobs.WithDestinations(b.dest, well.dest, gone.dest))
	enqueue := func(destination string, opts ...jobs.Option) *jobs.Job {
		t.Helper()
		j, err := client.Enqueue(ctx, jobs.New(destination, 1, opts...))
		b.must(err)
		return j
	}
	const parents = 120 // more than are looked at at once
	var lost []*jobs.Job
	for range parents {
		p := enqueue(b.dest)
		lost = append(lost, enqueue(gone.dest, jobs.After(p.ID)))
		b.run(p, store.StateCompleted)
	}
	both := enqueue(b.dest)
	sibling, lostToo := enqueue(well.dest, jobs.After(both.ID)), enqueue(gone.dest, jobs.After(both.ID))
	b.run(both, store.StateCompleted)
	last := enqueue(b.dest)
	child := enqueue(well.dest, jobs.After(last.ID))
	grandchild := enqueue(b.dest, jobs.After(child.ID))

	rdb := server.Client(t)
	hook := &awayHook{queue: store.DefaultNamespace.Queue(gone.dest, store.Default)}
	rdb.AddHook(hook)
	cut, err := jobs.NewClient(rdb, jobs.WithDestinations(b.dest, well.dest, gone.dest))
	b.must(err)
	err = cut.Cancel(ctx, last.ID)
	if !errors.Is(err, errAway) {
		t.Errorf("error %v, want that of the node", err)
	}
	b.wantStatus(sibling, jobs.Pending)
	b.wantStatus(child, jobs.Cancelled)
	b.wantStatus(grandchild, jobs.Cancelled)
	if n := hook.calls.Load(); n > 20 {
		t.Errorf("the node that is away was asked %d times", n)
	}
	for _, j := range append(lost, lostToo) {
		b.wantStatus(j, jobs.Waiting)
	}
	b.must(client.Cancel(ctx, enqueue(b.dest).ID)) // the node is back
	for _, j := range append(lost, lostToo) {
		b.wantStatus(j, jobs.Pending)
	}
	if b.rdb.Exists(ctx, store.OutboxKey(b.queue())).Val() != 0 {
		t.Error("something is left to be told")
	}
}

// A parent that is put off or is to be called again, or was paused, releases nothing
// and cancels nothing.
func TestParentThatHasNotEnded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, l := range lives {
		if l.status.Final() {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			b := benchOn(t, server.Client(t))
			parent := l.make(b)
			child := b.enqueue(jobs.After(parent.ID))
			b.tell(parent)
			b.wantStatus(child, jobs.Waiting)
			b.wantStatus(parent, l.status)
		})
	}
}
