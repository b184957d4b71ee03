package publisher_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// The policy 3 × 10 s × 2.0: the next call is due after 10, 20 and 40 s, 10 % more
// or less, by the record and by the queue.
func TestRetryTimeline(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	failedAt := make(chan time.Time, 1)
	job := b.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 10 * time.Second, BackoffMultiplier: 2.0}))
	b.run(b.options(), func(context.Context, *jobs.Job) error {
		failedAt <- b.redisNow()
		return errors.New("boom")
	})
	for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		from := signal(t, "a call", failedAt)
		b.want(publisher.Retried)
		to := b.redisNow()
		got := b.record(job.ID)
		if got.Status != jobs.RetryPending || got.Attempt != i+1 || got.NextRetryAt == nil {
			t.Fatalf("after failure %d: %s, attempt %d, next retry %v", i+1, got.Status, got.Attempt, got.NextRetryAt)
		}
		within(t, fmt.Sprintf("retry %d", i+1), got.NextRetryAt.Sub(from), got.NextRetryAt.Sub(to), want*9/10, want*11/10)
		b.makeDue(job.ID)
	}
	signal(t, "a call", failedAt)
	b.want(publisher.FailedFinal)
	if got := b.get(job.ID); got.Status != jobs.Failed || got.Attempt != 3 || got.LastError != "boom" || got.NextRetryAt != nil {
		t.Errorf("at the end: %s, attempt %d, last error %q, next retry %v", got.Status, got.Attempt, got.LastError, got.NextRetryAt)
	}
	entries, err := b.client.History(context.Background(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	retries := 0
	for _, e := range entries {
		if e.Event == "retry_scheduled" {
			retries++
		}
	}
	if last := entries[len(entries)-1]; retries != 3 || last.Event != "failed" || last.Detail != "boom" {
		t.Errorf("history tells of %d retries and ends with %+v", retries, last)
	}
}

// within checks a delay that was counted from an instant between two that are
// known: at least as long since the first one, at most since the second one.
func within(t *testing.T, what string, sinceFirst, sinceSecond, atLeast, atMost time.Duration) {
	t.Helper()
	// Records have milliseconds.
	if sinceFirst < atLeast-time.Millisecond || sinceSecond > atMost+time.Millisecond {
		t.Errorf("%s: due %s after the call began and %s after its end, want from %s to %s", what, sinceFirst, sinceSecond, atLeast, atMost)
	}
}

// max_delay_secs caps the delay after the jitter, and a delay is never under one
// second: neither is ever missed by chance.
func TestRetryDelayBounds(t *testing.T) {
	t.Parallel()
	const n = 30
	b := newFixture(t)
	capped := b.enqueueMany(n, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 15 * time.Second, BackoffMultiplier: 1, MaxDelay: 15 * time.Second}))
	short := b.enqueueMany(n, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second, BackoffMultiplier: 1, MaxDelay: 15 * time.Second}))
	var calls tally
	var failedAt sync.Map
	pauses := make(chan time.Duration, n) // from the failure to the next call
	seen := make(chan struct{})           // each first call was
	started := b.redisNow()
	b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
		if calls.add(j.ID) == 2 {
			at, _ := failedAt.Load(j.ID)
			pauses <- time.Since(at.(time.Time))
			<-seen
			return nil
		}
		failedAt.Store(j.ID, time.Now())
		return errors.New("boom")
	}, publisher.Concurrency(2*n))
	spread := map[time.Duration]bool{}
	for range 2 * n {
		e := b.want(publisher.Retried)
		got, now := b.record(e.Job.ID), b.redisNow()
		if got.NextRetryAt == nil {
			continue // it was short, and runs already
		}
		lo, hi := time.Second, 1100*time.Millisecond
		if e.Job.Retry.InitialDelay == 15*time.Second {
			lo, hi = 13500*time.Millisecond, 15*time.Second
			spread[got.NextRetryAt.Sub(started).Round(100*time.Millisecond)] = true
		}
		within(t, "job "+e.Job.ID, got.NextRetryAt.Sub(*got.StartedAt), got.NextRetryAt.Sub(now), lo, hi)
	}
	if len(spread) < 3 {
		t.Errorf("no jitter: the delays of %d jobs are alike", n)
	}
	close(seen)
	// These wait it out: the call comes at that instant, not before, and soon.
	for range n {
		b.want(publisher.Completed)
		if pause := <-pauses; pause < time.Second || pause > 30*time.Second {
			t.Errorf("called again %s after the failure, want a second and little more", pause)
		}
	}
	for _, id := range short {
		if got := b.record(id); got.Status != jobs.Completed {
			t.Errorf("job %s is %s", id, got.Status)
		}
	}
	for _, id := range capped {
		if got := b.record(id); got.Status != jobs.RetryPending {
			t.Errorf("job %s is %s", id, got.Status)
		}
	}
}

// What may be retried: each kind of failure under each list of triggers.
func TestRetryTriggers(t *testing.T) {
	t.Parallel()
	type kind string
	const (
		failure  kind = "failure"
		timeout  kind = "timeout"
		explicit kind = "explicit"
		never    kind = "never"
	)
	b := newFixture(t)
	b.run(b.options(), func(ctx context.Context, j *jobs.Job) error {
		var k kind
		if err := json.Unmarshal(j.Payload, &k); err != nil {
			return err
		}
		switch k {
		case failure:
			return errors.New("refused")
		case timeout:
			<-ctx.Done()
			return ctx.Err()
		case explicit:
			return jobs.Fail(errors.New("not good"))
		}
		return jobs.Discard(errors.New("never"))
	}, publisher.Timeout(time.Second))
	want := map[string]string{}
	names := map[string]string{}
	for _, on := range [][]jobs.Trigger{
		nil, {jobs.OnTimeout}, {jobs.OnFailure}, {jobs.OnExplicit}, {jobs.OnTimeout, jobs.OnFailure},
	} {
		for _, k := range []kind{failure, timeout, explicit, never} {
			result := publisher.FailedFinal
			for _, o := range on {
				if string(o) == string(k) {
					result = publisher.Retried
				}
			}
			if on == nil && k != never {
				result = publisher.Retried
			}
			j, err := b.client.Enqueue(context.Background(), jobs.New(b.dest, k,
				jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 60 * time.Second, RetryOn: on})))
			if err != nil {
				t.Fatal(err)
			}
			want[j.ID], names[j.ID] = result, fmt.Sprintf("%s with retry_on %v", k, on)
		}
	}
	for range len(want) {
		e := b.event()
		if e.Result != want[e.Job.ID] {
			t.Errorf("%s: %s (%v), want %s", names[e.Job.ID], e.Result, e.Err, want[e.Job.ID])
		}
		status := jobs.Failed
		if e.Result == publisher.Retried {
			status = jobs.RetryPending
		}
		if got := b.record(e.Job.ID); got.Status != status || got.LastError == "" {
			t.Errorf("%s: %s, last error %q", names[e.Job.ID], got.Status, got.LastError)
		}
	}
}
