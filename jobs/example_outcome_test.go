package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// Maintenance of the API must not cost the job its life.
func ExampleExtendExpiration() {
	publish := func(context.Context, *jobs.Job) error {
		maintenance := 30 * time.Minute
		return jobs.Reschedule(maintenance, jobs.ExtendExpiration(maintenance))
	}
	err := publish(context.Background(), &jobs.Job{})
	if put, ok := errors.AsType[*jobs.RescheduleError](err); ok {
		fmt.Println("available in", put.Delay, "and expires later by", put.ExtendExpiration)
	}
	// Output: available in 30m0s and expires later by 30m0s
}

// The API answers 202 and calls back: the job runs on without a worker, until client.Complete reports its result.
func ExampleAccepted() {
	publish := func(_ context.Context, job *jobs.Job) error {
		// … the call, which passes job.ID on
		return jobs.Accepted(30 * time.Minute)
	}
	err := publish(context.Background(), &jobs.Job{})
	if taken, ok := errors.AsType[*jobs.AcceptedError](err); ok {
		fmt.Println("the result is due within", taken.Within)
	}

	result := jobs.Completion{Status: jobs.Completed, Output: []byte(`{"itemid":7}`)} // for client.Complete(ctx, id, result)
	fmt.Println(result.Validate())
	fmt.Println(jobs.Completion{Status: jobs.Failed, Extend: time.Hour}.Validate())
	// Output:
	// the result is due within 30m0s
	// <nil>
	// extend: goes with a job that has not ended; leave out one of extend and status
}

var errBusy = errors.New("the gallery is busy")

// The call was made, but what came back is a failure by the publisher's own
// judgement. A policy can tell it from others: RetryOn with OnExplicit.
func ExampleFail() {
	publish := func(context.Context, *jobs.Job) error {
		return jobs.Fail(errBusy)
	}
	err := publish(context.Background(), &jobs.Job{})
	fail, ok := errors.AsType[*jobs.FailError](err)
	fmt.Println(ok, fail.Permanent, errors.Is(err, errBusy), err)

	onlyThat := jobs.New("deviantart", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, RetryOn: []jobs.Trigger{jobs.OnExplicit}})).Retry
	fmt.Println(onlyThat.Retries(0, jobs.OnExplicit), onlyThat.Retries(0, jobs.OnFailure))
	// Output:
	// true false true the gallery is busy
	// true false
}

// No retry would help: the job fails now, whatever its policy.
func ExampleDiscard() {
	publish := func(_ context.Context, job *jobs.Job) error {
		if string(job.Payload) == `""` {
			return jobs.Discard(errors.New("a picture needs a title"))
		}
		return nil
	}
	err := publish(context.Background(), &jobs.Job{Payload: []byte(`""`)})
	if fail, ok := errors.AsType[*jobs.FailError](err); ok {
		fmt.Println(fail.Permanent, err)
	}
	// Output: true a picture needs a title
}

// A limit of all callers together stops the whole destination, not only the jobs
// of the key whose call was refused.
func ExampleScope() {
	publish := func(context.Context, *jobs.Job) error {
		return jobs.RateLimited(time.Minute, jobs.ScopeGlobal)
	}
	err := publish(context.Background(), &jobs.Job{Key: "alice"})
	if limited, ok := errors.AsType[*jobs.RateLimitedError](err); ok {
		fmt.Println(limited.Scope, limited.RetryAfter)
	}
	fmt.Println(err)
	// Output:
	// global 1m0s
	// rate limited (global limit), retry after 1m0s
}

// A publisher that learns how many calls are left tells of it, also when all went
// well: before the last one is used up, the fleet stops by itself.
func ExampleBudget() {
	publish := func(_ context.Context, job *jobs.Job) error {
		// … the call; its answer says: 7 of 100 left, for 40 seconds.
		job.Budget = &jobs.Budget{Remaining: 7, Reset: 40 * time.Second, Limit: 100}
		return nil
	}
	job := &jobs.Job{}
	err := publish(context.Background(), job)
	fmt.Println(err, job.Budget.Remaining, "of", job.Budget.Limit, "left for", job.Budget.Reset)
	// Output: <nil> 7 of 100 left for 40s
}

// A job with an end can be looked at as of any instant.
func ExampleJob_ExpiredAt() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	job, err := client.Enqueue(ctx, jobs.New("deviantart", "Today's weather", jobs.TTL(time.Hour)))
	if err != nil {
		fmt.Println(err)
		return
	}
	now, err := client.Now(ctx) // by Redis's clock, which decides
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.ExpiredAt(now), job.ExpiredAt(now.Add(2*time.Hour)))
	fmt.Println(job.ExpiresAt.Sub(now).Round(time.Minute), "left")
	// Output:
	// false true
	// 1h0m0s left
}
