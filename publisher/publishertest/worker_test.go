package publishertest_test

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/publishertest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// What the kit says of a job is what a worker makes of it: each script is played
// and then run on Redis.
func TestAsAWorker(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	policy := jobs.Retry(jobs.RetryPolicy{MaxRetries: 2, InitialDelay: time.Second, BackoffMultiplier: 1.5, MaxDelay: 2 * time.Second})
	timeout := func(ctx context.Context, _ *jobs.Job) error {
		<-ctx.Done()
		return ctx.Err()
	}
	says := func(err error) publisher.Func { return func(context.Context, *jobs.Job) error { return err } }
	answers := func(status int, body string, err error) publisher.Func {
		return func(_ context.Context, job *jobs.Job) error {
			job.Response = &jobs.Response{Status: status, Body: body}
			return err
		}
	}
	for _, tc := range []struct {
		name   string
		opts   []jobs.Option
		script []publisher.Func // one for each call; the last one for all others
		cancel bool             // somebody cancels the job while it is called
	}{
		{name: "completed", script: []publisher.Func{answers(201, "\x1b[31mred", nil)}},
		{name: "failed", script: []publisher.Func{answers(500, "oops", errBoom)}},
		{name: "panicked", script: []publisher.Func{func(context.Context, *jobs.Job) error { panic("ouch") }}},
		{name: "retried until there is none left", opts: []jobs.Option{policy}, script: []publisher.Func{says(errBoom), timeout, says(jobs.Fail(errBoom))}},
		{name: "discarded", opts: []jobs.Option{policy}, script: []publisher.Func{says(errBoom), says(jobs.Discard(errBoom))}},
		{name: "put off too often", opts: []jobs.Option{jobs.MaxReschedules(2)}, script: []publisher.Func{says(jobs.Reschedule(0)), answers(503, "busy", jobs.Reschedule(300*ms)), says(jobs.Reschedule(0))}},
		{name: "limited, then well", opts: []jobs.Option{policy}, script: []publisher.Func{answers(429, "slow down", jobs.RateLimited(1200*ms)), says(errBoom), answers(204, "", nil)}},
		{name: "limited, with its answer in the error", script: []publisher.Func{says(&jobs.RateLimitedError{Response: &jobs.Response{Status: 429, Body: "\x1b[31mslow down"}}), says(nil)}},
		{
			name: "expires earlier",
			opts: []jobs.Option{jobs.TTL(time.Hour)},
			script: []publisher.Func{
				says(jobs.Reschedule(0, jobs.ExtendExpiration(-30*time.Minute))), says(&jobs.RescheduleError{ExtendExpiration: -2 * time.Hour}), says(nil),
			},
		},
		{name: "limited without a hint", script: []publisher.Func{says(jobs.RateLimited(0)), says(nil)}},
		{
			name: "everything set",
			opts: []jobs.Option{
				jobs.Key("alice"), jobs.Path("/items"), jobs.Query("a=b"), jobs.Header("X-A", "b"), jobs.Prioritize(jobs.PriorityHigh),
				jobs.MaxReschedules(9), policy, jobs.Delay(200 * ms), jobs.TTL(time.Hour), jobs.Batch("batch"),
			},
			script: []publisher.Func{says(jobs.Reschedule(0, jobs.ExtendExpiration(time.Minute))), says(errBoom), says(nil)},
		},
		{name: "never called", opts: []jobs.Option{jobs.TTL(0)}, script: []publisher.Func{says(nil)}},
		{name: "expired while it was rescheduled", opts: []jobs.Option{jobs.TTL(6 * time.Second)}, script: []publisher.Func{says(jobs.Reschedule(time.Hour))}},
		{
			name:   "expired before its retry",
			opts:   []jobs.Option{jobs.TTL(6 * time.Second), jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 60 * time.Second})},
			script: []publisher.Func{says(errBoom)},
		},
		{name: "cancelled in its call", cancel: true, script: []publisher.Func{timeout}},
		{name: "cancelled in its call, and put off", cancel: true, script: []publisher.Func{says(jobs.Reschedule(0))}},
		{name: "cancelled in its call, and to be retried", cancel: true, opts: []jobs.Option{policy}, script: []publisher.Func{says(errBoom)}},
		{name: "cancelled in its call, and accepted", cancel: true, script: []publisher.Func{says(nil)}},
		{name: "cancelled in its call, and discarded", cancel: true, script: []publisher.Func{says(jobs.Discard(errBoom))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Shared(t).Client(t)
			destination := redistest.Name(t, "d")
			client, err := jobs.NewClient(rdb, jobs.WithDestinations(destination))
			if err != nil {
				t.Fatal(err)
			}
			spec := jobs.New(destination, map[string]string{"title": "Sunset"}, append(tc.opts, jobs.ID(destination))...)
			timeout := publisher.Timeout(100 * ms)
			if tc.cancel {
				timeout = publisher.Timeout(time.Minute)
			}

			var played, ran seen
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tc.cancel {
				played.cancel = func() { cancel(publishertest.ErrCancelled) }
				ran.cancel = func() {
					if err := client.Cancel(t.Context(), destination); err != nil {
						t.Error(err)
					}
				}
			}
			life := publishertest.Play(ctx, played.handler(tc.script), publishertest.NewJob(spec), 20, timeout)
			got := ran.run(t, client, rdb, spec, ran.handler(tc.script), timeout)

			if diff := cmp.Diff(played.jobs, ran.jobs); diff != "" {
				t.Errorf("jobs in hand (- of the kit, + of a worker):\n%s", diff)
			}
			for i, c := range life.Calls {
				if i+1 < len(ran.at) && len(ran.at) == len(life.Calls) {
					if gap := ran.at[i+1].Sub(ran.at[i]); gap < c.MinDelay-ms {
						t.Errorf("a worker called %s after call %d, the kit says %s to %s", gap, i+1, c.MinDelay, c.MaxDelay)
					}
				}
			}
			if diff := cmp.Diff(timeless(life.Job), timeless(got)); diff != "" {
				t.Errorf("in the end (- of the kit, + of a worker):\n%s", diff)
			}
		})
	}
}

