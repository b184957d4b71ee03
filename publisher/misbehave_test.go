package publisher_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A handler that ends its goroutine, as t.FailNow does, fails its job and frees its slot.
func TestGoexitFailsTheJobAndFreesItsSlot(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var calls tally
	b.run(b.options(), func(_ context.Context, job *jobs.Job) error {
		if calls.add(job.ID) == 1 && job.Key == "" {
			runtime.Goexit()
		}
		return nil
	}, publisher.Concurrency(1))
	const want = "the publisher ended its goroutine (runtime.Goexit)"
	final := b.enqueue()
	if e := b.want(publisher.FailedFinal); e.LastError != want || !e.Called || e.Outcome != publisher.OutcomeFailure {
		t.Errorf("%+v", e)
	}
	if got := b.get(final.ID); got.LastError != want {
		t.Errorf("last error %q", got.LastError)
	}
	retried := b.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second}))
	b.want(publisher.Retried)
	// The one slot is free.
	b.enqueue(jobs.Key("alice"))
	b.want(publisher.Completed)
	b.makeDue(retried.ID)
	b.want(publisher.Completed)
}

// A handler that blocks for ever is reported again and again, and Cancel says that it
// cannot end it. The job ends when the handler does.
func TestStuckHandlerIsReported(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	end := make(chan struct{})
	reports := make(chan publisher.Stuck, 100)
	o := b.options()
	o.Observe(publisher.Observer{OnStuck: func(s publisher.Stuck) { reports <- s }})
	p, err := publisher.New(b.rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Handle(b.dest, publisher.Func(func(context.Context, *jobs.Job) error {
		<-end
		return errors.New("too late")
	}), publisher.Concurrency(2), publisher.Timeout(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	release := sync.OnceFunc(func() { close(end) })
	t.Cleanup(func() {
		release()
		stop()
		if err := signal(t, "Run has returned", ended); err != nil {
			t.Error(err)
		}
	})
	j := b.enqueue(jobs.Key("alice"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 1}))
	first := signal(t, "the first report", reports)
	if want := (publisher.Stuck{Destination: b.dest, Key: "alice", Job: j.ID, Cause: publisher.OutcomeTimeout, For: first.For, Reports: 1}); first != want || first.For <= 0 {
		t.Errorf("reported %+v, want %+v", first, want)
	}
	if s := p.Status()[0]; s.Stuck != 1 || !strings.Contains(s.Reason, "1 of 2 slots") {
		t.Errorf("status: %+v", s)
	}
	err = b.client.Cancel(t.Context(), j.ID)
	if !errors.Is(err, jobs.ErrStuck) {
		t.Errorf("cancel: %v", err)
	}
	results, err := b.client.Act(t.Context(), jobs.ActionCancel, []string{j.ID})
	if err != nil || !results[0].Asked || !results[0].Stuck || results[0].Err != nil {
		t.Errorf("cancel: %+v, %v", results, err)
	}
	if s := signal(t, "the second report", reports); s.Reports != 2 || s.For <= first.For {
		t.Errorf("second report: %+v", s)
	}
	release()
	b.want(publisher.Cancelled)
	if s := p.Status()[0]; s.Stuck != 0 || s.Reason != "" {
		t.Errorf("status afterwards: %+v", s)
	}
}

// A shutdown does not wait for a handler that never returns; its job goes back. Half a second is left for that, so a
// machine that stands still meanwhile gets another try.
func TestShutdownLeavesAStuckHandler(t *testing.T) {
	t.Parallel()
	for try := 1; ; try++ {
		problem := leaveStuckHandler(t)
		if problem == "" {
			return
		}
		if try == 3 {
			t.Fatal(problem)
		}
		t.Log(problem)
	}
}

// leaveStuckHandler returns what was wrong, "" for nothing.
func leaveStuckHandler(t *testing.T) string {
	t.Helper()
	b := newFixture(t)
	o := b.options()
	o.ShutdownTimeout = 50 * time.Millisecond
	var log loggingtest.Buffer
	o.Logger = slog.New(slowLine{slog.NewTextHandler(&log, nil), "a handler still runs"})
	started, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	stop := b.run(o, func(context.Context, *jobs.Job) error {
		close(started)
		<-end
		return nil
	})
	j := b.enqueue()
	signal(t, "the call has started", started)
	stop()
	logged := log.String()
	if got := b.get(j.ID); got.Status != jobs.Pending || got.RescheduleCount != 0 {
		return fmt.Sprintf("it is %s, rescheduled %d times\n%s", got.Status, got.RescheduleCount, logged)
	}
	_, last, _ := strings.Cut(logged, "a handler still runs although the worker has stopped")
	if !strings.Contains(last, j.ID) || !strings.HasSuffix(logged, "msg=stopped destination="+b.dest+"\n") {
		return "Run has returned after it logged\n" + logged
	}
	return ""
}

// slowLine writes the lines that begin with it late.
type slowLine struct {
	slog.Handler

	begins string
}

// Handle implements slog.Handler.
func (h slowLine) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, h.begins) {
		<-time.After(50 * time.Millisecond)
	}
	return h.Handler.Handle(ctx, r) //nolint:wrapcheck // a test's
}

