package publisher_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// An observer that panics changes nothing of what becomes of jobs, and other observers are
// notified.
func TestPanicsOfObserversChangeNothing(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	log := &loggingtest.Buffer{}
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	var after atomic.Int32
	o.Observers = append([]publisher.Observer{{
		OnJob:    func(publisher.JobEvent) { panic("of OnJob") },
		OnCall:   func(publisher.Call) { panic("of OnCall") },
		OnAnswer: func(publisher.Answer) { panic("of OnAnswer") },

		OnTransition: func(breaker.Event) { panic("of OnTransition") },
		Trace: func(ctx context.Context, _ *jobs.Job) (context.Context, func(publisher.JobEvent)) {
			return ctx, func(publisher.JobEvent) { panic("of Trace") }
		},
	}}, o.Observers...)
	o.Observe(publisher.Observer{OnCall: func(publisher.Call) { after.Add(1) }})
	r := breaker.Options{Cooldown: 50 * time.Millisecond, FailureThreshold: 1, OnEvent: func(breaker.Event) { panic("of OnEvent") }}
	limited, seen := make(chan struct{}, 1), make(chan struct{})
	limited <- struct{}{}
	stop := b.run(o, func(context.Context, *jobs.Job) error {
		select {
		case <-limited:
			return jobs.RateLimited(0)
		default:
			<-seen
			return nil
		}
	}, publisher.Breaker(r))
	first := b.enqueue()
	if e := b.result(first.ID); e.Result != publisher.Rescheduled {
		t.Errorf("the first: %+v", e)
	}
	close(seen)
	if e := b.result(first.ID); e.Result != publisher.Completed {
		t.Errorf("the first again: %+v", e)
	}
	second := b.enqueue()
	if e := b.result(second.ID); e.Result != publisher.Completed {
		t.Errorf("the second: %+v", e)
	}
	stop()
	if n := after.Load(); n != 3 {
		t.Errorf("the observer behind the one that panics was notified of %d calls, want 3", n)
	}
	for _, option := range []string{"OnJob", "OnCall", "OnAnswer", "Trace", "OnTransition", "OnEvent"} {
		if n := strings.Count(log.String(), "panicked; this is logged once\" destination="+b.dest+" option="+option+" "); n != 1 {
			t.Errorf("the panics of %s were logged %d times\n%s", option, n, log)
		}
	}
}

// Observers are notified of each call, probes among them, wherever its handler put the answer.
func TestObserversAreNotifiedOfCalls(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	calls := make(chan publisher.Call, 10)
	o := b.options()
	o.Observe(publisher.Observer{OnCall: func(c publisher.Call) { calls <- c }})
	answers := make(chan func(*jobs.Job) error, 10)
	b.run(o, func(_ context.Context, j *jobs.Job) error { return (<-answers)(j) },
		publisher.Breaker(breaker.Options{Cooldown: 20 * time.Millisecond, FailureThreshold: 1}))
	answers <- func(*jobs.Job) error { return &jobs.RateLimitedError{Response: &jobs.Response{Status: 429}} }
	answers <- func(j *jobs.Job) error { j.Response = &jobs.Response{Status: 201}; return nil }
	job := b.enqueue(jobs.Key("alice"))
	want := []publisher.Call{
		{Destination: b.dest, Key: "alice", Job: job.ID, Outcome: publisher.OutcomeRateLimited, Status: 429},
		{Destination: b.dest, Key: "alice", Job: job.ID, Outcome: publisher.OutcomeSuccess, Status: 201, Probe: true},
	}
	for i := range want {
		got := signal(t, "a call is reported", calls)
		if got.Took <= 0 || got.Took > time.Minute {
			t.Errorf("call %d took %s", i, got.Took)
		}
		got.Took = 0
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("call %d (-want +got):\n%s", i, diff)
		}
	}
}

// A typed handler gets the payload decoded and the Publisher's client. A payload that is
// not one of its type fails the job without a call; a newer worker may read it, if the retry policy says so.
func TestTypedHandler(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	follow := make(chan string, 1)
	type picture struct{ Title string }
	h := publisher.Typed(func(ctx context.Context, j *jobs.Job, p picture) error {
		if p.Title == "first" {
			next, err := publisher.Client(ctx).Enqueue(ctx, jobs.New(j.Destination, picture{"second"}))
			if err != nil {
				return err
			}
			follow <- next.ID
		}
		return nil
	})
	b.run(b.options(), h.Publish)
	first, err := b.client.Enqueue(t.Context(), jobs.New(b.dest, picture{"first"}))
	if err != nil {
		t.Fatal(err)
	}
	if e := b.result(first.ID); e.Result != publisher.Completed {
		t.Errorf("%+v", e)
	}
	if e := b.result(<-follow); e.Result != publisher.Completed {
		t.Errorf("enqueued by the handler: %+v", e)
	}
	for policy, want := range map[*jobs.RetryPolicy]string{nil: publisher.FailedFinal, {MaxRetries: 3}: publisher.Retried} {
		var options []jobs.Option
		if policy != nil {
			options = append(options, jobs.Retry(*policy))
		}
		wrong, err := b.client.Enqueue(t.Context(), jobs.New(b.dest, []int{1}, options...))
		if err != nil {
			t.Fatal(err)
		}
		e := b.result(wrong.ID)
		if e.Result != want || e.Called || e.Err == nil || !strings.HasPrefix(e.Err.Error(), "payload: json: cannot unmarshal array") {
			t.Errorf("a payload of another type, policy %v: %+v, want %s", policy, e, want)
		}
	}
	if publisher.Client(t.Context()) != nil {
		t.Error("a client outside of a handler")
	}
	p, err := publisher.New(b.rdb, publisher.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle(b.dest, publisher.Typed[int](nil)); err == nil || !strings.Contains(err.Error(), "the handler is nil") {
		t.Error(err)
	}
}
