package publisher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// sweptWithin is how soon after its expiry a job that waits must have expired.
const sweptWithin = 20 * time.Second

// Whatever a job waits for, it expires within two seconds of its time, by the
// workers alone: while jobs flow, while the breaker is open, and while an operator
// has paused the destination.
func TestWaitingJobsExpire(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		hold func(*testing.T, *fixture)
	}{
		{"while jobs flow", nil},
		{"while the breaker is open", func(t *testing.T, b *fixture) {
			if _, err := breaker.Trip(context.Background(), b.rdb, b.dest, breaker.TripOptions{For: time.Hour, By: "test"}); err != nil {
				t.Fatal(err)
			}
		}},
		{"while the destination is paused", func(t *testing.T, b *fixture) {
			if _, err := b.client.PauseDestination(context.Background(), b.dest); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for in := 3 * time.Second; !waitingJobsExpire(t, in, tc.hold); in *= 4 {
				t.Logf("setting up took longer than %s", in)
			}
		})
	}
}

// waitingJobsExpire returns false if the jobs expired before all was set up.
func waitingJobsExpire(t *testing.T, in time.Duration, hold func(*testing.T, *fixture)) bool {
	b := newFixture(t)
	ctx := context.Background()
	expiry := b.redisNow().Add(in)
	until := jobs.ExpiresAt(expiry)
	kinds := map[string]string{}
	add := func(kind string, opts ...jobs.Option) string {
		id := b.enqueue(append([]jobs.Option{until}, opts...)...).ID
		kinds[id] = kind
		return id
	}
	retried := add("retry_pending", jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 60 * time.Second}))
	rescheduled := add("rescheduled")
	limited := add("rate limited")
	var calls tally
	o := b.options()
	o.RetryLoopInterval = 0 // the default
	b.run(o, func(_ context.Context, j *jobs.Job) error {
		calls.add(j.ID)
		switch j.ID {
		case retried:
			return errors.New("boom")
		case rescheduled:
			return jobs.Reschedule(time.Hour) // beyond its expiry
		case limited:
			return jobs.RateLimited(30 * time.Second)
		}
		t.Errorf("the job that is %s was called", kinds[j.ID])
		return nil
	}, publisher.Breaker(breaker.Options{FailureThreshold: 100, IgnoreHints: true}))
	for range 3 {
		if e := b.event(); e.Result != publisher.Retried && e.Result != publisher.Rescheduled {
			return false
		}
	}
	if hold != nil {
		hold(t, b)
	}
	parent := b.enqueue(jobs.Delay(time.Hour)).ID
	waiting := add("waiting", jobs.After(parent))
	grandchild := b.enqueue(jobs.After(waiting)).ID
	add("scheduled", jobs.Delay(time.Hour))
	paused := add("paused", jobs.Delay(time.Hour))
	pausedWaiting := add("paused and waiting", jobs.After(parent))
	// A job that is rate limited may be due again by now.
	toPause := []string{paused, pausedWaiting, limited}
	if hold != nil {
		add("pending")
		toPause = append(toPause, add("paused and pending"))
	}
	for _, id := range toPause {
		if err := b.client.Pause(ctx, id); err != nil && !errors.Is(err, jobs.ErrStatus) {
			t.Fatal(err)
		}
	}
	if b.redisNow().After(expiry) {
		return false
	}
	for id, kind := range kinds {
		got := b.waitStatus(id, jobs.Expired)
		if got.MarkedExpiredAt == nil || got.ExpiresAt == nil {
			t.Errorf("%s: expired_at %v, expires_at %v", kind, got.MarkedExpiredAt, got.ExpiresAt)
			continue
		}
		if late := got.MarkedExpiredAt.Sub(*got.ExpiresAt); late < 0 || late > sweptWithin {
			t.Errorf("%s: expired %s after its time, want 0 to %s", kind, late, sweptWithin)
		}
		if want := expiry.Truncate(time.Millisecond); !got.ExpiresAt.Equal(want) {
			t.Errorf("%s: expires_at is %s now, was %s", kind, got.ExpiresAt, want)
		}
		if err := b.client.Retry(ctx, id); !errors.Is(err, jobs.ErrStatus) {
			t.Errorf("%s: retry of an expired job: %v", kind, err)
		}
	}
	if got := b.record(retried); got.Attempt != 1 || got.LastError != "boom" {
		t.Errorf("expiry is no failure: attempt %d, last error %q", got.Attempt, got.LastError)
	}
	if got := b.waitStatus(grandchild, jobs.Cancelled); got.LastError != "parent "+waiting+" expired" {
		t.Errorf("the child of an expired job: last error %q", got.LastError)
	}
	if got := b.record(parent); got.Status != jobs.Pending {
		t.Errorf("the job without expiry is %s", got.Status)
	}
	return true
}

