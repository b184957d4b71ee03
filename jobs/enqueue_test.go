package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Every property that is given comes back, from the enqueue and from a look.
func TestEnqueueAndGet(t *testing.T) {
	t.Parallel()
	policy := jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 10 * time.Second, BackoffMultiplier: 1.5, MaxDelay: 120 * time.Second, RetryOn: []jobs.Trigger{jobs.OnTimeout}}
	seven := 7
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := context.Background()
		before := time.Now().UTC().Truncate(time.Millisecond)
		payload := []byte(" {\"b\": 1, \"a\": [1e400, \"\xff\"]}\n")
		job, err := b.Enqueue(ctx, jobs.New(b.dest, payload, jobs.ID(b.dest+":1"), jobs.Key("alice@example.com"),
			jobs.Method("PUT"), jobs.Encode(jobs.EncodingJSON), jobs.CallTimeout(1500*time.Millisecond), jobs.Path("/items/%C3%BC"), jobs.Query("q=1&r=%20"), jobs.Header("X-A", "ü\tx"), jobs.Header("Content-Type", "text/plain"),
			jobs.Prioritize(jobs.PriorityHigh), jobs.MaxReschedules(7), jobs.Retry(policy), jobs.Delay(time.Hour)))
		b.must(err)
		after := time.Now().UTC()
		want := &jobs.Job{
			ID: b.dest + ":1", Destination: b.dest, Key: "alice@example.com", Status: jobs.Pending, Priority: jobs.PriorityHigh,
			Payload: payload, After: []string{},
			Request: jobs.Request{
				Method: "PUT", Path: "/items/%C3%BC", Query: "q=1&r=%20", Headers: map[string]string{"X-A": "ü\tx", "Content-Type": "text/plain"},
				Encoding: jobs.EncodingJSON, TimeoutSecs: 2,
			},
			Retry: &policy, MaxReschedules: &seven, Cost: 1, CreatedAt: job.CreatedAt, AvailableAt: job.AvailableAt,
		}
		if diff := cmp.Diff(want, job); diff != "" {
			t.Errorf("enqueued (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, b.get(job.ID)); diff != "" {
			t.Errorf("looked up (-want +got):\n%s", diff)
		}
		if job.CreatedAt.Before(before) || job.CreatedAt.After(after) {
			t.Errorf("created at %s, not between %s and %s", job.CreatedAt, before, after)
		}
		if job.AvailableAt.Before(before.Add(time.Hour)) || job.AvailableAt.After(after.Add(time.Hour+time.Millisecond)) {
			t.Errorf("available at %s, not an hour after the enqueue between %s and %s", job.AvailableAt, before, after)
		}
	})
}

// A job of which nothing is given but the destination.
func TestEnqueueDefaults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job, err := b.Enqueue(context.Background(), jobs.New(b.dest, nil))
	b.must(err)
	want := &jobs.Job{
		ID: job.ID, Destination: b.dest, Status: jobs.Pending, Priority: jobs.PriorityDefault,
		Payload: json.RawMessage("null"), After: []string{}, Cost: 1, CreatedAt: job.CreatedAt, AvailableAt: job.CreatedAt,
	}
	if diff := cmp.Diff(want, job); diff != "" {
		t.Errorf("enqueued (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, b.get(job.ID)); diff != "" {
		t.Errorf("looked up (-want +got):\n%s", diff)
	}
	if id, err := uuid.Parse(job.ID); err != nil || id.Version() != 7 {
		t.Errorf("id %s is no UUIDv7: %v", job.ID, err)
	}
	zone, offset := job.CreatedAt.Zone()
	if zone != "UTC" || offset != 0 || job.CreatedAt.Nanosecond()%int(time.Millisecond) != 0 {
		t.Errorf("created at %s, want UTC and whole milliseconds", job.CreatedAt)
	}
}

