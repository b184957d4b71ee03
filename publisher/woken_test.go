package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// unpolled is a fixture whose worker has found its queues empty, and polls them once an hour.
func unpolled(t *testing.T, f func(context.Context, *jobs.Job) error) *fixture {
	t.Helper()
	b := newFixture(t)
	o := b.options()
	o.RetryLoopInterval = time.Hour
	b.run(o, f)
	b.enqueue()
	b.event()
	redistest.Eventually(t, "the queue is empty", func() bool { return b.queueLen() == 0 })
	return b
}

// Whatever makes a job ready wakes an idle worker: no poll is needed.
func TestIdleWorkerIsWoken(t *testing.T) {
	t.Parallel()
	succeed := func(context.Context, *jobs.Job) error { return nil }
	t.Run("enqueued", func(t *testing.T) {
		t.Parallel()
		b := unpolled(t, succeed)
		for range 10 {
			b.enqueue()
			b.want(publisher.Completed)
		}
		for range b.enqueueMany(300) {
			b.want(publisher.Completed)
		}
	})
	t.Run("due", func(t *testing.T) {
		t.Parallel()
		b := unpolled(t, succeed)
		for _, d := range []time.Duration{900 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond} {
			b.enqueue(jobs.Delay(d))
		}
		for range 3 {
			e := b.want(publisher.Completed)
			if early := e.Job.AvailableAt.Sub(b.redisNow()); early > 0 {
				t.Errorf("a job was published %s before its time", early)
			}
		}
	})
	t.Run("due beside held jobs", func(t *testing.T) {
		t.Parallel()
		b := unpolled(t, succeed)
		if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, b.dest+"/alice", breaker.TripOptions{For: time.Hour}); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, "a job is held", func() bool {
			b.enqueue(jobs.Key("alice"))
			return b.rdb.ZCard(t.Context(), store.HeldKey(b.queue())).Val() > 0
		})
		var due []*jobs.Job
		for _, d := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond} {
			due = append(due, b.enqueue(jobs.Delay(d)))
		}
		for _, job := range due {
			if e := b.result(job.ID); e.Result != publisher.Completed {
				t.Errorf("a due job: %s", e.Result)
			}
		}
	})
	t.Run("retried", func(t *testing.T) {
		t.Parallel()
		failed := false
		b := newFixture(t)
		o := b.options()
		o.RetryLoopInterval = time.Hour
		b.run(o, func(context.Context, *jobs.Job) error {
			if !failed {
				failed = true
				return errors.New("boom")
			}
			return nil
		})
		id := b.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second})).ID
		b.waitStatus(id, jobs.Completed)
	})
	t.Run("its destination resumed", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t)
		o := b.options()
		o.RetryLoopInterval = time.Hour
		// With a rate the worker sleeps while the destination is paused.
		b.run(o, succeed, publisher.Breaker(breaker.Options{Rate: breaker.Rates{{Calls: 1000, Per: time.Second}}}))
		b.enqueue()
		b.event()
		if _, err := b.client.PauseDestination(t.Context(), b.dest); err != nil {
			t.Fatal(err)
		}
		b.enqueue()
		redistest.Eventually(t, "the worker has looked at the job and sleeps", func() bool { return b.queueLen() == 1 })
		if _, err := b.client.ResumeDestination(t.Context(), b.dest); err != nil {
			t.Fatal(err)
		}
		b.want(publisher.Completed)
	})
	t.Run("resumed, after a parent, and expired", func(t *testing.T) {
		t.Parallel()
		b := unpolled(t, succeed)
		paused := b.enqueue(jobs.Delay(time.Hour))
		expiring := b.enqueue(jobs.After(paused.ID), jobs.TTL(3*time.Second))
		child := b.enqueue(jobs.After(paused.ID))
		if err := b.client.Pause(t.Context(), paused.ID); err != nil {
			t.Fatal(err)
		}
		b.waitStatus(expiring.ID, jobs.Expired)
		if err := b.client.Resume(t.Context(), paused.ID); err != nil {
			t.Fatal(err)
		}
		b.makeDue(paused.ID)
		b.result(paused.ID)
		b.result(child.ID)
	})
}

// An idle worker costs hardly more with many destinations than with one: commands and connections of Redis, and
// goroutines that look for changed credentials where none can change.
func TestIdleDestinationsCostNothing(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const many = 300
	perSecond := func(destinations int, most int64) int64 {
		s := redistest.Start(t)
		rdb := s.Client(t)
		p, err := publisher.New(rdb, publisher.Options{Logger: redistest.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range destinations {
			handler, err := httpdest.New(httpdest.Options{URL: "http://127.0.0.1:9/", AuthToken: "secret-token"})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Handle(fmt.Sprintf("d%d", i), handler); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		<-p.Started()
		cost := int64(math.MaxInt64)
		for range 10 { // in the first windows is what a worker does at its start
			s.ResetStats(t)
			began := time.Now()
			<-time.After(2 * time.Second)
			total := int64(0)
			for _, n := range s.CommandStats(t) {
				total += n
			}
			if cost = min(cost, int64(float64(total)/time.Since(began).Seconds())); cost <= most {
				break
			}
		}
		clients, err := rdb.ClientList(t.Context()).Result()
		if n := strings.Count(clients, "\n"); err != nil || n > 15 {
			t.Errorf("%d connections with %d destinations (%v), want at most 15", n, destinations, err)
		}
		redistest.Eventually(t, "no goroutine looks for changed credentials", func() bool {
			var stacks strings.Builder
			err := pprof.Lookup("goroutine").WriteTo(&stacks, 2)
			return err == nil && strings.Count(stacks.String(), "publisher.(*destination).watchCredentials.func1(") < many/10
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return cost
	}
	one := perSecond(1, 30)
	all := perSecond(many, one+60)
	t.Logf("commands a second of an idle worker: %d with 1 destination, %d with %d", one, all, many)
	if one > 30 || all > one+60 {
		t.Errorf("%d commands a second with 1 destination, %d with %d", one, all, many)
	}
}
