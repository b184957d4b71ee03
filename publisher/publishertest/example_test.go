package publishertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
	"github.com/tidegate/tidegate/publisher/publishertest"
)

// gallery is the publisher to be tested: it stands for one of yours.
type gallery struct {
	answer func() (status int, retryAfter time.Duration)
}

func (g gallery) Publish(_ context.Context, job *jobs.Job) error {
	status, retryAfter := g.answer()
	switch status {
	case http.StatusTooManyRequests:
		return jobs.RateLimited(retryAfter)
	case http.StatusServiceUnavailable:
		return jobs.Reschedule(10*time.Minute, jobs.ExtendExpiration(10*time.Minute)) // maintenance
	case http.StatusCreated:
		job.Response = &jobs.Response{Status: status}
		return nil
	}
	return fmt.Errorf("the gallery answered %d", status)
}

func ExamplePublish() {
	ctx := context.Background() // in a test: t.Context()
	h := gallery{func() (int, time.Duration) { return 429, time.Minute }}

	got := publishertest.Publish(ctx, h, publishertest.NewJob(jobs.New("gallery", "Sunset")))
	fmt.Println(got.Result, "in", got.Delay)
	fmt.Println("counts against the breaker:", got.RateLimited)
	fmt.Println(got.Job.Status, got.Job.RescheduleCount, got.Job.Attempt)
	// Output:
	// rescheduled in 1m0s
	// counts against the breaker: true
	// pending 1 0
}

// A job in the middle of its life: here the last of its retries.
func ExampleNewJob() {
	job := publishertest.NewJob(jobs.New("gallery", "Sunset", jobs.Retry(jobs.RetryPolicy{MaxRetries: 3})))
	h := gallery{func() (int, time.Duration) { return 500, 0 }}

	job.Attempt = 2
	fmt.Println(publishertest.Publish(context.Background(), h, job))
	job.Attempt = 3
	fmt.Println(publishertest.Publish(context.Background(), h, job))
	// Output:
	// retry in 20s (18s to 22s) after failure: the gallery answered 500
	// failed: the gallery answered 500
}

// The options are those of publisher.Handle, such as the timeout of a call.
func ExamplePublish_timeout() {
	slow := publisher.Func(func(ctx context.Context, _ *jobs.Job) error {
		select {
		case <-time.After(time.Hour):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	job := publishertest.NewJob(jobs.New("gallery", "Sunset", jobs.Retry(jobs.RetryPolicy{
		MaxRetries: 1, InitialDelay: 30 * time.Second, RetryOn: []jobs.Trigger{jobs.OnTimeout},
	})))

	got := publishertest.Publish(context.Background(), slow, job, publisher.Timeout(10*time.Millisecond))
	fmt.Println(got.Result, "after", got.Trigger, "between", got.MinDelay, "and", got.MaxDelay)
	// Output: retry after timeout between 27s and 33s
}

// A call that is cut because the worker shuts down is not lost: the job goes back
// to the head of its queue.
func ExamplePublish_shutdown() {
	ctx, shutdown := context.WithCancel(context.Background())
	h := publisher.Func(func(ctx context.Context, _ *jobs.Job) error {
		shutdown() // while the call is under way
		<-ctx.Done()
		return ctx.Err()
	})

	got := publishertest.Publish(ctx, h, publishertest.NewJob(jobs.New("gallery", "Sunset")))
	fmt.Println(got.Result, got.Job.Status)
	// Output: requeued pending
}

// A job that is cancelled while it is called.
func ExampleErrCancelled() {
	ctx, cancel := context.WithCancelCause(context.Background())
	h := publisher.Func(func(ctx context.Context, _ *jobs.Job) error {
		cancel(publishertest.ErrCancelled)
		<-ctx.Done()
		return ctx.Err()
	})

	got := publishertest.Publish(ctx, h, publishertest.NewJob(jobs.New("gallery", "Sunset")))
	fmt.Println(got.Result, got.Job.Status)
	// Output: cancelled cancelled
}

// An HTTP destination is tested against a server of net/http/httptest.
func ExamplePublish_http() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL, r.Header.Get("Authorization"), r.Header.Get("Idempotency-Key"))
		w.Header().Set("Retry-After", "120")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	}))
	defer api.Close()
	h, err := httpdest.New(httpdest.Options{URL: api.URL + "/v1", AuthToken: "the-token"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()

	job := publishertest.NewJob(jobs.New("gallery", "Sunset", jobs.ID("sunset"), jobs.Path("/items"), jobs.Query("draft=1")))
	got := publishertest.Publish(context.Background(), h, job)
	fmt.Println(got)
	fmt.Print(got.Job.Response.Status, " ", got.Job.Response.Body)
	// Output:
	// POST /v1/items?draft=1 Bearer the-token sunset
	// rescheduled by 2m0s, counts against the breaker: rate limited, retry after 2m0s
	// 429 slow down
}

// Days pass at once: a failure, a limit, maintenance, and then it works.
func ExamplePlay() {
	answers := []int{500, 429, 503, 201}
	h := gallery{func() (int, time.Duration) {
		status := answers[0]
		answers = answers[1:]
		return status, 24 * time.Hour
	}}
	job := publishertest.NewJob(jobs.New("gallery", "Sunset",
		jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 10 * time.Second}), jobs.TTL(48*time.Hour)))

	life := publishertest.Play(context.Background(), h, job, 10)
	fmt.Print(life)
	fmt.Println(life.Job.Status, "after", len(life.Calls), "calls,", life.Job.ExpiresAt.Sub(life.Job.CreatedAt))
	// Output:
	// +0s call 1: retry in 10s (9s to 11s) after failure: the gallery answered 500
	// +10s call 2: rescheduled by 1h0m0s, counts against the breaker: rate limited, retry after 24h0m0s
	// +1h0m10s call 3: rescheduled by 10m0s
	// +1h10m10s call 4: completed
	// completed after 4 calls, 48h10m0s
}