// WithAttrs implements slog.Handler.
func (h slowLine) WithAttrs(attrs []slog.Attr) slog.Handler {
	return slowLine{h.Handler.WithAttrs(attrs), h.begins}
}

// What a handler changes of its job has no effect, but for Response and Budget.
func TestHandlerGetsACopyOfTheJob(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	failed := errors.New("refused")
	b.run(b.options(), func(_ context.Context, job *jobs.Job) error {
		*job.MaxReschedules = 100
		job.Retry.MaxRetries, job.Retry.RetryOn[0] = 100, jobs.OnExplicit
		job.Retry = nil
		job.ID, job.Key, job.Destination, job.Attempt = "other", "mallory", "other", 7
		job.Request.Headers["X-A"] = "changed"
		copy(job.Payload, "XXX")
		job.Response = &jobs.Response{Status: 500, Body: "kept"}
		return failed
	})
	j, err := b.client.Enqueue(t.Context(), jobs.New(b.dest, json.RawMessage(`{"n":1}`), jobs.Key("alice"), jobs.Header("X-A", "b"),
		jobs.MaxReschedules(1), jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, RetryOn: []jobs.Trigger{jobs.OnFailure}})))
	if err != nil {
		t.Fatal(err)
	}
	e := b.want(publisher.Retried)
	if e.Job.ID != j.ID || e.Job.Key != "alice" || e.Job.Request.Headers["X-A"] != "b" || string(e.Job.Payload) != `{"n":1}` || e.Job.Attempt != 0 {
		t.Errorf("the event's job: %+v", e.Job)
	}
	b.makeDue(j.ID)
	b.want(publisher.FailedFinal)
	got := b.get(j.ID)
	if got.Attempt != 1 || string(got.Payload) != `{"n":1}` || got.Retry.MaxRetries != 1 || *got.MaxReschedules != 1 {
		t.Errorf("in Redis: %+v", got)
	}
	if got.Response == nil || got.Response.Status != 500 || got.Response.Body != "kept" {
		t.Errorf("response %+v", got.Response)
	}
}

type typedError struct{ text string }

func (e *typedError) Error() string { return e.text } // panics if it is nil

// A nil pointer as an error, and an error that panics, fail the job and nothing else.
func TestErrorsThatCannotBeReadFailTheJob(t *testing.T) {
	t.Parallel()
	var none *typedError
	var limited *jobs.RateLimitedError
	for name, err := range map[string]error{
		"typed nil": none, "typed nil of ours": limited, "joined": errors.Join(errors.New("a"), none),
		"wrapped fail": jobs.Fail(none), "discarded": jobs.Discard(none),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			b.run(b.options(), func(_ context.Context, job *jobs.Job) error {
				if job.Key == "" {
					return err
				}
				return nil
			}, publisher.Concurrency(1))
			b.enqueue()
			e := b.want(publisher.FailedFinal)
			if !strings.HasPrefix(e.LastError, "the handler returned a nil *") && !strings.HasPrefix(e.LastError, "the handler panicked: ") {
				t.Errorf("last error %q", e.LastError)
			}
			b.enqueue(jobs.Key("next"))
			b.want(publisher.Completed)
		})
	}
}

// A handler that ignores the end of its time has timed out, however late it returns: its
// process has not stood still.
func TestSlowHandlerWasNotInterrupted(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.run(b.options(), func(context.Context, *jobs.Job) error {
		<-time.After(2500 * time.Millisecond)
		return errors.New("too late")
	}, publisher.Timeout(50*time.Millisecond))
	job := b.enqueue()
	if e := b.result(job.ID); e.Result != publisher.FailedFinal || e.Outcome != publisher.OutcomeTimeout {
		t.Errorf("%s, outcome %s; want %s and %s", e.Result, e.Outcome, publisher.FailedFinal, publisher.OutcomeTimeout)
	}
}
