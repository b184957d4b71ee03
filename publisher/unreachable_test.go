package publisher_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// One worker that cannot reach the API, beside one that can: no job fails, each is
// published once, and the one that cannot makes few tries.
func TestWorkerThatCannotReachTheAPIFailsNoJob(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	const n = 600
	var mu sync.Mutex
	published := map[string]int{}
	a := fakehttp.Record(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		published[r.Header.Get("Idempotency-Key")]++
		mu.Unlock()
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.Context().Done():
		}
	})
	log := &loggingtest.Buffer{}
	sick := b.options()
	sick.Logger = slog.New(slog.NewTextHandler(log, nil))
	var tries atomic.Int64
	sick.Observe(publisher.Observer{OnCall: func(c publisher.Call) {
		tries.Add(1)
		if c.Outcome != publisher.OutcomeUnreachable {
			t.Errorf("a call of the worker that cannot reach the API: %s", c.Outcome)
		}
	}})
	healthy, unreachable := newHTTP(t, httpdest.Options{URL: a.URL}), newHTTP(t, httpdest.Options{URL: fakehttp.ClosedPort(t)})
	b.enqueueMany(n)
	b.run(sick, unreachable.Publish, publisher.Concurrency(10))
	redistest.Eventually(t, "the worker notices", func() bool { return len(log.Lines("calls do not leave")) == 1 })
	b.run(b.options(), healthy.Publish, publisher.Concurrency(4))

	deferred := 0
	for done := 0; done < n; {
		switch e := b.event(); {
		case e.Result == publisher.Completed:
			done++
		case e.Result == publisher.Rescheduled && e.Reason == publisher.ReasonUnreachable:
			deferred++
		default:
			t.Fatalf("job %s: %s (%s), %v", e.Job.ID, e.Result, e.Reason, e.Err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for id, times := range published {
		if times != 1 {
			t.Errorf("job %s was published %d times", id, times)
		}
	}
	if len(published) != n {
		t.Errorf("%d of %d jobs were published", len(published), n)
	}
	// The calls that were in flight at first, then one after 1, 2, 4 … seconds.
	if got := tries.Load(); got < 1 || got > 15 || int(got) != deferred {
		t.Errorf("%d tries, %d jobs deferred; want the same, few", got, deferred)
	}
	if s := b.breaker(); s.State != breaker.Closed || s.Failures != 0 {
		t.Errorf("the breaker heard of calls that never left: %+v", s)
	}
	if begun := log.Lines("calls do not leave"); len(begun) != 1 || !strings.Contains(begun[0], "connection refused") {
		t.Errorf("the log: %q", begun)
	}
}

// A worker that is alone waits, says so, tries one job at a time, and goes on with all
// of them when a call leaves. The job has made no attempt and its reschedules are counted.
func TestUnreachableJobWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := fakehttp.Record(t, nil)
	var broken atomic.Bool
	var dials atomic.Int32
	seen := make(chan struct{}) // what became of the first dial
	broken.Store(true)
	h := newHTTP(t, httpdest.Options{URL: a.URL, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				select {
				case <-seen:
				case <-ctx.Done():
				}
			}
			if broken.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.EMFILE}
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}})
	log := &loggingtest.Buffer{}
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	p, err := publisher.New(b.rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle(b.dest, h, publisher.Concurrency(5)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	first := b.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second, BackoffMultiplier: 1, MaxDelay: time.Second}))
	e := b.result(first.ID)
	if e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonUnreachable || e.Outcome != publisher.OutcomeUnreachable {
		t.Fatalf("event %+v", e)
	}
	if wait := time.Until(e.AvailableAt); wait > 2*time.Second {
		t.Errorf("available in %s, want about a second: another worker may reach it", wait)
	}
	got := b.get(first.ID)
	if got.Attempt != 0 || got.RescheduleCount != 1 || !strings.Contains(got.LastError, "too many open files") {
		t.Errorf("job %s: attempt %d, reschedules %d, last error %q", got.Status, got.Attempt, got.RescheduleCount, got.LastError)
	}
	s := p.Status()[0]
	if s.State != publisher.StateUnreachable || !strings.Contains(s.Reason, "too many open files") || s.Until.IsZero() {
		t.Errorf("status %+v", s)
	}
	var workers jobs.Workers
	redistest.Eventually(t, "the worker says so to others", func() bool {
		workers, err = b.client.Workers(t.Context())
		return err == nil && len(workers) > 0 && workers[0].Unreachable[b.dest].Problem != ""
	})

	broken.Store(false)
	close(seen)
	const more = 50
	b.enqueueMany(more)
	for done := 0; done < more+1; {
		if e := b.event(); e.Result == publisher.Completed {
			done++
		}
	}
	if s := p.Status()[0]; s.State != publisher.StateFetching || s.Reason != "" {
		t.Errorf("afterwards: %+v", s)
	}
	if begun, over := log.Lines("calls do not leave"), log.Lines("calls leave"); len(begun) != 1 || len(over) != 1 {
		t.Errorf("the log: %q, %q", begun, over)
	}
}

// A job is deferred max_reschedules times at most; 100 times where that is not set, of which
// reschedules of other causes are none.
func TestUnreachableJobFailsInTheEnd(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	h := newHTTP(t, httpdest.Options{URL: fakehttp.ClosedPort(t)})
	set := b.enqueue(jobs.MaxReschedules(0))
	often, tooOften := b.enqueue(), b.enqueue()
	for id, n := range map[string]int{often.ID: 99, tooOften.ID: 100} {
		err := b.rdb.HSet(t.Context(), store.TaskKey(b.queue(), id), store.FieldUnreachable, n, store.FieldReschedules, 150).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.run(b.options(), h.Publish, publisher.Concurrency(3))
	for range 3 {
		e := b.event()
		got := b.get(e.Job.ID)
		switch e.Job.ID {
		case set.ID:
			if got.Status != jobs.Failed || got.LastError != "max reschedules (0) exceeded" {
				t.Errorf("max_reschedules 0: %s, %q", got.Status, got.LastError)
			}
		case often.ID:
			if got.Status != jobs.Pending || got.RescheduleCount != 151 || got.Reason != "its worker did not reach "+b.dest {
				t.Errorf("the 100th time: %s, %d reschedules, %q", got.Status, got.RescheduleCount, got.Reason)
			}
		case tooOften.ID:
			if got.Status != jobs.Failed || got.RescheduleCount != 150 || got.LastError != "max reschedules (100) exceeded" {
				t.Errorf("the 101st time: %s, %d reschedules, %q", got.Status, got.RescheduleCount, got.LastError)
			}
		}
	}
}
