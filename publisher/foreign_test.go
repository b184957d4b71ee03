package publisher_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Tasks of a plain asynq client in our queue are counted and logged once a type, and our jobs
// behind them run.
func TestTasksOfOtherProgramsAreLoggedOnceAndCounted(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	client := asynq.NewClientFromRedisClient(b.rdb)
	enqueue := func(n int, taskType string) {
		for range n {
			if _, err := client.Enqueue(asynq.NewTask(taskType, nil), asynq.Queue(b.queue())); err != nil {
				t.Error(err)
			}
		}
	}
	enqueue(30, "email:send")
	enqueue(20, strings.Repeat("long", 50))
	log := &loggingtest.Buffer{}
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	var count atomic.Int64
	o.Observe(publisher.Observer{OnForeign: func(destination string, n int) {
		if destination != b.dest {
			t.Errorf("counted for %s", destination)
		}
		count.Add(int64(n))
	}})
	b.run(o, succeed)
	b.result(b.enqueue().ID)
	redistest.Eventually(t, "all of them", func() bool { return count.Load() == 50 })
	enqueue(7, "email:send")
	redistest.Eventually(t, "more of them", func() bool { return count.Load() == 57 })
	const line = "tasks of another program in a queue of Tidegate were not run"
	for of, n := range map[string]int{"email:send": 30, strings.Repeat("long", 25): 20} {
		text := fmt.Sprintf("queue=%s type=%s tasks=", b.queue(), of)
		if got := strings.Count(log.String(), text); got != 1 {
			t.Errorf("%q is logged %d times, want once (of %d tasks)", text, got, n)
		}
	}
	if got := strings.Count(log.String(), line); got != 2 {
		t.Errorf("%d lines, want 2:\n%s", got, log)
	}
}

// A job whose message cannot be read fails and says why, once in the fleet; the others run.
func TestUnreadableJobsFail(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	broken := b.enqueue(jobs.Key("alice"))
	m := store.Message{
		Type: store.TaskType, ID: broken.ID, Queue: b.queue(), Payload: []byte(`{}`), Retry: store.MaxRetry, Timeout: store.TaskTimeout,
		Headers: map[string]string{"created": "1", "path": "/caf\xe9"},
	}
	if err := b.rdb.HSet(t.Context(), store.TaskKey(b.queue(), broken.ID), store.FieldMsg, m.AppendTo(nil)).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
			if j.ID == broken.ID {
				t.Error("it was called")
			}
			return nil
		})
	}
	e := b.result(broken.ID)
	if e.Result != publisher.FailedFinal || e.Job.Key != "alice" || !strings.Contains(e.LastError, "not valid UTF-8") || !strings.Contains(e.LastError, "field 15") {
		t.Errorf("event %+v", e)
	}
	for range 3 {
		if e := b.result(b.enqueue().ID); e.Result != publisher.Completed {
			t.Errorf("event %+v", e)
		}
	}
	if len(b.passed) > 0 {
		t.Errorf("it failed more than once: %+v", b.passed)
	}
}
