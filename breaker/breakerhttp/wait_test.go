package breakerhttp_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// 60 callers of three instances wait out an incident: one probes, and the others
// follow as the slow start lets them.
func TestWaitersLeavePaced(t *testing.T) {
	t.Parallel()
	fake, url := api(t, fakeapi.Options{Latency: 20 * time.Millisecond})
	rdb := redistest.Shared(t).Client(t)
	o := breaker.Options{Destination: redistest.Name(t, "paced"), MaxInFlight: 20}
	var fleet []instance
	for range 3 {
		fleet = append(fleet, join(t, rdb, o, breakerhttp.Wait(time.Minute)))
	}
	fake.Queue(fakeapi.Answer{Status: 429, Header: http.Header{"Retry-After": {"2"}}})
	fleet[0].expect(t, url, 429)
	for _, i := range fleet {
		awaitView(t, i.breaker, "open", inState(breaker.Open))
	}
	var group sync.WaitGroup
	for n := range 60 {
		group.Go(func() {
			if status, err := fleet[n%3].call(t.Context(), url); err != nil || status != 201 {
				t.Errorf("call: %d, %v", status, err)
			}
		})
	}
	group.Wait()
	receipts := fake.Receipts()[1:]
	if len(receipts) != 60 {
		t.Fatalf("%d calls arrived; want 60", len(receipts))
	}
	// The probe alone, then two rounds of slow start: 1; 2; and from then on 4 and more.
	for n, most := range []int{1, 1, 2, 2, 4, 4, 4, 4} {
		if got := receipts[n].InFlight; got > most {
			t.Errorf("%d calls in flight at call %d after the cooldown; want %d at most", got, n+1, most)
		}
	}
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	_, url := api(t, fakeapi.Options{})
	for _, test := range []struct {
		name    string
		trip    time.Duration // 0: until reset
		wait    time.Duration
		context time.Duration
		soon    bool // at once, for it would be in vain
		is      error
	}{
		{name: "open for longer", trip: time.Hour, wait: 10 * time.Minute, soon: true, is: breaker.ErrOpen},
		{name: "open for longer than the context lasts", trip: time.Hour, context: 10 * time.Minute, soon: true, is: breaker.ErrOpen},
		{name: "open until it is reset", wait: 10 * time.Minute, soon: true, is: breaker.ErrOpen},
		{name: "the context ends", trip: time.Hour, is: context.Canceled},
		{name: "open for less", trip: 50 * time.Millisecond, wait: time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Shared(t).Client(t)
			i := join(t, rdb, breaker.Options{Destination: redistest.Name(t, "ends")}, breakerhttp.Wait(test.wait))
			if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, i.breaker.Name(), breaker.TripOptions{For: test.trip}); err != nil {
				t.Fatal(err)
			}
			awaitView(t, i.breaker, "tripped", func(v breaker.View) bool { return v.State != breaker.Closed })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.context > 0 {
				ctx, cancel = context.WithTimeout(ctx, test.context)
				defer cancel()
			}
			if errors.Is(test.is, context.Canceled) {
				time.AfterFunc(50*time.Millisecond, cancel)
			}
			_, err := i.call(ctx, url)
			if test.is == nil && err != nil || !errors.Is(err, test.is) {
				t.Fatalf("call: %v; want %v", err, test.is)
			}
			if test.is == nil {
				return
			}
			if !errors.Is(err, breakerhttp.ErrNotSent) || !errors.Is(err, breaker.ErrOpen) {
				t.Errorf("call: %v; want it to say that it was not sent, and why", err)
			}
		})
	}
}

