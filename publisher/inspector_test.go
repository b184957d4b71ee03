package publisher_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// asynq's own tools work beside Tidegate, over jobs in every state.
func TestInspectorReadsJobsInEveryState(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newFixture(t)
	release := make(chan struct{})
	defer close(release)
	// Before the worker starts: it fetches sooner than a message is sure to arrive.
	if _, err := breaker.DefaultNamespace.Trip(ctx, b.rdb, b.dest+"/alice", breaker.TripOptions{For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
		switch string(j.Payload) {
		case `"fail"`, `"retry"`:
			return errors.New("boom")
		case `"reschedule"`:
			return jobs.Reschedule(time.Hour + 1500*time.Microsecond)
		case `"run"`:
			<-release
		}
		return nil
	}, publisher.Concurrency(1))
	enqueue := func(payload string, opts ...jobs.Option) string {
		t.Helper()
		j, err := b.client.Enqueue(ctx, jobs.New(b.dest, payload, opts...))
		if err != nil {
			t.Fatal(err)
		}
		return j.ID
	}
	slow := jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 300 * time.Second})
	own := map[string]string{ // in states of ours, which asynq does not know
		"held":   enqueue("held", jobs.Key("alice")),
		"failed": enqueue("fail"),
	}
	retry, rescheduled, completed := enqueue("retry", slow), enqueue("reschedule"), enqueue("complete")
	b.waitStatus(completed, jobs.Completed)
	running := enqueue("run")
	b.waitStatus(running, jobs.Running)
	scheduled := enqueue("schedule", jobs.Delay(time.Hour+1500*time.Microsecond))
	pending := enqueue("pend")
	own["waiting"] = enqueue("wait", jobs.After(scheduled))
	own["paused"], own["cancelled"], own["expired"] = enqueue("pause", slow), enqueue("cancel"), enqueue("expire")
	for _, err := range []error{
		b.client.Pause(ctx, own["paused"]), b.client.Cancel(ctx, own["cancelled"]), b.client.MarkExpired(ctx, own["expired"]),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	inspector := asynq.NewInspectorFromRedisClient(b.rdb)
	list := func(state asynq.TaskState, tasks []*asynq.TaskInfo, err error, want ...string) {
		t.Helper()
		if err != nil {
			t.Errorf("list of %s tasks: %v", state, err)
			return
		}
		var got []string
		for _, task := range tasks {
			got = append(got, task.ID)
		}
		slices.Sort(got)
		slices.Sort(want)
		if state == asynq.TaskStatePending {
			got = slices.DeleteFunc(got, func(id string) bool { return id != pending }) // ids of ended jobs are dropped later
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s tasks (-want +got):\n%s", state, diff)
		}
		for _, id := range want {
			info, err := inspector.GetTaskInfo(b.queue(), id)
			if err != nil {
				t.Errorf("%s task %s: %v", state, id, err)
				continue
			}
			if info.State != state {
				t.Errorf("%s is %s to asynq, want %s", id, info.State, state)
			}
			for _, key := range []string{store.ScheduledKey(b.queue()), store.RetryKey(b.queue())} {
				if score := b.rdb.ZScore(ctx, key, id).Val(); score != math.Trunc(score) {
					t.Errorf("%s has the score %f; asynq's CLI reads whole seconds only", id, score)
				}
			}
			if at := b.get(id).AvailableAt; state == asynq.TaskStateScheduled || state == asynq.TaskStateRetry {
				if late := info.NextProcessAt.Sub(at); late < 0 || late >= time.Second {
					t.Errorf("%s is due at %s to asynq, %s after %s; want the first whole second", id, info.NextProcessAt, late, at)
				}
			}
		}
	}
	tasks, err := inspector.ListScheduledTasks(b.queue())
	list(asynq.TaskStateScheduled, tasks, err, scheduled, rescheduled)
	tasks, err = inspector.ListRetryTasks(b.queue())
	list(asynq.TaskStateRetry, tasks, err, retry)
	tasks, err = inspector.ListPendingTasks(b.queue())
	list(asynq.TaskStatePending, tasks, err, pending)
	tasks, err = inspector.ListActiveTasks(b.queue())
	list(asynq.TaskStateActive, tasks, err, running)
	tasks, err = inspector.ListCompletedTasks(b.queue())
	list(asynq.TaskStateCompleted, tasks, err, completed)
	tasks, err = inspector.ListArchivedTasks(b.queue())
	list(asynq.TaskStateArchived, tasks, err)
	if _, err := inspector.GetQueueInfo(b.queue()); err != nil {
		t.Errorf("queue: %v", err)
	}
	for state, id := range own {
		if _, err := inspector.GetTaskInfo(b.queue(), id); err == nil || err.Error() != `asynq: FAILED_PRECONDITION: FAILED_PRECONDITION: "`+state+`" is not supported task state` {
			t.Errorf("%s task: %v, want that asynq does not know its state", state, err)
		}
	}

	// What asynq's tools change is taken up.
	if err := inspector.RunTask(b.queue(), scheduled); err != nil {
		t.Error(err)
	}
	if got := b.get(scheduled).Status; got != jobs.Pending {
		t.Errorf("a task that asynq was told to run is %s", got)
	}
}

// asynq's own tools cancel a job that runs, whether asynq started its handler or a goroutine went on with it
// after another job.
func TestAsynqCancelsWhatRuns(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	started := make(chan string, 1)
	const n = 20
	jobsLeft := atomic.Int32{}
	jobsLeft.Store(n)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = b.enqueue().ID
	}
	b.run(b.options(), func(ctx context.Context, j *jobs.Job) error {
		if jobsLeft.Add(-1) == 0 { // the last one: a goroutine has run others before
			started <- j.ID
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}, publisher.Concurrency(1))
	id := <-started
	if err := asynq.NewInspectorFromRedisClient(b.rdb).CancelProcessing(id); err != nil {
		t.Fatal(err)
	}
	b.waitStatus(id, jobs.Cancelled)
}

// Held jobs of a key go on at the new time if an operator trips its breaker for a shorter time.
func TestHeldJobsOfAKeyTrippedForLess(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	trip := func(d time.Duration) {
		t.Helper()
		if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, b.dest+"/alice", breaker.TripOptions{For: d}); err != nil {
			t.Fatal(err)
		}
	}
	trip(time.Hour)
	b.run(b.options(), func(context.Context, *jobs.Job) error { return nil }, publisher.Concurrency(1))
	held := b.enqueue(jobs.Key("alice"))
	b.waitStatus(b.enqueue().ID, jobs.Completed) // so the first one was fetched, and is held for an hour
	trip(100 * time.Millisecond)
	b.waitStatus(held.ID, jobs.Completed)
}
