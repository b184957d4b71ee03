package metrics_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// atRest is what a destination shows where nothing happens.
var atRest = map[string]float64{
	"redis_up": 1, "worker_fetching": 1, "worker_concurrency": 10, `circuit_breaker_state{state="closed"}`: 1,
}

// check waits until what is not 0 is what is wanted: a publisher counts a moment after
// the record of a job says so.
func (in *instance) check(want map[string]float64) {
	in.r.t.Helper()
	var diff string
	deadline := time.Now().Add(2 * time.Minute)
	for {
		if diff = cmp.Diff(want, nonzero(in.values())); diff == "" || time.Now().After(deadline) {
			break
		}
	}
	if diff != "" {
		in.r.t.Errorf("metrics (-want +got)\n%s", diff)
	}
}

// with is a map of both.
func with(a, b map[string]float64) map[string]float64 {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// ended waits until a job has the status.
func (r *fixture) ended(id string, want jobs.Status) {
	r.t.Helper()
	redistest.Eventually(r.t, "job "+id+" is "+string(want), func() bool {
		j, err := r.client.Get(context.Background(), id)
		return err == nil && j.Status == want
	})
}

// All that can become of a call, each counted once and nowhere else.
func TestEachOutcomeOfACall(t *testing.T) {
	t.Parallel()
	retry := jobs.Retry(jobs.RetryPolicy{MaxRetries: 2, InitialDelay: time.Second, BackoffMultiplier: 1, MaxDelay: time.Second})
	once := map[string]float64{"publish_duration_seconds_count": 1}
	for _, row := range []struct {
		name string
		job  []jobs.Option
		call func(ctx context.Context, n int) error // of the n-th
		then jobs.Status
		want map[string]float64
	}{
		{
			"success",
			[]jobs.Option{jobs.TTL(30 * time.Minute)},
			func(context.Context, int) error { return nil }, jobs.Completed,
			map[string]float64{
				`publish_attempts_total{result="success"}`: 1, `jobs_finished_total{status="completed"}`: 1, `jobs{status="completed"}`: 1,
				"job_ttl_seconds_count": 1, "job_ttl_seconds_bucket{le=3600}": 1,
			},
		},
		{
			"permanent",
			[]jobs.Option{retry},
			func(context.Context, int) error { return jobs.Discard(errors.New("no")) }, jobs.Failed,
			map[string]float64{
				`publish_attempts_total{result="permanent"}`: 1, `jobs_finished_total{status="failed"}`: 1, `jobs{status="failed"}`: 1,
			},
		},
		{
			"failure without retries", nil,
			func(context.Context, int) error { return errors.New("boom") }, jobs.Failed,
			map[string]float64{
				`publish_attempts_total{result="failure"}`: 1, `jobs_finished_total{status="failed"}`: 1, `jobs{status="failed"}`: 1,
			},
		},
		{
			"panic", nil,
			func(context.Context, int) error { panic("boom") }, jobs.Failed,
			map[string]float64{
				`publish_attempts_total{result="failure"}`: 1, `jobs_finished_total{status="failed"}`: 1, `jobs{status="failed"}`: 1,
			},
		},
		{
			"timeout", nil,
			func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }, jobs.Failed,
			map[string]float64{
				`publish_attempts_total{result="timeout"}`: 1, `jobs_finished_total{status="failed"}`: 1, `jobs{status="failed"}`: 1,
			},
		},
		{
			"retries that help",
			[]jobs.Option{retry, jobs.TTL(time.Minute)},
			func(_ context.Context, n int) error {
				if n == 1 {
					return jobs.Fail(errors.New("boom"))
				}
				return nil
			}, jobs.Completed,
			map[string]float64{
				`publish_attempts_total{result="failure"}`: 1, `publish_attempts_total{result="success"}`: 1, `job_retries_total{attempt="1"}`: 1,
				`jobs_finished_total{status="completed"}`: 1, `jobs{status="completed"}`: 1, "publish_duration_seconds_count": 2,
				"job_ttl_seconds_count": 1, "job_ttl_seconds_bucket{le=60}": 1,
			},
		},
		{
			"a failure that is not retried",
			[]jobs.Option{jobs.Retry(jobs.RetryPolicy{MaxRetries: 2, RetryOn: []jobs.Trigger{jobs.OnTimeout}})},
			func(context.Context, int) error { return errors.New("boom") }, jobs.Failed,
			map[string]float64{
				`publish_attempts_total{result="failure"}`: 1, `jobs_finished_total{status="failed"}`: 1, `jobs{status="failed"}`: 1,
			},
		},
		{
			"retries used up",
			[]jobs.Option{retry},
			func(context.Context, int) error { return errors.New("boom") }, jobs.Failed,
			map[string]float64{
				`publish_attempts_total{result="failure"}`: 3, `job_retries_total{attempt="1"}`: 1, `job_retries_total{attempt="2"}`: 1,
				"job_retries_exhausted_total": 1, `jobs_finished_total{status="failed"}`: 1, `jobs{status="failed"}`: 1,
				"publish_duration_seconds_count": 3,
			},
		},
		{
			"rate limited",
			[]jobs.Option{jobs.TTL(2 * time.Minute)},
			func(_ context.Context, n int) error {
				if n == 1 {
					return jobs.RateLimited(0)
				}
				return nil
			}, jobs.Completed,
			map[string]float64{
				`publish_attempts_total{result="rate_limited"}`: 1, `publish_attempts_total{result="success"}`: 1, "wasted_calls_total": 1,
				`jobs_rescheduled_total{reason="rate_limited"}`: 1, "reschedule_delay_seconds_count": 1, "reschedule_delay_seconds_bucket{le=1}": 1,
				`jobs_redistributed_total{reason="rate_limited"}`: 1, `jobs_finished_total{status="completed"}`: 1, `jobs{status="completed"}`: 1, "publish_duration_seconds_count": 2,
				"job_ttl_seconds_count": 1, "job_ttl_seconds_bucket{le=300}": 1,
			},
		},
		{
			"put off by its publisher", nil,
			func(_ context.Context, n int) error {
				switch n {
				case 1:
					return jobs.Reschedule(2 * time.Second)
				case 2:
					return jobs.Reschedule(0)
				}
				return nil
			}, jobs.Completed,
			map[string]float64{
				`publish_attempts_total{result="rescheduled"}`: 2, `publish_attempts_total{result="success"}`: 1,
				`jobs_rescheduled_total{reason="publisher"}`: 2, "reschedule_delay_seconds_count": 2,
				"reschedule_delay_seconds_bucket{le=1}": 1, "reschedule_delay_seconds_bucket{le=5}": 1,
				`jobs_finished_total{status="completed"}`: 1, `jobs{status="completed"}`: 1, "publish_duration_seconds_count": 3,
			},
		},
		{
			"put off too often",
			[]jobs.Option{jobs.MaxReschedules(1)},
			func(context.Context, int) error { return jobs.Reschedule(0) }, jobs.Failed,
			map[string]float64{
				`publish_attempts_total{result="rescheduled"}`: 2, `jobs_rescheduled_total{reason="publisher"}`: 1,
				"reschedule_delay_seconds_count": 1, "reschedule_delay_seconds_bucket{le=1}": 1,
				`jobs_finished_total{status="failed"}`: 1, `jobs{status="failed"}`: 1, "publish_duration_seconds_count": 2,
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t, redistest.Database(t), fakeapi.Options{})
			n := 0
			in := r.make(metrics.Options{}, func(ctx context.Context, _ *jobs.Job) error {
				n++ // one job, and one call at a time
				return row.call(ctx, n)
			}, breaker.Options{FailureThreshold: 100}, publisher.Timeout(2*time.Second)).run()
			in.check(atRest)
			id := r.enqueue(nil, row.job...)
			r.ended(id, row.then)
			want := with(with(atRest, once), row.want)
			got := func() map[string]float64 {
				out := nonzero(in.values())
				for name := range out {
					// How long a call took is the machine's affair.
					if strings.HasPrefix(name, "publish_duration_seconds_bucket") {
						delete(out, name)
					}
				}
				return out
			}
			eventuallySame(t, want, got)
		})
	}
}