// Patience ends while another call probes, for the first in line and for those
// behind it.
func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	_, url := api(t, fakeapi.Options{})
	rdb := redistest.Shared(t).Client(t)
	i := join(t, rdb, breaker.Options{Destination: redistest.Name(t, "patience")}, breakerhttp.Wait(100*time.Millisecond))
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, i.breaker.Name(), breaker.TripOptions{For: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, i.breaker, "half open", inState(breaker.HalfOpen))
	probe, err := i.breaker.Allow(t.Context())
	if err != nil || !probe.Probe() {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			started := time.Now()
			open := i.refusal(t, url)
			if waited := time.Since(started); open.State != breaker.HalfOpen || waited < 100*time.Millisecond {
				t.Errorf("refused in %s after %s", open.State, waited)
			}
		})
	}
	group.Wait()
	if err := probe.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Who waits for a key holds up those behind it under the same key, each as long as
// its own context lasts, and nobody else.
func TestKeysWaitApart(t *testing.T) {
	t.Parallel()
	_, url := api(t, fakeapi.Options{})
	rdb := redistest.Shared(t).Client(t)
	i := join(t, rdb, breaker.Options{Destination: redistest.Name(t, "apart")}, breakerhttp.Wait(0),
		breakerhttp.Key(func(req *http.Request) string { return req.URL.Path[1:] }))
	alice := i.breaker.Key("alice")
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, alice.Name(), breaker.TripOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, alice, "tripped", inState(breaker.Open))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const waiting = 3
	ended := make(chan error, waiting)
	for range waiting {
		go func() {
			_, err := i.call(ctx, url+"/alice")
			ended <- err
		}()
	}
	for range 20 {
		i.expect(t, url+"/bob", 201)
	}
	select {
	case err := <-ended:
		t.Errorf("a call of alice's ended: %v", err)
	default:
	}
	cancel()
	for range waiting {
		err := <-ended
		if !errors.Is(err, breakerhttp.ErrNotSent) || !errors.Is(err, context.Canceled) {
			t.Errorf("call: %v", err)
		}
	}
}

// A reset lets those go at once who wait for a breaker that is open until then.
func TestResetEndsWait(t *testing.T) {
	t.Parallel()
	fake, url := api(t, fakeapi.Options{})
	rdb := redistest.Shared(t).Client(t)
	i := join(t, rdb, breaker.Options{Destination: redistest.Name(t, "reset")}, breakerhttp.Wait(0))
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, i.breaker.Name(), breaker.TripOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, i.breaker, "tripped", inState(breaker.Open))
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { i.expect(t, url, 201) })
	}
	if _, err := breaker.DefaultNamespace.Reset(t.Context(), rdb, i.breaker.Name(), ""); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if calls := fake.Stats().Calls; calls != 4 {
		t.Errorf("%d calls arrived", calls)
	}
}

// With a configured rate, waiting paces the calls of all instances together.
func TestRateIsWaitedFor(t *testing.T) {
	t.Parallel()
	fake, url := api(t, fakeapi.Options{})
	rdb := redistest.Shared(t).Client(t)
	o := breaker.Options{Destination: redistest.Name(t, "rate"), Rate: breaker.Rates{{Calls: 20, Per: time.Second}}}
	one, other := join(t, rdb, o, breakerhttp.Wait(time.Minute)), join(t, rdb, o, breakerhttp.Wait(time.Minute))
	var group sync.WaitGroup
	for n := range 10 {
		group.Go(func() { []instance{one, other}[n%2].expect(t, url, 201) })
	}
	group.Wait()
	receipts := fake.Receipts()
	// 9 intervals of 50 ms lie between the first and the last; the permits are spaced,
	// the calls' own way to the API is not.
	if took := receipts[9].At.Sub(receipts[0].At); took < 400*time.Millisecond {
		t.Errorf("10 calls at 20 a second arrived within %s", took)
	}

	o = breaker.Options{Destination: redistest.Name(t, "hourly"), Rate: breaker.Rates{{Calls: 1, Per: time.Hour}}}
	hourly := join(t, rdb, o, breakerhttp.Wait(time.Minute))
	hourly.expect(t, url, 201)
	if open := hourly.refusal(t, url); open.State != breaker.Closed || open.Cause != breaker.CauseRate {
		t.Errorf("refused with %+v", open)
	}
}
