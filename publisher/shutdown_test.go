package publisher_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

func TestShutdownWhileTheGateWaits(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	if _, err := breaker.DefaultNamespace.Trip(context.Background(), b.rdb, b.dest, breaker.TripOptions{Reason: "test", By: "test"}); err != nil {
		t.Fatal(err)
	}
	job := b.enqueue()
	o := b.options()
	o.ShutdownTimeout = time.Hour
	stop := b.run(o, func(context.Context, *jobs.Job) error {
		t.Error("called while the breaker was open")
		return nil
	})
	// It serves the destination once it has registered itself.
	redistest.Eventually(t, "registered", func() bool {
		return b.rdb.HExists(context.Background(), store.DefaultNamespace.DestinationsKey(), b.dest).Val()
	})
	stop() // which waits for a minute
	if got := b.get(job.ID); got.Status != jobs.Pending || got.RescheduleCount != 0 {
		t.Errorf("the job is %s with %d reschedules; it should not have been touched", got.Status, got.RescheduleCount)
	}
}

func TestShutdownLetsCallsFinish(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	job, next := b.enqueue(), b.enqueue()
	inCall, goOn := make(chan struct{}), make(chan struct{})
	o := b.options()
	o.ShutdownTimeout = time.Hour
	stop := b.run(o, func(_ context.Context, j *jobs.Job) error {
		if j.ID != job.ID {
			t.Error("a job was started after the shutdown had begun")
		}
		close(inCall)
		<-goOn
		return nil
	}, publisher.Concurrency(1))
	<-inCall
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
		t.Error("it stopped before the call had ended")
	case <-time.After(300 * time.Millisecond):
	}
	close(goOn)
	<-stopped
	if got := b.get(job.ID); got.Status != jobs.Completed {
		t.Errorf("the job in flight is %s", got.Status)
	}
	if got := b.get(next.ID); got.Status != jobs.Pending {
		t.Errorf("the next job is %s", got.Status)
	}
}

// The Publisher that replaces another one in the process counts the calls that go on there in the destination's
// concurrency, and starts the next job when one of them ends.
func TestConcurrencyOfReplacedPublishers(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	calls, ended := make(chan chan struct{}, 10), make(chan struct{}, 10)
	call := func(context.Context, *jobs.Job) error {
		goOn := make(chan struct{})
		calls <- goOn
		<-goOn
		ended <- struct{}{}
		return nil
	}
	for range 6 {
		b.enqueue()
	}
	o := b.options()
	o.ShutdownTimeout = time.Hour
	var replaced sync.WaitGroup
	defer replaced.Wait()
	var running []chan struct{}
	for range 3 { // publishers
		p, err := publisher.New(b.rdb, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Handle(b.dest, publisher.Func(call), publisher.Concurrency(2)); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		replaced.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		<-p.Started()
		if len(running) == 0 {
			running = append(running, signal(t, "first call", calls), signal(t, "second call", calls))
		}
		select {
		case <-calls:
			t.Fatal("a third call was made, where two go on still")
		case <-time.After(300 * time.Millisecond):
		}
		close(running[0])
		signal(t, "end of a call", ended)
		running = append(running[1:], signal(t, "next call", calls))
		stop()
		o.Before = p
	}
	for _, c := range running {
		close(c)
	}
}

// A call that is cut at the end of the shutdown goes back to the head of its
// queue, uncounted, and another worker takes it at once.
func TestShutdownCutsSlowCalls(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	job, later := b.enqueue(), b.enqueue()
	inCall := make(chan struct{})
	o := b.options()
	o.ShutdownTimeout = 300 * time.Millisecond
	stop := b.run(o, func(ctx context.Context, _ *jobs.Job) error {
		close(inCall)
		<-ctx.Done()
		return ctx.Err()
	}, publisher.Concurrency(1), publisher.Timeout(time.Hour))
	<-inCall
	started := time.Now()
	stop()
	if took := time.Since(started); took < 250*time.Millisecond || took > 30*time.Second {
		t.Errorf("stopping took %s, want the 300 ms of ShutdownTimeout and little more", took)
	}
	if e := b.event(); e.Result != publisher.Requeued {
		t.Fatalf("event %+v", e)
	}
	got := b.get(job.ID)
	if got.Status != jobs.Pending || got.RescheduleCount != 0 || got.Attempt != 0 || got.LastError != "" {
		t.Errorf("cut job: %+v", got)
	}
	var order []string
	b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
		order = append(order, j.ID)
		return nil
	}, publisher.Concurrency(1))
	b.event()
	b.event()
	if len(order) != 2 || order[0] != job.ID || order[1] != later.ID {
		t.Errorf("order %v, want the cut job first", order)
	}
}

// A job whose handler does not return is pending again when the worker has stopped, also if its
// goroutine has run other jobs before.
func TestShutdownPutsBackWhatDoesNotReturn(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	o := b.options()
	o.ShutdownTimeout = 50 * time.Millisecond
	for range 5 {
		b.enqueue()
	}
	deaf := b.enqueue()
	inCall, goOn := make(chan struct{}), make(chan struct{})
	defer close(goOn)
	stop := b.run(o, func(_ context.Context, j *jobs.Job) error {
		if j.ID == deaf.ID {
			close(inCall)
			<-goOn
		}
		return nil
	}, publisher.Concurrency(1))
	<-inCall
	stop()
	if got := b.get(deaf.ID); got.Status != jobs.Pending || got.RescheduleCount != 0 || got.Crashes != 0 {
		t.Errorf("after the stop the job is %s, rescheduled %d times, %d crashes", got.Status, got.RescheduleCount, got.Crashes)
	}
}

// A Server that stops while it holds the probe's permit gives it back, so that
// another one need not wait for the lease to end.
func TestShutdownGivesTheProbeBack(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ctx := context.Background()
	trip := func() {
		if _, err := breaker.DefaultNamespace.Trip(ctx, b.rdb, b.dest, breaker.TripOptions{For: 50 * time.Millisecond, By: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	slow := publisher.Breaker(breaker.Options{Cooldown: time.Minute, ProbeTimeout: time.Minute})
	var calls atomic.Int32
	inProbe := make(chan struct{})
	o := b.options()
	o.ShutdownTimeout = 50 * time.Millisecond
	trip()
	job := b.enqueue()
	stop := b.run(o, func(ctx context.Context, _ *jobs.Job) error {
		calls.Add(1)
		close(inProbe)
		<-ctx.Done()
		return ctx.Err()
	}, slow)
	<-inProbe
	if s := b.breaker(); s.State != breaker.HalfOpen || s.ProbeBy == "" {
		t.Fatalf("while it probes the breaker is %s, probe by %q", s.State, s.ProbeBy)
	}
	stop()
	if s := b.breaker(); s.ProbeBy != "" {
		t.Errorf("after the stop the probe is still held by %q until %s", s.ProbeBy, s.ProbeUntil)
	}
	b.run(b.options(), func(context.Context, *jobs.Job) error { return nil }, slow)
	started := time.Now()
	if e := b.result(job.ID); e.Result == publisher.Requeued {
		e = b.result(job.ID)
		if e.Result != publisher.Completed {
			t.Fatalf("event %+v", e)
		}
	}
	if took := time.Since(started); took > 40*time.Second {
		t.Errorf("the next probe came after %s", took)
	}
	redistest.Eventually(t, "closed", func() bool { return b.breaker().State == breaker.Closed })
}
