package e2e

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// propagation is how long after an opening a call may still arrive that another
// process had begun: it had been told in less than a millisecond, but has to be
// scheduled on a busy machine.
func propagation() time.Duration { return 60*time.Millisecond + delays() }

// longestDelay is how late a timer of this process has been at most.
var longestDelay atomic.Int64

// delays is how long a few steps may be held up on a machine as busy as this one has been.
func delays() time.Duration { return 5 * time.Duration(longestDelay.Load()) }

// watchDelays keeps longestDelay until ctx ends.
func watchDelays(ctx context.Context) {
	const every = 5 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ctx.Err() == nil; {
		<-tick.C
		late := time.Since(last) - every
		longestDelay.Store(max(longestDelay.Load(), int64(late)))
		last = time.Now()
	}
}

// The main job: three processes, one breaker.
func TestFleetSharesOneBreaker(t *testing.T) {
	t.Parallel()
	const n, workers, concurrency = 200, 3, 10
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 60, Window: 2 * time.Second},
		Latency: 20 * time.Millisecond,
	})
	for range workers {
		f.start()
	}
	ids := f.enqueue(n)
	f.waitAccepted(n, 60*time.Second)
	f.waitCompleted(ids, 10*time.Second)
	f.exactlyOnce(ids)
	redistest.Await(t, 2*time.Minute, "closed at the end", func() bool { return f.state() == breaker.Closed })

	receipts := f.api.Receipts()
	history := f.history()
	openings, probes, wasted := 0, 0, 0
	for i, e := range history {
		end := time.Now()
		if i+1 < len(history) {
			end = history[i+1].At
		}
		var calls, late int
		for _, r := range receipts {
			if r.At.Before(e.At) || !r.At.Before(end) {
				continue
			}
			calls++
			if r.At.After(e.At.Add(propagation())) {
				late++
			}
		}
		switch e.To {
		case breaker.Open:
			openings++
			if late > 0 {
				t.Errorf("%d calls arrived more than %s after the opening at %s and before %s", late, propagation(), e.At, end)
			}
			if end.Before(e.OpenUntil) {
				t.Errorf("the cooldown was to last until %s and ended at %s", e.OpenUntil, end)
			}
			if i+1 < len(history) && history[i+1].To != breaker.HalfOpen {
				t.Errorf("OPEN was followed by %s", history[i+1].To)
			}
		case breaker.HalfOpen:
			probes++
			if calls > 1 {
				t.Errorf("%d calls between HALF_OPEN at %s and the next transition at %s; one probe is allowed", calls, e.At, end)
			}
		}
	}
	for _, r := range receipts {
		if r.Status == 429 {
			wasted++
		}
	}
	if openings == 0 || history[len(history)-1].To != breaker.Closed {
		t.Errorf("history has %d openings and ends with %v", openings, history[len(history)-1])
	}
	if most := openings * workers * concurrency; wasted > most {
		t.Errorf("%d calls were refused in %d openings", wasted, openings)
	}
	rescheduled := 0
	for _, id := range ids {
		j, err := f.client.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		rescheduled += j.RescheduleCount
		if j.Attempt != 0 {
			t.Errorf("job %s has made %d retries; a rate limit costs none", id, j.Attempt)
		}
	}
	t.Logf("%d jobs, %d calls, %d refused, %d openings, %d probes, %d reschedules", n, len(receipts), wasted, openings, probes, rescheduled)
}
