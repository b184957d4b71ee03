package jobs_test

import (
	"errors"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A Redis without memory left takes no new jobs, but lets people stop those that it
// has, and children run whose parents completed: that is how it gets room again.
func TestFullRedisLetsJobsEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := benchOn(t, server.Client(t))
	parent := b.enqueue()
	child := b.enqueue(jobs.After(parent.ID))
	stopped, paused, resumed := b.enqueue(), b.enqueue(), b.enqueue()
	b.must(b.Pause(t.Context(), resumed.ID))
	b.run(parent, store.StateCompleted)
	b.must(b.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())

	if _, err := b.Enqueue(t.Context(), jobs.New(b.dest, nil)); err == nil {
		t.Error("a full Redis took a job")
	}
	b.must(b.Cancel(t.Context(), stopped.ID))
	b.must(b.Pause(t.Context(), paused.ID))
	b.must(b.Resume(t.Context(), resumed.ID))
	b.must(store.ReleaseChildren(t.Context(), b.rdb, store.Ref{Queue: b.queue(), ID: parent.ID}))
	if changed, err := b.PauseDestination(t.Context(), b.dest); err != nil || !changed {
		t.Errorf("pause of the destination: %v, %v", changed, err)
	}
	if changed, err := b.PauseDestination(t.Context(), b.dest); err != nil || changed {
		t.Errorf("another pause of the destination: %v, %v", changed, err)
	}
	if changed, err := b.ResumeDestination(t.Context(), b.dest); err != nil || !changed {
		t.Errorf("resume of the destination: %v, %v", changed, err)
	}
	for id, want := range map[string]jobs.Status{
		stopped.ID: jobs.Cancelled, paused.ID: jobs.Paused, resumed.ID: jobs.Pending, child.ID: jobs.Pending,
	} {
		if got := b.get(id).Status; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
}

// A producer that repeats an enqueue gets the job that it made, also when the job's
// parents are no more.
func TestDuplicateOutlivesItsParents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	parent := b.enqueue()
	id := redistest.Name(t, "child")
	b.enqueue(jobs.ID(id), jobs.After(parent.ID))
	b.must(b.rdb.Del(t.Context(), store.TaskKey(b.queue(), parent.ID)).Err())
	again, err := b.Enqueue(t.Context(), jobs.New(b.dest, nil, jobs.ID(id), jobs.After(parent.ID)))
	if err != nil || !again.Duplicate || again.ID != id {
		t.Errorf("%+v, %v, want the existing job as a duplicate", again, err)
	}
	if _, err := b.Enqueue(t.Context(), jobs.New(b.dest, nil, jobs.After(parent.ID))); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("a new child of a job that is gone: %v", err)
	}
}