// A job that is put off for longer than it lives expires; that is no failure.
func ExamplePlay_expiry() {
	h := publisher.Func(func(context.Context, *jobs.Job) error { return jobs.Reschedule(40 * time.Minute) })
	job := publishertest.NewJob(jobs.New("gallery", "Sunset", jobs.TTL(time.Hour)))

	life := publishertest.Play(context.Background(), h, job, 10)
	fmt.Print(life)
	fmt.Printf("%s %q\n", life.Job.Status, life.Job.LastError)
	// Output:
	// +0s call 1: rescheduled by 40m0s
	// +40m0s call 2: rescheduled by 40m0s
	// +1h0m0s expired
	// expired ""
}

// A publisher that never gets anywhere is stopped by the bounds of the job.
func ExamplePlay_bounds() {
	h := publisher.Func(func(_ context.Context, job *jobs.Job) error {
		if job.RescheduleCount < 2 {
			return jobs.Reschedule(0)
		}
		return errors.New("broken")
	})
	bounded := publishertest.NewJob(jobs.New("gallery", "Sunset", jobs.MaxReschedules(1)))
	fmt.Print(publishertest.Play(context.Background(), h, bounded, 10))
	fmt.Println()
	retried := publishertest.NewJob(jobs.New("gallery", "Sunset", jobs.Retry(jobs.RetryPolicy{MaxRetries: 2})))
	fmt.Print(publishertest.Play(context.Background(), h, retried, 10))
	// Output:
	// +0s call 1: rescheduled by 0s
	// +0s call 2: failed: max reschedules (1) exceeded
	//
	// +0s call 1: rescheduled by 0s
	// +0s call 2: rescheduled by 0s
	// +0s call 3: retry in 5s (4.5s to 5.5s) after failure: broken
	// +5s call 4: retry in 10s (9s to 11s) after failure: broken
	// +15s call 5: failed: broken
}

// A job that uses what its parent got, here the id of an upload.
func ExampleParent() {
	h := publisher.Func(func(_ context.Context, job *jobs.Job) error {
		var upload struct {
			ItemID int `json:"itemid"`
		}
		if err := job.ParentOutput("upload", &upload); err != nil {
			return jobs.Discard(err)
		}
		job.Output = fmt.Appendf(nil, `{"url":"https://gallery.example/%d"}`, upload.ItemID)
		return nil
	})
	spec := jobs.New("gallery", "Sunset", jobs.After("upload"))
	fmt.Println(publishertest.Publish(context.Background(), h, publishertest.NewJob(spec)))

	got := publishertest.Publish(context.Background(), h, publishertest.NewJob(spec,
		publishertest.Parent("upload", map[string]int{"itemid": 7})))
	fmt.Println(got, string(got.Job.Output))
	// Output:
	// failed: jobs: parent upload has no output
	// completed {"url":"https://gallery.example/7"}
}