// To asynq's own tools a job is a task that can be retried without end.
func TestEnqueuedJobIsAnAsynqTask(t *testing.T) {
	t.Parallel()
	b := newBench(t, jobs.WithRetention(2*time.Hour))
	job := b.enqueue(jobs.Key("k"))
	inspector := asynq.NewInspectorFromRedisClient(b.rdb)
	info, err := inspector.GetTaskInfo(b.queue(), job.ID)
	b.must(err)
	if info.Type != "tidegate:publish" || info.State != asynq.TaskStatePending || string(info.Payload) != "{}" ||
		info.MaxRetry != 1<<31-1 || info.Retried != 0 || info.Timeout != 7*24*time.Hour || info.Retention != 2*time.Hour {
		t.Errorf("asynq sees %+v", info)
	}
	want := map[string]string{"created": strconv.FormatInt(job.CreatedAt.UnixMilli(), 10), "key": "k"}
	if diff := cmp.Diff(want, info.Headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	queues, err := inspector.Queues()
	b.must(err)
	if !slices.Contains(queues, b.queue()) {
		t.Errorf("asynq does not know the queue %s", b.queue())
	}
	stats, err := inspector.GetQueueInfo(b.queue())
	b.must(err)
	if stats.Pending != 1 || stats.Latency < 0 || stats.Latency > time.Minute {
		t.Errorf("asynq's queue: %d pending, latency %s", stats.Pending, stats.Latency)
	}
}

// Bad jobs are answered in their place and stop no other.
func TestEnqueueManyAnswersEachJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	later := time.Now().Add(time.Hour)
	for _, n := range []int{8, 2500} { // within one request, and in several
		specs := make([]*jobs.Spec, n)
		for i := range specs {
			switch i % 8 {
			case 1:
				specs[i] = nil
			case 3:
				specs[i] = jobs.New(b.dest, []byte("{"))
			case 4:
				specs[i] = jobs.New(b.dest, i, jobs.Prioritize(jobs.PriorityLow))
			case 5:
				specs[i] = jobs.New("elsewhere-"+b.dest, i)
			case 6:
				specs[i] = jobs.New(b.dest, i, jobs.At(later))
			default:
				specs[i] = jobs.New(b.dest, i)
			}
		}
		results, err := b.EnqueueMany(context.Background(), specs)
		b.must(err)
		if len(results) != n {
			t.Fatalf("%d results for %d jobs", len(results), n)
		}
		for i, r := range results {
			want := map[int]string{
				1: "jobs: enqueue: job: is nil; make one with New",
				3: "jobs: enqueue: payload: is not valid JSON: unexpected end of JSON input; a payload is JSON, with names and texts in double quotes, such as {\"title\":\"Sunset\"} or \"Sunset\"; in a shell put single quotes around it",
				5: fmt.Sprintf("jobs: enqueue: destination %q is not known; known are ", "elsewhere-"+b.dest),
			}[i%8]
			if want != "" {
				if r.Job != nil || !jobs.Refused(r.Err) || errors.Is(r.Err, jobs.ErrInvalid) != (i%8 != 5) || !strings.HasPrefix(fmt.Sprint(r.Err), want) {
					t.Errorf("result %d of %d: job %v, error %v; want %s", i, n, r.Job, r.Err, want)
				}
				continue
			}
			if r.Err != nil || r.Job == nil || string(r.Job.Payload) != strconv.Itoa(i) {
				t.Fatalf("result %d of %d: %+v, %v", i, n, r.Job, r.Err)
			}
			if got := b.get(r.Job.ID); string(got.Payload) != strconv.Itoa(i) {
				t.Errorf("result %d of %d: looked up as %+v", i, n, got)
			}
		}
	}
	if results, err := b.EnqueueMany(context.Background(), nil); err != nil || len(results) != 0 {
		t.Errorf("nothing to enqueue: %v, %v", results, err)
	}
	if _, err := b.Enqueue(context.Background(), nil); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("no job: %v", err)
	}
}

