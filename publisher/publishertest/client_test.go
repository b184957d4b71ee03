package publishertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/publishertest"
)

// describe names what a test compares of jobs.
func describe(enqueued []*jobs.Job) string {
	var all []string
	for _, j := range enqueued {
		all = append(all, fmt.Sprintf("%s %s %s %s", j.Destination, j.ID, j.Payload, j.Status))
	}
	return strings.Join(all, ", ")
}

// A handler enqueues jobs with the client of its context, children of its own job too.
func TestHandlersEnqueue(t *testing.T) {
	t.Parallel()
	calls := 0
	handler := publisher.Func(func(ctx context.Context, job *jobs.Job) error {
		client := publisher.Client(ctx)
		calls++
		if _, err := client.Enqueue(ctx, jobs.New("thumbnails", calls, jobs.ID("small"))); err != nil {
			return err
		}
		results, err := client.EnqueueMany(ctx, []*jobs.Spec{
			jobs.New("mail", "done", jobs.ID(fmt.Sprint("mail-", calls)), jobs.After(job.ID)), jobs.New("mail", "bad", jobs.ID("a b")),
		})
		if err != nil || results[0].Err != nil || !errors.Is(results[1].Err, jobs.ErrInvalid) {
			t.Errorf("enqueue many: %v, %+v", err, results)
		}
		if calls < 3 {
			return jobs.Reschedule(time.Minute)
		}
		return nil
	})
	life := publishertest.Play(t.Context(), handler, publishertest.NewJob(jobs.New("gallery", nil)), 5)
	var got []string
	for _, c := range life.Calls {
		got = append(got, describe(c.Enqueued))
	}
	want := []string{"thumbnails small 1 pending, mail mail-1 \"done\" waiting", "mail mail-2 \"done\" waiting", "mail mail-3 \"done\" waiting"}
	if !slices.Equal(got, want) || life.Job.Status != jobs.Completed {
		t.Errorf("%s\nenqueued %q, want %q", life, got, want)
	}
}

// A test's own client has jobs before and after the call, and can fail.
func TestClientOfATest(t *testing.T) {
	t.Parallel()
	client := publishertest.NewClient()
	t.Cleanup(client.Close)
	ctx := client.Context(t.Context())
	if _, err := client.Enqueue(ctx, jobs.New("mail", nil, jobs.ID("reminder"))); err != nil {
		t.Fatal(err)
	}
	handler := publisher.Func(func(ctx context.Context, _ *jobs.Job) error {
		return publisher.Client(ctx).Cancel(ctx, "reminder", jobs.Because("paid"))
	})
	job := publishertest.NewJob(jobs.New("gallery", nil))
	if r := publishertest.Publish(ctx, handler, job); r.Result != publisher.Completed || len(r.Enqueued) != 0 {
		t.Errorf("%s, enqueued %s", r, describe(r.Enqueued))
	}
	if got, err := client.Get(ctx, "reminder"); err != nil || got.Status != jobs.Cancelled {
		t.Errorf("reminder: %+v, %v", got, err)
	}
	if got, want := describe(client.Enqueued()), "mail reminder null pending"; got != want {
		t.Errorf("enqueued %s, want %s", got, want)
	}
	down := errors.New("connection refused")
	client.Fail(down)
	if r := publishertest.Publish(ctx, handler, job); r.Result != publisher.FailedFinal || !errors.Is(r.Err, down) {
		t.Errorf("with a client that fails: %s", r)
	}
	client.Fail(nil)
	if r := publishertest.Publish(ctx, handler, job); !errors.Is(r.Err, jobs.ErrStatus) {
		t.Errorf("the second cancel: %s", r)
	}
}

// In a bubble the clock advances while the client has connections, pipelines of any length end,
// and nothing is left.
func TestClientInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := publisher.Func(func(ctx context.Context, _ *jobs.Job) error {
			specs := make([]*jobs.Spec, 2000)
			for i := range specs {
				specs[i] = jobs.New("mail", i)
			}
			if _, err := publisher.Client(ctx).EnqueueMany(ctx, specs); err != nil {
				return err
			}
			<-time.After(10 * time.Second)
			return nil
		})
		r := publishertest.Publish(t.Context(), handler, publishertest.NewJob(jobs.New("gallery", nil)))
		if r.Result != publisher.Completed || len(r.Enqueued) != 2000 || r.Took < 10*time.Second {
			t.Errorf("%s after %s, %d enqueued", r, r.Took, len(r.Enqueued))
		}
	})
}
