package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// The enqueue tells when a job expires, as a look does: by Redis's clock, in whole
// milliseconds.
func TestTTLAndExpiresAt(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(4102444800123)
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		for name, tc := range map[string]struct {
			opts   []jobs.Option
			ttl    time.Duration // 0: at
			status jobs.Status
		}{
			"an hour":             {[]jobs.Option{jobs.TTL(hour)}, hour, jobs.Pending},
			"a minute and a bit":  {[]jobs.Option{jobs.TTL(time.Minute + 1)}, time.Minute + time.Millisecond, jobs.Pending},
			"a hundred years":     {[]jobs.Option{jobs.TTL(100 * 365 * 24 * hour)}, 100 * 365 * 24 * hour, jobs.Pending},
			"at an instant":       {[]jobs.Option{jobs.ExpiresAt(at)}, 0, jobs.Pending},
			"in another zone":     {[]jobs.Option{jobs.ExpiresAt(at.In(time.FixedZone("east", 5*3600)))}, 0, jobs.Pending},
			"within a ms":         {[]jobs.Option{jobs.ExpiresAt(at.Add(999 * time.Microsecond))}, 0, jobs.Pending},
			"and scheduled":       {[]jobs.Option{jobs.ExpiresAt(at), jobs.At(at.Add(-time.Minute))}, 0, jobs.Pending},
			"before its schedule": {[]jobs.Option{jobs.ExpiresAt(at), jobs.At(at.Add(time.Minute))}, 0, jobs.Pending},
			"and delayed":         {[]jobs.Option{jobs.TTL(hour), jobs.Delay(hour - 1)}, hour, jobs.Pending},
			"and waiting":         {[]jobs.Option{jobs.TTL(hour), jobs.After(b.enqueue().ID)}, hour, jobs.Waiting},
			"and in a batch":      {[]jobs.Option{jobs.TTL(hour), jobs.Batch("b")}, hour, jobs.Pending},
		} {
			before := time.Now().UTC().Truncate(time.Millisecond)
			job := b.enqueue(tc.opts...)
			after := time.Now()
			if diff := cmp.Diff(job, b.get(job.ID)); diff != "" {
				t.Errorf("%s (-enqueued +looked up):\n%s", name, diff)
			}
			if job.Status != tc.status || job.ExpiresAt == nil || job.ExpiresAt.Location() != time.UTC || job.MarkedExpiredAt != nil {
				t.Fatalf("%s: %+v", name, job)
			}
			if tc.ttl == 0 {
				if !job.ExpiresAt.Equal(at) {
					t.Errorf("%s: expires at %s, want %s", name, job.ExpiresAt, at)
				}
			} else if job.ExpiresAt.Before(before.Add(tc.ttl)) || job.ExpiresAt.After(after.Add(tc.ttl)) {
				t.Errorf("%s: expires at %s, not %s after %s to %s", name, job.ExpiresAt, tc.ttl, before, after)
			}
			if job.ExpiredAt(job.ExpiresAt.Add(-1)) || !job.ExpiredAt(*job.ExpiresAt) {
				t.Errorf("%s: ExpiredAt does not agree with expires_at", name)
			}
		}
		if never := b.enqueue(); never.ExpiresAt != nil || b.get(never.ID).ExpiresAt != nil || never.ExpiredAt(time.Unix(1<<40, 0)) {
			t.Errorf("a job without either expires at %v", never.ExpiresAt)
		}
		if n := rdb.ZCard(context.Background(), store.ExpiryKey(b.queue())).Val(); n != 11 {
			t.Errorf("%d jobs are to expire, want 11", n)
		}
	})
}

