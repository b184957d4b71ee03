package publisher_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A trip holds every worker, also one whose breaker is disabled: no call is made before
// its time is over, and then all jobs leave.
func TestTripHoldsAWorkerWhoseBreakerIsDisabled(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	const n, held = 60, 700 * time.Millisecond
	var early, calls atomic.Int32
	var until atomic.Pointer[time.Time]
	publish := func(context.Context, *jobs.Job) error {
		calls.Add(1)
		if at := until.Load(); at == nil || b.redisNow().Before(*at) {
			early.Add(1)
		}
		return nil
	}
	seen := make(chan breaker.Event, 100)
	for _, disabled := range []bool{true, false} {
		b.run(b.options(), publish, publisher.Concurrency(4), publisher.Breaker(breaker.Options{
			Disabled: disabled, OnEvent: func(e breaker.Event) { seen <- e },
		}))
	}
	first := b.enqueue() // both workers are there
	b.result(first.ID)
	early.Store(0)
	s, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, b.dest, breaker.TripOptions{For: held})
	if err != nil {
		t.Fatal(err)
	}
	until.Store(&s.OpenUntilRedis)
	for know := 0; know < 2; {
		if e := signal(t, "both workers know of the trip", seen); e.To == breaker.Open {
			know++
		}
	}
	b.enqueueMany(n)
	for done := 0; done < n; {
		// A fetch that was under way when a worker heard of the trip may take jobs.
		switch e := signal(t, "a job", b.events); {
		case e.Result == publisher.Completed:
			done++
		case e.Result != publisher.Rescheduled || e.Called:
			t.Fatalf("job %s: %s, called: %t, %v", e.Job.ID, e.Result, e.Called, e.Err)
		}
	}
	if early.Load() != 0 || calls.Load() != n+1 {
		t.Errorf("%d calls while it was tripped, %d in all; want 0 and %d", early.Load(), calls.Load(), n+1)
	}
	read, err := breaker.DefaultNamespace.ReadOne(t.Context(), b.rdb, breaker.Query{Incidents: breaker.All}, b.dest)
	incidents := read.Incidents
	if err != nil || len(incidents) != 1 || incidents[0].Wasted != 0 {
		t.Errorf("incidents %+v, %v; want one without a wasted call", incidents, err)
	}
}