// A worker counts the jobs of destinations that no worker serves.
func TestJobsOfDestinationsWithoutWorkers(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	client, err := jobs.NewClient(r.rdb, jobs.WithDestinations("old", r.dest))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old", "old", r.dest} {
		if _, err := client.Enqueue(t.Context(), jobs.New(name, 1, jobs.Delay(time.Hour))); err != nil {
			t.Fatal(err)
		}
	}
	in := r.make(metrics.Options{}, func(context.Context, *jobs.Job) error { return nil }, breaker.Options{}).run()
	families, err := in.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "tidegate_jobs_unserved" {
			for _, m := range family.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if diff := cmp.Diff(map[string]float64{"old": 2}, got); diff != "" {
		t.Errorf("tidegate_jobs_unserved (-want +got)\n%s", diff)
	}

	// Where that cannot be read, the rest of the queues still is.
	if err := r.rdb.Del(t.Context(), store.DefaultNamespace.WorkersKey()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.rdb.Set(t.Context(), store.DefaultNamespace.WorkersKey(), "of the wrong type", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, ok := in.values()["jobs_ready"]; !ok {
		t.Error("without the list of workers nothing of the queues is told")
	}
}

// eventuallySame waits for a moment until both are the same.
func eventuallySame(t *testing.T, want map[string]float64, got func() map[string]float64) {
	t.Helper()
	var diff string
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if diff = cmp.Diff(want, got()); diff == "" || time.Now().After(deadline) {
			break
		}
	}
	if diff != "" {
		t.Errorf("metrics (-want +got)\n%s", diff)
	}
}

// Jobs that workers end without a call, calls that are cut, and what others end.
func TestEndsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	inCall := make(chan string, 10)
	in := r.make(metrics.Options{}, func(ctx context.Context, j *jobs.Job) error {
		inCall <- j.ID
		<-ctx.Done()
		return ctx.Err()
	}, breaker.Options{}).run()
	cancelled := r.enqueue(nil)
	<-inCall
	stays := r.enqueue(nil)
	<-inCall
	r.must(r.client.Cancel(t.Context(), cancelled))
	r.ended(cancelled, jobs.Cancelled)
	never := r.enqueue(nil, jobs.Delay(time.Hour))
	r.must(r.client.Cancel(t.Context(), never)) // by a client: no worker ends it
	expired := r.enqueue(nil, jobs.At(time.Now().Add(time.Hour)), jobs.TTL(50*time.Millisecond))
	redistest.Eventually(t, "expired", func() bool {
		s, err := r.client.Survey(t.Context(), r.dest, 0) // Get would end it
		return err == nil && s.Counts[jobs.Expired] == 1
	})
	in.check(with(atRest, map[string]float64{
		`publish_attempts_total{result="cancelled"}`: 1, `jobs_finished_total{status="cancelled"}`: 1,
		"publish_duration_seconds_count": 1, in.bucketOfOnly(): 1,
		"jobs_expired_total": 1, "jobs_in_hand": 1,
		`jobs{status="cancelled"}`: 2, `jobs{status="expired"}`: 1, `jobs{status="running"}`: 1,
	}))
	in.end()
	got := in.values()
	if n := got[`publish_attempts_total{result="interrupted"}`]; n != 1 {
		t.Errorf("%v calls were interrupted, want 1", n)
	}
	if n := got["worker_fetching"]; n != 0 || got["jobs_in_hand"] != 0 {
		t.Errorf("stopped: fetching %v with %v in hand", n, got["jobs_in_hand"])
	}
	if got[`jobs{status="pending"}`] != 1 || got["jobs_ready"] != 1 {
		t.Errorf("%v pending, %v ready; want %s back in the queue", got[`jobs{status="pending"}`], got["jobs_ready"], stays)
	}
	_ = expired
}

// bucketOfOnly is the series of the bucket that holds the only call.
func (in *instance) bucketOfOnly() string {
	for name := range in.values() {
		if strings.HasPrefix(name, "publish_duration_seconds_bucket") {
			return name
		}
	}
	return "publish_duration_seconds_bucket"
}
