package jobs_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// fetch starts the next job as a worker does, of a held key if one is named.
func (b *bench) fetch(key string) (id, run string) {
	b.t.Helper()
	run = redistest.Name(b.t, "run")
	r, err := store.Fetch(context.Background(), b.rdb, store.FetchArgs{
		Queue: b.queue(), Key: key, Run: run, Worker: "w", Max: 1, Lease: store.Lease,
	})
	b.must(err)
	if len(r.Jobs) != 1 {
		b.t.Fatalf("%d jobs were fetched", len(r.Jobs))
	}
	return r.Jobs[0].ID, run
}

// apply ends the run of a job.
func (b *bench) apply(id, run string, o store.Outcome) {
	b.t.Helper()
	_, err := store.Apply(context.Background(), b.rdb, b.queue(), id, run, o)
	b.must(err)
}

// The age of the oldest job counts from its creation, wherever the job waits since; from its given
// time, if it has one; from its parents' end; and from a retry by hand. What does not wait to run has
// no age.
func TestAgeOfTheOldestJob(t *testing.T) {
	t.Parallel()
	const none = time.Duration(0)
	inAnHour := func(kind store.Kind) store.Outcome { return store.Outcome{Kind: kind, At: time.Now().Add(hour)} }
	for name, test := range map[string]struct {
		opts []jobs.Option
		does func(b *bench, id string) // with a job that was created three hours ago
		age  time.Duration
	}{
		"in the queue":  {age: 3 * hour, does: func(*bench, string) {}},
		"rescheduled":   {age: 3 * hour, does: func(b *bench, _ string) { id, run := b.fetch(""); b.apply(id, run, inAnHour(store.KindReschedule)) }},
		"to be retried": {age: 3 * hour, does: func(b *bench, _ string) { id, run := b.fetch(""); b.apply(id, run, inAnHour(store.KindRetry)) }},
		"its worker died": {age: 3 * hour, does: func(b *bench, _ string) {
			id, run := b.fetch("")
			b.must(b.rdb.ZAdd(context.Background(), store.LeaseKey(b.queue()), redis.Z{Score: 1, Member: id}).Err())
			b.apply(id, run, inAnHour(store.KindRecover))
		}},
		"not started": {age: 3 * hour, does: func(b *bench, _ string) { id, run := b.fetch(""); b.apply(id, run, inAnHour(store.KindUnstarted)) }},
		"put back": {age: 3 * hour, does: func(b *bench, _ string) {
			id, run := b.fetch("")
			b.apply(id, run, store.Outcome{Kind: store.KindRequeue})
		}},
		"rescheduled to the back of the queue": {age: 3 * hour, does: func(b *bench, _ string) {
			id, run := b.fetch("")
			b.apply(id, run, store.Outcome{Kind: store.KindReschedule})
		}},
		"rescheduled and due again": {age: 3 * hour, does: func(b *bench, _ string) {
			id, run := b.fetch("")
			b.apply(id, run, store.Outcome{Kind: store.KindReschedule, At: time.Now().Add(time.Second)})
			b.must(b.rdb.ZAdd(context.Background(), store.DueKey(b.queue()), redis.Z{Score: 1, Member: id}).Err())
			_, err := store.Forward(context.Background(), b.rdb, store.ForwardArgs{Queue: b.queue(), Move: true})
			b.must(err)
		}},
		"held by its key": {opts: []jobs.Option{jobs.Key("k")}, age: 3 * hour, does: func(b *bench, _ string) {
			id, run := b.fetch("")
			_, _, err := store.Hold(context.Background(), b.rdb, b.queue(), run, []store.HeldJob{{ID: id, Key: "k", Place: "1"}})
			b.must(err)
		}},
		"rescheduled, then held": {opts: []jobs.Option{jobs.Key("k")}, age: 3 * hour, does: func(b *bench, _ string) {
			id, run := b.fetch("")
			b.apply(id, run, store.Outcome{Kind: store.KindReschedule})
			id, run = b.fetch("")
			_, _, err := store.Hold(context.Background(), b.rdb, b.queue(), run, []store.HeldJob{{ID: id, Key: "k", Place: "1"}})
			b.must(err)
		}},
		"paused and resumed": {age: 3 * hour, does: func(b *bench, id string) {
			b.must(b.Pause(context.Background(), id))
			b.must(b.Resume(context.Background(), id))
		}},
		"paused": {age: none, does: func(b *bench, id string) { b.must(b.Pause(context.Background(), id)) }},
		"rescheduled, then paused": {age: none, does: func(b *bench, id string) {
			_, run := b.fetch("")
			b.apply(id, run, inAnHour(store.KindReschedule))
			b.must(b.Pause(context.Background(), id))
		}},
		"running": {age: none, does: func(b *bench, _ string) { b.fetch("") }},
		"rescheduled, then running": {age: none, does: func(b *bench, _ string) {
			id, run := b.fetch("")
			b.apply(id, run, store.Outcome{Kind: store.KindReschedule})
			b.fetch("")
		}},
		"rescheduled, then completed": {age: none, does: func(b *bench, _ string) {
			id, run := b.fetch("")
			b.apply(id, run, store.Outcome{Kind: store.KindReschedule})
			b.fetch("")
			_, err := store.Complete(context.Background(), b.rdb, store.CompleteArgs{Queue: b.queue(), Jobs: []store.Completion{{ID: id}}})
			b.must(err)
			b.empty(store.FirstDueKey(b.queue()))
		}},
		"rescheduled, then cancelled": {age: none, does: func(b *bench, id string) {
			_, run := b.fetch("")
			b.apply(id, run, inAnHour(store.KindReschedule))
			b.must(b.Cancel(context.Background(), id))
			b.empty(store.FirstDueKey(b.queue()))
		}},
		"failed, then retried by hand": {age: time.Millisecond, does: func(b *bench, id string) {
			_, run := b.fetch("")
			b.apply(id, run, store.Outcome{Kind: store.KindReschedule})
			_, run = b.fetch("")
			b.apply(id, run, store.Outcome{Kind: store.KindFail})
			b.must(b.Retry(context.Background(), id))
		}},
		"for later": {opts: []jobs.Option{jobs.Delay(hour)}, age: none, does: func(*bench, string) {}},
		"for a time that has come, without a worker": {opts: []jobs.Option{jobs.Delay(hour)}, age: 2 * hour, does: func(b *bench, id string) {
			at := time.Now().Add(-2 * hour).UnixMilli()
			b.must(b.rdb.ZAdd(context.Background(), store.DueKey(b.queue()), redis.Z{Score: float64(at), Member: id}).Err())
		}},
		"of an earlier version, completed": {age: none, does: func(b *bench, id string) {
			b.must(b.Cancel(context.Background(), id))
			b.must(b.rdb.ZAdd(context.Background(), store.FirstDueKey(b.queue()), redis.Z{Score: 1, Member: id}, redis.Z{Score: 2, Member: "gone"}).Err())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				b := benchOn(t, rdb)
				job := b.enqueue(test.opts...)
				if b.get(job.ID).AvailableAt.Before(time.Now()) {
					b.change(job, store.FieldPendingSince, strconv.FormatInt(time.Now().Add(-3*hour).UnixNano(), 10))
				}
				test.does(b, job.ID)
				got := b.stats()
				if test.age == none {
					if got.OldestPendingAt != nil || got.OldestPendingID != "" {
						t.Errorf("the oldest is %q, of %g s", got.OldestPendingID, got.OldestPendingAge)
					}
					return
				}
				if low := test.age.Seconds() - 1; got.OldestPendingAt == nil || got.OldestPendingAge < low || got.OldestPendingAge > low+600 {
					t.Errorf("the oldest waits since %v, %g s; want %s", got.OldestPendingAt, got.OldestPendingAge, test.age)
				}
				if got.OldestPendingID != job.ID {
					t.Errorf("the oldest is %q", got.OldestPendingID)
				}
				survey, err := b.Survey(context.Background(), b.dest, 0)
				if err != nil || got.OldestPendingAt == nil || !survey.OldestPending.Equal(*got.OldestPendingAt) || survey.OldestPendingID != job.ID {
					t.Errorf("a survey says %s since %s (%v)", survey.OldestPendingID, survey.OldestPending, err)
				}
			})
		})
	}
}

func (b *bench) empty(key string) {
	b.t.Helper()
	n, err := b.rdb.Exists(context.Background(), key).Result()
	b.must(err)
	if n != 0 {
		b.t.Errorf("%s is left", key)
	}
}
