package publisher_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// lockedLog collects a log that several goroutines write.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Whoever observes a publisher and panics changes nothing of what becomes of its jobs.
func TestPanicsOfObserversChangeNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	log := &lockedLog{}
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	tell := o.OnJob
	o.OnJob = func(e publisher.JobEvent) { tell(e); panic("of OnJob") }
	o.OnCall = func(publisher.Call) { panic("of OnCall") }
	o.OnAnswer = func(publisher.Answer) { panic("of OnAnswer") }
	o.Trace = func(ctx context.Context, _ *jobs.Job) (context.Context, func(publisher.JobEvent)) {
		return ctx, func(publisher.JobEvent) { panic("of Trace") }
	}
	r := breaker.Options{Cooldown: 50 * time.Millisecond, FailureThreshold: 1, OnEvent: func(breaker.Event) { panic("of OnEvent") }}
	limited := make(chan struct{}, 1)
	limited <- struct{}{}
	stop := b.run(o, func(context.Context, *jobs.Job) error {
		select {
		case <-limited:
			return jobs.RateLimited(0)
		default:
			return nil
		}
	}, publisher.Breaker(r))
	first := b.enqueue()
	if e := b.result(first.ID); e.Result != publisher.Rescheduled {
		t.Errorf("the first: %+v", e)
	}
	if e := b.result(first.ID); e.Result != publisher.Completed {
		t.Errorf("the first again: %+v", e)
	}
	second := b.enqueue()
	if e := b.result(second.ID); e.Result != publisher.Completed {
		t.Errorf("the second: %+v", e)
	}
	stop()
	for _, option := range []string{"OnJob", "OnCall", "OnAnswer", "Trace", "OnEvent"} {
		if n := strings.Count(log.String(), "panicked; that is told once\" destination="+b.dest+" option="+option+" "); n != 1 {
			t.Errorf("the panics of %s were told %d times\n%s", option, n, log)
		}
	}
}

// What is told of a call, probes among them, wherever its handler put the answer.
func TestCallsAreTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := make(chan publisher.Call, 10)
	o := b.options()
	o.OnCall = func(c publisher.Call) { calls <- c }
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
		got := signal(t, "a call is told", calls)
		if got.Took <= 0 || got.Took > 10*time.Second {
			t.Errorf("call %d took %s", i, got.Took)
		}
		got.Took = 0
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("call %d (-want +got):\n%s", i, diff)
		}
	}
}