// Redis may forget its scripts at any time.
func TestEnqueueAfterScriptFlush(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	b := benchOn(t, rdb)
	ctx := context.Background()
	flush := func() {
		t.Helper()
		b.must(rdb.ScriptFlush(ctx).Err())
	}
	for range 3 {
		b.enqueue()
		flush()
	}
	specs := make([]*jobs.Spec, 1000)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i)
	}
	results, err := b.EnqueueMany(ctx, specs)
	b.must(err)
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("result %d: %v", i, r.Err)
		}
	}
	flush()
	page, err := b.List(ctx, jobs.ListOptions{})
	b.must(err)
	if len(page.Items) != jobs.DefaultPage {
		t.Errorf("%d jobs listed", len(page.Items))
	}
	// In the middle of a pipeline: after the load, before the scripts.
	rdb.AddHook(pipelineHook(func([]redis.Cmder) { flush() }))
	results, err = b.EnqueueMany(ctx, specs)
	b.must(err)
	for i, r := range results {
		if r.Err != nil || r.Job == nil {
			t.Fatalf("flushed in the middle: result %d: %v", i, r.Err)
		}
	}
	if got := len(b.waiting(b.queue())); got != 2003 {
		t.Errorf("%d jobs wait, want 2003", got)
	}
}

// What was accepted before the context ended is told.
func TestEnqueueManyCancelledInTheMiddle(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	b := benchOn(t, rdb)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	requests := 0
	rdb.AddHook(pipelineHook(func([]redis.Cmder) {
		if requests++; requests == 3 {
			cancel()
		}
	}))
	specs := make([]*jobs.Spec, 5000)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i)
	}
	results, err := b.EnqueueMany(ctx, specs)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	var accepted []string
	for _, r := range results {
		if r.Job != nil {
			accepted = append(accepted, r.Job.ID)
		}
	}
	if len(accepted) != 2000 {
		t.Errorf("%d jobs are said to be accepted, want those of two requests", len(accepted))
	}
	for i, r := range results[2000:] {
		if r.Job != nil || !errors.Is(r.Err, context.Canceled) || errors.Is(r.Err, jobs.ErrNotSent) != (i >= 1000) {
			t.Fatalf("result %d: %+v", 2000+i, r)
		}
	}
	if diff := cmp.Diff(accepted, b.waiting(b.queue())); diff != "" {
		t.Errorf("queue (-told +waiting):\n%s", diff)
	}
}

func TestEnqueueWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := benchOn(t, server.Client(t))
	b.enqueue()
	server.Kill()
	_, err := b.Enqueue(context.Background(), jobs.New(b.dest, 1))
	if err == nil || errors.Is(err, jobs.ErrInvalid) || !strings.HasPrefix(err.Error(), "jobs: enqueue: write to Redis: ") {
		t.Errorf("error %v", err)
	}
}

func TestNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	before := time.Now().Add(-time.Millisecond)
	now, err := b.Now(context.Background())
	b.must(err)
	if now.Before(before) || now.After(time.Now().Add(time.Millisecond)) || now.Location() != time.UTC {
		t.Errorf("now is %s, here it is %s", now, time.Now())
	}
}

// A policy that was written into the spec takes its defaults as one of the option does,
// and leaves the spec alone.
func TestEnqueueLiteralPolicy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spec := jobs.New(b.dest, 1)
	spec.Retry = &jobs.RetryPolicy{MaxRetries: 2, InitialDelay: 10 * time.Minute}
	job, err := b.Enqueue(context.Background(), spec)
	b.must(err)
	want := &jobs.RetryPolicy{MaxRetries: 2, InitialDelay: 10 * time.Minute, BackoffMultiplier: 2, MaxDelay: 10 * time.Minute}
	if diff := cmp.Diff(want, job.Retry); diff != "" {
		t.Errorf("enqueued (-want +got):\n%s", diff)
	}
	want.RetryOn = []jobs.Trigger{jobs.OnTimeout, jobs.OnFailure, jobs.OnExplicit}
	if diff := cmp.Diff(want, b.get(job.ID).Retry); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if spec.Retry.BackoffMultiplier != 0 {
		t.Errorf("the spec has changed: %+v", spec.Retry)
	}
}
