package jobs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// The parents of a job may have ended before it is enqueued: the answer to the
// enqueue says what became of it by that.
func TestParentsThatHaveEnded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	completed := func(b *bench) *jobs.Job { j := b.enqueue(); b.run(j, store.StateCompleted); return j }
	failed := func(b *bench) *jobs.Job { j := b.enqueue(); b.run(j, store.StateFailed); return j }
	cancelled := after(jobs.ActionCancel, pending)
	expired := func(b *bench) *jobs.Job { return b.enqueue(jobs.TTL(0)) }
	type ways []func(*bench) *jobs.Job
	for name, tc := range map[string]struct {
		parents ways
		opts    []jobs.Option
		want    jobs.Status
		reason  string // about the first parent
	}{
		"completed":              {ways{completed}, nil, jobs.Pending, ""},
		"all completed":          {ways{completed, completed}, nil, jobs.Pending, ""},
		"completed, for later":   {ways{completed}, []jobs.Option{jobs.Delay(hour)}, jobs.Pending, ""},
		"completed, urgent":      {ways{completed}, []jobs.Option{jobs.Prioritize(jobs.PriorityHigh)}, jobs.Pending, ""},
		"completed and pending":  {ways{completed, pending}, nil, jobs.Waiting, ""},
		"failed":                 {ways{failed}, nil, jobs.Cancelled, "failed: boom"},
		"failed and completed":   {ways{failed, completed}, nil, jobs.Cancelled, "failed: boom"},
		"failed and pending":     {ways{failed, pending}, nil, jobs.Cancelled, "failed: boom"},
		"cancelled":              {ways{cancelled}, nil, jobs.Cancelled, "was cancelled"},
		"expired":                {ways{expired}, nil, jobs.Cancelled, "expired"},
		"expired, in a batch":    {ways{expired}, []jobs.Option{jobs.Batch("b")}, jobs.Cancelled, "expired"},
		"failed, expired itself": {ways{failed}, []jobs.Option{jobs.TTL(0)}, jobs.Expired, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := server.Client(t)
			b, other := benchOn(t, rdb), benchOn(t, rdb)
			var parents []*jobs.Job
			for _, way := range tc.parents {
				parents = append(parents, way(other))
			}
			job := b.enqueue(append(tc.opts, jobs.After(idsOf(parents)...))...)
			if job.Status != tc.want {
				t.Errorf("the enqueue says %s, want %s", job.Status, tc.want)
			}
			if diff := cmp.Diff(job, b.get(job.ID)); diff != "" {
				t.Errorf("(-enqueued +looked up):\n%s", diff)
			}
			if tc.want == jobs.Cancelled {
				b.wantCancelled(job, "parent "+parents[0].ID+" "+tc.reason)
			}
			inQueue := slices.Contains(b.waiting(queueOf(job)), job.ID)
			if want := tc.want == jobs.Pending && job.AvailableAt.Before(time.Now().Add(time.Minute)); inQueue != want {
				t.Errorf("in the queue: %t", inQueue)
			}
			b.history(job.ID)
		})
	}
}

// A parent that does not exist is refused, with all that are missing named, and
// nothing is written. The others of the same call are accepted.
func TestUnknownParents(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := context.Background()
		known := b.enqueue()
		results, err := b.EnqueueMany(ctx, []*jobs.Spec{
			jobs.New(b.dest, 0, jobs.After("nobody-1", known.ID, "nobody-2"), jobs.Batch("lost"), jobs.TTL(hour)),
			jobs.New(b.dest, 1, jobs.ID(b.dest+"-lost"), jobs.After("nobody-1")),
			jobs.New(b.dest, 2, jobs.After(b.dest+"-lost")), // of a job that was refused
			jobs.New(b.dest, 3, jobs.After(known.ID)),
			jobs.New(b.dest, 4),
		})
		b.must(err)
		const hint = `" not found; enqueue parents first`
		for i, want := range []string{
			`jobs: enqueue: after: job "nobody-1` + hint + `; after: job "nobody-2` + hint,
			`jobs: enqueue: after: job "nobody-1` + hint,
			`jobs: enqueue: after: job "` + b.dest + "-lost" + hint,
		} {
			invalid, ok := errors.AsType[*jobs.ValidationError](results[i].Err)
			if results[i].Job != nil || !ok || !errors.Is(results[i].Err, jobs.ErrInvalid) || results[i].Err.Error() != want || invalid.Fields[0].Field != "after" {
				t.Errorf("result %d: %+v, %v; want %s", i, results[i].Job, results[i].Err, want)
			}
		}
		want := []string{results[4].Job.ID, results[3].Job.ID, known.ID}
		if diff := cmp.Diff(want, idsOf(b.list(filter(b.dest)).Items)); diff != "" {
			t.Errorf("jobs (-want +got):\n%s", diff)
		}
		if _, err := b.Batch(ctx, "lost"); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("batch of a refused job: %v", err)
		}
		for _, set := range []string{store.ExpiryKey(b.queue()), store.BatchKey(b.queue(), "lost")} {
			if n := rdb.Exists(ctx, set).Val(); n != 0 {
				t.Errorf("%s was written", set)
			}
		}
	})
}

