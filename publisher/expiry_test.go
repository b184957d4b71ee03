package publisher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

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