// A job that has expired before it was enqueued never gets anywhere.
func TestExpiredAtOnce(t *testing.T) {
	t.Parallel()
	past := time.Now().Add(-hour)
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		parent := b.enqueue()
		for name, opts := range map[string][]jobs.Option{
			"zero ttl":            {jobs.TTL(0)},
			"zero ttl, delayed":   {jobs.TTL(0), jobs.Delay(hour)},
			"zero ttl, scheduled": {jobs.TTL(0), jobs.At(time.Now().Add(hour))},
			"zero ttl, waiting":   {jobs.TTL(0), jobs.After(parent.ID)},
			"zero ttl, urgent":    {jobs.TTL(0), jobs.Prioritize(jobs.PriorityHigh)},
			"in the past":         {jobs.ExpiresAt(past)},
			"in the past, later":  {jobs.ExpiresAt(past), jobs.At(time.Now().Add(hour))},
			"before 1970":         {jobs.ExpiresAt(time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC))},
			"in the year 1":       {jobs.ExpiresAt(time.Time{}.Add(1))},
		} {
			job := b.enqueue(append(opts, jobs.Batch(b.dest))...)
			if diff := cmp.Diff(job, b.get(job.ID)); diff != "" {
				t.Errorf("%s (-enqueued +looked up):\n%s", name, diff)
			}
			if job.Status != jobs.Expired || job.MarkedExpiredAt == nil || job.EndedAt == nil || job.LastError != "" || job.StartedAt != nil {
				t.Errorf("%s: %+v", name, job)
			}
			h := b.history(job.ID)
			if len(h) != 2 || h[1].Status != jobs.Expired || h[1].Event != "expired" || h[1].Detail != "at once" {
				t.Errorf("%s: history %+v", name, h)
			}
			if err := b.Retry(context.Background(), job.ID); !errors.Is(err, jobs.ErrStatus) {
				t.Errorf("%s: retry: %v", name, err)
			}
		}
		ctx := context.Background()
		for _, queue := range store.DefaultNamespace.Queues(b.dest) {
			for _, set := range []string{store.ScheduledKey(queue), store.ParkedKey(queue, store.StateWaiting), store.ExpiryKey(queue)} {
				if n := rdb.ZCard(ctx, set).Val(); n != 0 {
					t.Errorf("%s has %d jobs", set, n)
				}
			}
		}
		if diff := cmp.Diff([]string{parent.ID}, b.waiting(b.queue())); diff != "" {
			t.Errorf("queue (-want +got):\n%s", diff)
		}
		s, err := b.Batch(ctx, b.dest)
		b.must(err)
		if s.Total != 9 || s.Counts[jobs.Expired] != 9 || !s.Done {
			t.Errorf("batch %+v", s)
		}
		// Its parent has no child to tell.
		b.run(parent, store.StateCompleted)
		b.must(b.Cancel(ctx, b.enqueue().ID))
		if got := b.stats(); got.Counts[jobs.Expired] != 9 || got.Counts[jobs.Completed] != 1 {
			t.Errorf("counts %v", got.Counts)
		}
	})
}

func TestTTLIsValidated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	future := time.Now().Add(hour)
	for want, opts := range map[string][]jobs.Option{
		"ttl: must not be negative; 0 expires the job at once":                                                 {jobs.TTL(-1)},
		"ttl: must not be more than 100 years; leave it out for a job that never expires":                      {jobs.TTL(100*365*24*hour + 1)},
		"ttl: give either a ttl or expires_at, not both":                                                       {jobs.TTL(hour), jobs.ExpiresAt(future)},
		"delay: must be less than the ttl of 1h0m0s: the job would expire before it may start":                 {jobs.TTL(hour), jobs.Delay(hour)},
		"delay: must be less than the ttl of 1ms: the job would expire before it may start":                    {jobs.TTL(time.Millisecond), jobs.Delay(2 * hour)},
		"expires_at: must be before the year 10000":                                                            {jobs.ExpiresAt(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
		"at: must be before the year 10000":                                                                    {jobs.At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
		"at: must be before the year 10000; expires_at: must be before the year 10000":                         {jobs.At(time.Unix(1<<60, 0)), jobs.ExpiresAt(time.Unix(1<<60, 0))},
		"ttl: must not be negative; 0 expires the job at once; ttl: give either a ttl or expires_at, not both": {jobs.TTL(-hour), jobs.ExpiresAt(future)},
	} {
		_, err := b.Enqueue(context.Background(), jobs.New(b.dest, 1, opts...))
		if err == nil || err.Error() != "jobs: enqueue: "+want || !errors.Is(err, jobs.ErrInvalid) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if got := len(b.list(filter(b.dest)).Items); got != 0 {
		t.Errorf("%d jobs were written", got)
	}
	last := time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)
	job := b.enqueue(jobs.ExpiresAt(last), jobs.At(last))
	if got := b.get(job.ID); !got.ExpiresAt.Equal(last) || !got.AvailableAt.Equal(last) {
		t.Errorf("expires at %s, available at %s, want %s", got.ExpiresAt, got.AvailableAt, last)
	}
}
