package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

func TestGetNotFound(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		job := b.enqueue()
		b.must(rdb.Del(context.Background(), store.TaskKey(b.queue(), job.ID)).Err())
		for _, id := range []string{"0199a0b1-0000-7000-8000-000000000000", job.ID, "never", ""} {
			j, err := b.Get(context.Background(), id)
			if j != nil || !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("get %q: %+v, %v", id, j, err)
			}
		}
		_, err := b.Get(context.Background(), "never")
		if want := "jobs: get never: job not found"; err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	})
}

// A client finds jobs of queues that did not exist when it began.
func TestGetFindsNewQueues(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	reader := benchOn(t, rdb)
	if _, err := reader.Get(context.Background(), "nothing-yet"); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatal(err)
	}
	writer := benchOn(t, rdb)
	job := writer.enqueue(jobs.Prioritize(jobs.PriorityLow))
	if got := reader.get(job.ID); got.Destination != writer.dest || got.Priority != jobs.PriorityLow {
		t.Errorf("found %+v", got)
	}
}

func TestGetOfARecordThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.enqueue()
	b.set(job.ID, store.FieldState, "archived")
	_, err := b.Get(context.Background(), job.ID)
	want := "jobs: get " + job.ID + ": job " + job.ID + ": a tool of asynq has archived it: run tidegate doctor, which makes it a failed job that can be retried"
	if err == nil || err.Error() != want || errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("error %v, want %s", err, want)
	}
	for _, a := range []jobs.Action{jobs.ActionRetry, jobs.ActionCancel, jobs.ActionPause, jobs.ActionResume, jobs.ActionExpire} {
		results, err := b.Act(t.Context(), a, []string{job.ID})
		const why = ": it is archived by a tool of asynq: run tidegate doctor, which makes it a failed job that can be retried"
		if err != nil || !errors.Is(results[0].Err, jobs.ErrStatus) || !strings.HasSuffix(results[0].Err.Error(), why) {
			t.Errorf("%s: %v, %v", a, err, results[0].Err)
		}
	}
}
