package jobs_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

func queueOf(j *jobs.Job) string {
	return store.DefaultNamespace.Queue(j.Destination, store.Priority(j.Priority))
}

// start moves a job from the queue into a worker's hands.
func (b *bench) start(j *jobs.Job) {
	b.t.Helper()
	ctx, q := context.Background(), queueOf(j)
	n, err := b.rdb.LRem(ctx, store.PendingKey(q), 1, j.ID).Result()
	b.must(err)
	if n != 1 {
		b.t.Fatalf("%s is not in the queue", j.ID)
	}
	b.must(b.rdb.LPush(ctx, store.ActiveKey(q), j.ID).Err())
	b.change(j, store.FieldState, store.StateActive, store.FieldStartedAt, time.Now().UnixMilli(), store.FieldBy, "w:1")
}

// change writes fields of a job's record.
func (b *bench) change(j *jobs.Job, fields ...any) {
	b.t.Helper()
	b.must(b.rdb.HSet(context.Background(), store.TaskKey(queueOf(j), j.ID), fields...).Err())
}

// finish takes a job out of a worker's hands as workers do: to one of the states
// in which it has ended, or to where it waits for at. Its children are not told
// yet.
func (b *bench) finish(j *jobs.Job, state string, at time.Time, fields ...any) {
	b.t.Helper()
	ctx, q := context.Background(), queueOf(j)
	b.must(b.rdb.LRem(ctx, store.ActiveKey(q), 1, j.ID).Err())
	b.change(j, append(fields, store.FieldState, state)...)
	seconds := float64(at.UnixMilli()) / 1000
	switch state {
	case store.StateScheduled, store.StateRetry:
		b.change(j, store.FieldAvailableAt, at.UnixMilli())
		set := map[string]string{store.StateScheduled: store.ScheduledKey(q), store.StateRetry: store.RetryKey(q)}[state]
		b.must(b.rdb.ZAdd(ctx, set, redis.Z{Score: math.Ceil(seconds), Member: j.ID}).Err())
		b.must(b.rdb.ZAdd(ctx, store.DueKey(q), redis.Z{Score: float64(at.UnixMilli()), Member: j.ID}).Err())
		return
	case store.StateCompleted:
		b.must(b.rdb.ZAdd(ctx, store.CompletedKey(q), redis.Z{Score: seconds + 86400, Member: j.ID}).Err())
	default:
		b.must(b.rdb.ZAdd(ctx, store.ParkedKey(q, state), redis.Z{Score: float64(at.UnixMilli()), Member: j.ID}).Err())
	}
	b.change(j, store.FieldEndedAt, at.UnixMilli())
	children, err := b.rdb.HExists(ctx, store.TaskKey(q, j.ID), store.FieldChildren).Result()
	b.must(err)
	if children {
		b.must(b.rdb.ZAdd(ctx, store.OutboxKey(q), redis.Z{Score: float64(at.UnixMilli()), Member: j.ID}).Err())
	}
}

// run has a worker take a job and end it.
func (b *bench) run(j *jobs.Job, state string) {
	b.t.Helper()
	b.start(j)
	if state == store.StateFailed {
		b.finish(j, state, time.Now(), store.FieldLastError, "boom")
		return
	}
	b.finish(j, state, time.Now())
}

// dequeueGhosts drops what a fetching worker would drop from the head of the
// queue.
func (b *bench) dequeueGhosts() {
	b.t.Helper()
	ctx := context.Background()
	for _, id := range b.waiting(b.queue()) {
		key := store.TaskKey(b.queue(), id)
		if b.rdb.HGet(ctx, key, store.FieldState).Val() == store.StatePending {
			return
		}
		b.must(b.rdb.RPop(ctx, store.PendingKey(b.queue())).Err())
		b.must(b.rdb.HDel(ctx, key, store.FieldTombstone).Err())
		b.must(b.rdb.Decr(ctx, store.TombstonesKey(b.queue())).Err())
	}
}

// ghosts is how many ids of the queue are said to be of jobs that are elsewhere.
func (b *bench) ghosts(queue string) int {
	b.t.Helper()
	n, err := b.rdb.Get(context.Background(), store.TombstonesKey(queue)).Int()
	if !errors.Is(err, redis.Nil) {
		b.must(err)
	}
	return n
}

// act does something to one job and returns the answer.
func (b *bench) act(a jobs.Action, id string, opts ...jobs.ActOption) jobs.ActResult {
	b.t.Helper()
	results, err := b.Act(context.Background(), a, []string{id}, opts...)
	b.must(err)
	return results[0]
}

// history returns what happened to a job and checks what is so of any history.
func (b *bench) history(id string) []jobs.HistoryEntry {
	b.t.Helper()
	entries, err := b.History(context.Background(), id)
	b.must(err)
	checkHistory(b.t, entries)
	return entries
}

