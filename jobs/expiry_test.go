package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// overdue lets the time of jobs be over, as if it had passed.
func (b *bench) overdue(js ...*jobs.Job) {
	b.t.Helper()
	past := time.Now().Add(-time.Second).UnixMilli()
	for _, j := range js {
		b.change(j, store.FieldExpiresAt, past)
		b.must(b.rdb.ZAdd(context.Background(), store.ExpiryKey(queueOf(j)), redis.Z{Score: float64(past), Member: j.ID}).Err())
	}
}

// expirable are the states in which a job can expire, and what its history calls
// them.
var expirable = []struct {
	name, while string
	make        func(*bench, ...jobs.Option) *jobs.Job
}{
	{"pending", "while pending", func(b *bench, o ...jobs.Option) *jobs.Job { return b.enqueue(o...) }},
	{"scheduled", "while pending", func(b *bench, o ...jobs.Option) *jobs.Job {
		return b.enqueue(append(o, jobs.At(time.Now().Add(hour)))...)
	}},
	{"rescheduled", "while pending", func(b *bench, o ...jobs.Option) *jobs.Job {
		j := b.enqueue(o...)
		b.start(j)
		b.finish(j, store.StateScheduled, time.Now().Add(hour))
		return j
	}},
	{"retry_pending", "while retry_pending", func(b *bench, o ...jobs.Option) *jobs.Job {
		j := b.enqueue(o...)
		b.start(j)
		b.finish(j, store.StateRetry, time.Now().Add(hour))
		return j
	}},
	{"waiting", "while waiting", func(b *bench, o ...jobs.Option) *jobs.Job {
		return b.enqueue(append(o, jobs.After(b.enqueue(o...).ID))...)
	}},
	{"paused", "while paused", func(b *bench, o ...jobs.Option) *jobs.Job {
		j := b.enqueue(o...)
		b.must(b.Pause(context.Background(), j.ID))
		return j
	}},
	{"paused while retry_pending", "while paused", func(b *bench, o ...jobs.Option) *jobs.Job {
		j := b.enqueue(o...)
		b.start(j)
		b.finish(j, store.StateRetry, time.Now().Add(hour))
		b.must(b.Pause(context.Background(), j.ID))
		return j
	}},
}

// Where no worker runs, whoever looks first sees the job as expired, however he
// looks, and everything agrees from then on.
func TestExpiredJobsAreSeenAsExpired(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	looks := map[string]func(b *bench, j *jobs.Job) jobs.Status{
		"get": func(b *bench, j *jobs.Job) jobs.Status { return b.get(j.ID).Status },
		"list": func(b *bench, j *jobs.Job) jobs.Status {
			return statusIn(b.list(filter(b.dest)).Items, j.ID)
		},
		"list by status": func(b *bench, j *jobs.Job) jobs.Status {
			return statusIn(b.list(filter(b.dest, jobs.Expired)).Items, j.ID)
		},
		"list of a batch by status": func(b *bench, j *jobs.Job) jobs.Status {
			return statusIn(b.list(jobs.ListOptions{Filter: jobs.Filter{Batch: b.dest, Statuses: []jobs.Status{jobs.Expired}}}).Items, j.ID)
		},
		"batch": func(b *bench, _ *jobs.Job) jobs.Status {
			s, err := b.Batch(ctx, b.dest)
			b.must(err)
			return onlyStatus(s.Counts, jobs.Expired)
		},
		"stats": func(b *bench, _ *jobs.Job) jobs.Status { return onlyStatus(b.stats().Counts, jobs.Expired) },
	}
	for _, state := range expirable {
		for look, see := range looks {
			t.Run(state.name+", "+look, func(t *testing.T) {
				t.Parallel()
				rdb := server.Client(t)
				b := benchOn(t, rdb)
				job := state.make(b, jobs.TTL(hour), jobs.Batch(b.dest))
				b.overdue(job)
				before := time.Now().UTC().Truncate(time.Millisecond)
				if got := see(b, job); got != jobs.Expired {
					t.Errorf("seen as %q", got)
				}
				got := b.get(job.ID)
				if got.Status != jobs.Expired || got.MarkedExpiredAt == nil || got.MarkedExpiredAt.Before(before) ||
					got.EndedAt == nil || got.NextRetryAt != nil || got.CompletedAt != nil || got.LastError != "" {
					t.Errorf("expired job %+v", got)
				}
				h := b.history(job.ID)
				want := jobs.HistoryEntry{Version: len(h), At: h[len(h)-1].At, Status: jobs.Expired, Event: "expired", Detail: state.while}
				if diff := cmp.Diff(want, h[len(h)-1]); diff != "" {
					t.Errorf("last entry (-want +got):\n%s", diff)
				}
				for _, s := range jobs.Statuses {
					if listed := statusIn(b.list(filter(b.dest, s)).Items, job.ID); (listed != "") != (s == jobs.Expired) {
						t.Errorf("the list of %s has it as %q", s, listed)
					}
				}
				if got := b.stats().Counts[jobs.Expired]; got != 1 {
					t.Errorf("stats count %d expired jobs", got)
				}
				if err := b.Retry(ctx, job.ID); !errors.Is(err, jobs.ErrStatus) {
					t.Errorf("retry: %v", err)
				}
			})
		}
	}
}