func TestAfterIsValidated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	parent := b.enqueue()
	for want, opts := range map[string][]jobs.Option{
		"after: a job cannot wait for itself":                                                       {jobs.ID("me"), jobs.After("me")},
		`after: "a b" cannot be the id of a job; after: "" cannot be the id of a job`:               {jobs.After("a b", "")},
		"after: has 1001 ids, at most 1000 are accepted":                                            {jobs.After(slices.Repeat([]string{"a"}, 1001)...)},
		`batch: "a b" must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit`: {jobs.Batch("a b")},
	} {
		_, err := b.Enqueue(context.Background(), jobs.New(b.dest, 1, opts...))
		if err == nil || err.Error() != "jobs: enqueue: "+want || !errors.Is(err, jobs.ErrInvalid) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	// A parent that is named twice is waited for once.
	child := b.enqueue(jobs.After(parent.ID, parent.ID), jobs.After(parent.ID))
	if diff := cmp.Diff([]string{parent.ID}, child.After); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	b.complete(parent)
	b.wantStatus(child, jobs.Pending)
}

// An id that exists is answered with the job that has it, whatever parents the new
// one names; nothing about the old one changes.
func TestDuplicateWithParents(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b, other := benchOn(t, rdb), benchOn(t, rdb)
		parent := b.enqueue()
		plain := b.enqueue(jobs.ID(b.dest + "-plain"))
		child := b.enqueue(jobs.ID(b.dest+"-child"), jobs.After(parent.ID))
		for _, tc := range []struct {
			b    *bench
			of   *jobs.Job
			opts []jobs.Option
		}{
			{b, plain, []jobs.Option{jobs.After(parent.ID)}},
			{b, plain, []jobs.Option{jobs.After(child.ID), jobs.TTL(0), jobs.Batch("b")}},
			{other, plain, []jobs.Option{jobs.After(parent.ID)}},
			{b, child, nil},
			{b, child, []jobs.Option{jobs.After(parent.ID)}},
			{b, child, []jobs.Option{jobs.After(plain.ID)}},
			{other, child, []jobs.Option{jobs.After(plain.ID), jobs.Prioritize(jobs.PriorityLow)}},
		} {
			got := tc.b.enqueue(append(tc.opts, jobs.ID(tc.of.ID))...)
			want := *tc.of
			want.Duplicate = true
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("(-existing +answer):\n%s", diff)
			}
		}
		// Its first enqueue counts: it waits for the parent, and for no other job.
		b.run(plain, store.StateCompleted)
		b.tell(plain)
		b.wantStatus(child, jobs.Waiting)
		b.complete(parent)
		b.wantStatus(child, jobs.Pending)
		if diff := cmp.Diff([]string{child.ID}, b.waiting(b.queue())); diff != "" {
			t.Errorf("queue (-want +got):\n%s", diff)
		}
	})
}

// Of an id that comes twice in one call the second is a duplicate, also where the parents
// that it names do not exist.
func TestIDTwiceInOneCallWithUnknownParents(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		results, err := b.EnqueueMany(context.Background(), []*jobs.Spec{
			jobs.New(b.dest, 1, jobs.ID(b.dest+"-x")),
			jobs.New(b.dest, 2, jobs.ID(b.dest+"-x"), jobs.After(b.dest+"-gone")),
			jobs.New(b.dest, 3, jobs.After(b.dest+"-gone")),
		})
		b.must(err)
		for i, r := range results[:2] {
			if r.Err != nil || r.Job.Duplicate != (i == 1) || string(r.Job.Payload) != "1" {
				t.Errorf("result %d: %+v, %v; want the first, as a duplicate: %t", i, r.Job, r.Err, i == 1)
			}
		}
		if !errors.Is(results[2].Err, jobs.ErrInvalid) {
			t.Errorf("an unknown parent: %v", results[2].Err)
		}
		if got := len(b.waiting(b.queue())); got != 1 {
			t.Errorf("%d jobs wait, want 1", got)
		}
	})
}