// checkHistory checks what is so of the history of any job: its creation comes
// first, versions go up by one unless the oldest were dropped, and time does not run
// backwards.
func checkHistory(t *testing.T, entries []jobs.HistoryEntry) {
	t.Helper()
	if len(entries) == 0 || len(entries) > 100 || entries[0].Version != 1 || entries[0].Event != "created" {
		t.Fatalf("history does not begin with the creation, or has more than 100 entries: %+v", entries)
	}
	for i, e := range entries[1:] {
		before := entries[i]
		dropped := i == 0 && len(entries) == 100
		if e.Version != before.Version+1 && !(dropped && e.Version > before.Version) {
			t.Errorf("version %d comes after version %d", e.Version, before.Version)
		}
		if e.At.Before(before.At.Add(-2 * time.Second)) { // two clocks, and whole milliseconds
			t.Errorf("version %d is of %s, version %d of %s", before.Version, before.At, e.Version, e.At)
		}
		if !slices.Contains(jobs.Statuses, e.Status) || e.Event == "" || e.At.Location() != time.UTC {
			t.Errorf("entry %+v", e)
		}
	}
}

// life is a way into one of the states of a job.
type life struct {
	name   string
	status jobs.Status
	make   func(b *bench) *jobs.Job
}

const hour = time.Hour

func pending(b *bench) *jobs.Job   { return b.enqueue() }
func scheduled(b *bench) *jobs.Job { return b.enqueue(jobs.Delay(hour)) }

func waiting(b *bench) *jobs.Job { return b.enqueue(jobs.After(b.enqueue().ID)) }

func running(b *bench) *jobs.Job {
	j := b.enqueue()
	b.start(j)
	return j
}

func rescheduled(b *bench) *jobs.Job {
	j := running(b)
	b.finish(j, store.StateScheduled, time.Now().Add(hour), store.FieldReschedules, 2, store.FieldReason, "breaker open")
	return j
}

func retryPending(b *bench) *jobs.Job {
	j := running(b)
	b.finish(j, store.StateRetry, time.Now().Add(hour), store.FieldAttempt, 1, store.FieldLastError, "boom", store.FieldReason, "failure")
	return j
}

// after is the life of a job to which something was done.
func after(a jobs.Action, way func(*bench) *jobs.Job) func(*bench) *jobs.Job {
	return func(b *bench) *jobs.Job {
		b.t.Helper()
		j := way(b)
		if r := b.act(a, j.ID); r.Err != nil {
			b.t.Fatal(r.Err)
		}
		return j
	}
}

// ended is the life of a job that a worker has ended, after some trouble.
func ended(state string) func(*bench) *jobs.Job {
	return func(b *bench) *jobs.Job {
		b.t.Helper()
		j := running(b)
		b.finish(j, state, time.Now(), store.FieldAttempt, 3, store.FieldReschedules, 2, store.FieldCrashes, 1,
			store.FieldReason, "failure", store.FieldLastError, "boom")
		return j
	}
}

// lives are all states of a job, with the ways into those that remember theirs.
var lives = []life{
	{"waiting", jobs.Waiting, waiting},
	{"pending", jobs.Pending, pending},
	{"scheduled", jobs.Pending, scheduled},
	{"rescheduled", jobs.Pending, rescheduled},
	{"retry_pending", jobs.RetryPending, retryPending},
	{"running", jobs.Running, running},
	{"running, cancel asked", jobs.Running, after(jobs.ActionCancel, running)},
	{"running, pause asked", jobs.Running, after(jobs.ActionPause, running)},
	{"paused while waiting", jobs.Paused, after(jobs.ActionPause, waiting)},
	{"paused while pending", jobs.Paused, after(jobs.ActionPause, pending)},
	{"paused while scheduled", jobs.Paused, after(jobs.ActionPause, scheduled)},
	{"paused while rescheduled", jobs.Paused, after(jobs.ActionPause, rescheduled)},
	{"paused while retry_pending", jobs.Paused, after(jobs.ActionPause, retryPending)},
	{"completed", jobs.Completed, func(b *bench) *jobs.Job { j := b.enqueue(); b.run(j, store.StateCompleted); return j }},
	{"failed", jobs.Failed, ended(store.StateFailed)},
	{"cancelled", jobs.Cancelled, after(jobs.ActionCancel, pending)},
	{"cancelled while retry_pending", jobs.Cancelled, after(jobs.ActionCancel, retryPending)},
	{"cancelled while waiting", jobs.Cancelled, after(jobs.ActionCancel, waiting)},
	{"expired", jobs.Expired, func(b *bench) *jobs.Job { return b.enqueue(jobs.TTL(0)) }},
}