// seen is what a handler was given, and when.
type seen struct {
	mu   sync.Mutex
	jobs []*jobs.Job
	at   []time.Time

	cancel func() // called in each call, unless nil
}

// handler follows a script.
func (s *seen) handler(script []publisher.Func) publisher.Handler {
	return publisher.Func(func(ctx context.Context, job *jobs.Job) error {
		s.mu.Lock()
		n := len(s.jobs)
		s.jobs, s.at = append(s.jobs, timeless(job)), append(s.at, time.Now())
		s.mu.Unlock()
		if s.cancel != nil {
			s.cancel()
			<-ctx.Done()
		}
		return script[min(n, len(script)-1)](ctx, job)
	})
}

// timeless is a copy with the time to live in place of instants, and without what
// only a worker or its breaker can know.
func timeless(job *jobs.Job) *jobs.Job {
	j := *job
	if j.CallSecs != nil {
		j.CallSecs = new(0.0)
	}
	for _, t := range []**time.Time{&j.NextRetryAt, &j.StartedAt, &j.ExpiresAt, &j.MarkedExpiredAt, &j.CompletedAt, &j.EndedAt} {
		if *t != nil {
			*t = &time.Time{}
		}
	}
	if job.ExpiresAt != nil {
		ttl := time.Unix(0, 0).Add(job.ExpiresAt.Sub(job.CreatedAt).Round(30 * time.Second)) // from two clocks
		j.ExpiresAt = &ttl
	}
	j.CreatedAt, j.AvailableAt, j.Worker, j.Reason = time.Time{}, time.Time{}, "", ""
	return &j
}

// run has a worker publish the job until it has ended.
func (s *seen) run(t *testing.T, client *jobs.Client, rdb redis.UniversalClient, spec *jobs.Spec, h publisher.Handler, opts ...publisher.HandleOption) *jobs.Job {
	t.Helper()
	p, err := publisher.New(rdb, publisher.Options{Logger: slog.New(slog.DiscardHandler), RetryLoopInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle(spec.Destination, h, opts...); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Enqueue(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); ; <-tick.C {
		job, err := client.Get(t.Context(), spec.ID)
		if err != nil {
			t.Fatal(err)
		}
		if job.Status.Final() {
			return job
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ended after two minutes: %+v", job)
		}
	}
}