func statusIn(js []*jobs.Job, id string) jobs.Status {
	for _, j := range js {
		if j.ID == id {
			return j.Status
		}
	}
	return ""
}

// onlyStatus returns s if there is exactly one job in it.
func onlyStatus(counts map[jobs.Status]int, s jobs.Status) jobs.Status {
	if counts[s] == 1 {
		return s
	}
	return jobs.Status(fmt.Sprint(counts))
}

// stats counts the jobs of the bench's destination.
func (b *bench) stats() jobs.DestinationStats {
	b.t.Helper()
	s, err := b.Stats(context.Background(), b.dest)
	b.must(err)
	if len(s) != 1 || s[0].Destination != b.dest {
		b.t.Fatalf("stats of %s: %+v", b.dest, s)
	}
	return s[0]
}

// A running job is not cut by its expiry.
func TestARunningJobDoesNotExpire(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.enqueue(jobs.TTL(hour))
	b.start(job)
	b.overdue(job)
	if got := b.get(job.ID); got.Status != jobs.Running {
		t.Errorf("it is %s", got.Status)
	}
	if got := b.stats().Counts; got[jobs.Running] != 1 || got[jobs.Expired] != 0 {
		t.Errorf("counts %v", got)
	}
	b.finish(job, store.StateCompleted, time.Now())
	if got := b.get(job.ID); got.Status != jobs.Completed || got.MarkedExpiredAt != nil {
		t.Errorf("it is %+v", got)
	}
}

// A failed or cancelled job whose time is over is not run again.
func TestRetryOfAnOverdueJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	failed := b.enqueue(jobs.TTL(hour))
	b.run(failed, store.StateFailed)
	cancelled := b.enqueue(jobs.TTL(hour))
	b.must(b.Cancel(context.Background(), cancelled.ID))
	b.overdue(failed, cancelled)
	for _, j := range []*jobs.Job{failed, cancelled} {
		before := b.get(j.ID)
		r := b.act(jobs.ActionRetry, j.ID)
		want := fmt.Sprintf("job %s cannot be retried: it is %s and its expires_at has passed", j.ID, before.Status)
		if r.Done || r.Err == nil || r.Err.Error() != want {
			t.Errorf("answer %+v, want %s", r, want)
		}
		if diff := cmp.Diff(before, b.get(j.ID)); diff != "" {
			t.Errorf("the job has changed (-before +after):\n%s", diff)
		}
	}
	if got := b.stats().Counts; got[jobs.Expired] != 0 || got[jobs.Failed] != 1 || got[jobs.Cancelled] != 1 {
		t.Errorf("counts %v: what has ended does not expire", got)
	}
}

// A retried job expires when it would have done so.
func TestRetryKeepsTheExpiry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := context.Background()
	job := b.enqueue(jobs.TTL(hour))
	b.run(job, store.StateFailed)
	// The sweep passes over what has ended.
	b.must(b.rdb.ZRem(ctx, store.ExpiryKey(b.queue()), job.ID).Err())
	b.must(b.Retry(ctx, job.ID))
	if got := b.get(job.ID); got.ExpiresAt == nil || !got.ExpiresAt.Equal(*job.ExpiresAt) {
		t.Errorf("expires at %v, want %s", got.ExpiresAt, job.ExpiresAt)
	}
	score, err := b.rdb.ZScore(ctx, store.ExpiryKey(b.queue()), job.ID).Result()
	if err != nil || score != float64(job.ExpiresAt.UnixMilli()) {
		t.Errorf("among those to expire at %f: %v", score, err)
	}
}
