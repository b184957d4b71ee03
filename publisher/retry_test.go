package publisher_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