// A call under way when its job's time comes is not cut, and what it says counts.
// Only what is to be called again afterwards expires, unless it is given more time.
func TestRunningJobsOutliveTheirExpiry(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	const ttl = 6 * time.Second
	finishes := b.enqueue(jobs.TTL(ttl)).ID
	fails := b.enqueue(jobs.TTL(ttl)).ID
	retries := b.enqueue(jobs.TTL(ttl), jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 60 * time.Second})).ID
	putOff := b.enqueue(jobs.TTL(ttl)).ID
	backOfQueue := b.enqueue(jobs.TTL(ttl)).ID
	extended := b.enqueue(jobs.TTL(ttl)).ID
	tooLittle := b.enqueue(jobs.TTL(ttl)).ID
	ids := []string{finishes, fails, retries, putOff, backOfQueue, extended, tooLittle}
	inCall, goOn := make(chan string, len(ids)), make(chan struct{})
	var calls tally
	b.run(b.options(), func(ctx context.Context, j *jobs.Job) error {
		if calls.add(j.ID) > 1 {
			if j.ID != extended {
				t.Errorf("job %s was called again after its expiry", j.ID)
			}
			return nil
		}
		inCall <- j.ID
		select {
		case <-goOn:
		case <-ctx.Done():
			t.Errorf("the call of job %s was cut: %v", j.ID, context.Cause(ctx))
		}
		switch j.ID {
		case fails, retries:
			return errors.New("boom")
		case putOff:
			return jobs.Reschedule(10 * time.Millisecond)
		case backOfQueue:
			return jobs.Reschedule(0)
		case extended:
			return jobs.Reschedule(0, jobs.ExtendExpiration(time.Hour))
		case tooLittle:
			return jobs.Reschedule(time.Hour, jobs.ExtendExpiration(time.Millisecond))
		}
		return nil
	})
	for range ids {
		signal(t, "all are in hand", inCall)
	}
	was := *b.record(extended).ExpiresAt
	redistest.Eventually(t, "their time is over, and a sweep has come by", func() bool {
		return b.redisNow().After(was.Add(1200 * time.Millisecond))
	})
	for _, id := range ids {
		if got := b.record(id); got.Status != jobs.Running {
			t.Fatalf("job %s is %s while its call is under way", id, got.Status)
		}
	}
	close(goOn)
	for id, want := range map[string]jobs.Status{
		finishes: jobs.Completed, fails: jobs.Failed, retries: jobs.Expired, putOff: jobs.Expired,
		backOfQueue: jobs.Expired, extended: jobs.Completed, tooLittle: jobs.Expired,
	} {
		got := b.waitStatus(id, want)
		if want == jobs.Expired && got.MarkedExpiredAt == nil {
			t.Errorf("job %s: no expired_at", id)
		}
	}
	if got := *b.record(extended).ExpiresAt; !got.Equal(was.Add(time.Hour)) {
		t.Errorf("expires_at was %s and is %s after an extension by an hour", was, got)
	}
	if n := calls.of(extended); n != 2 {
		t.Errorf("the extended job was called %d times, want 2", n)
	}
	b.mustBeEmpty()
}
