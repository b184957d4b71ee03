package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
)

// connect gives the examples a Redis of their own.
func connect() (redis.UniversalClient, func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	return rdb, func() {
		_ = rdb.Close()
		server.Close()
	}
}

// Ask before each call, and report how it ended.
func Example() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart", FailureThreshold: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	answers := []int{201, 429, 429, 201}
	for _, answer := range answers {
		permit, err := b.Allow(ctx)
		if open, ok := errors.AsType[*breaker.OpenError](err); ok {
			fmt.Println("not called:", open.State, "because of the", open.Cause)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		outcome := breaker.Success() // of the call that answered:
		if answer == 429 {
			outcome = breaker.RateLimited(0)
		}
		status, err := permit.Report(ctx, outcome)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("called:", answer, "breaker:", status.State, "failures:", status.Failures)
	}
	// Output:
	// called: 201 breaker: CLOSED failures: 0
	// called: 429 breaker: CLOSED failures: 1
	// called: 429 breaker: OPEN failures: 2
	// not called: OPEN because of the threshold
}

// The API said how long to wait: the breaker opens at once, until then.
func ExampleRateLimited() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	permit, err := b.Allow(ctx)
	if err != nil {
		log.Fatal(err)
	}
	status, err := permit.Report(ctx, breaker.RateLimited(90*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.State, status.Cause, status.Remaining.Round(time.Second))
	// Output: OPEN hint 1m30s
}

// Wait for the breaker instead of asking again and again: until its time comes,
// or somebody changes it.
func ExampleBreaker_Changed() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	if _, err := breaker.Trip(ctx, rdb, "deviantart", breaker.TripOptions{For: 50 * time.Millisecond}); err != nil {
		log.Fatal(err)
	}

	var waited bool
	for {
		changed := b.Changed() // before the question, so that nothing is missed
		permit, err := b.Allow(ctx)
		if open, ok := errors.AsType[*breaker.OpenError](err); ok {
			waited = true
			select {
			case <-changed:
			case <-time.After(open.RetryAfter):
			}
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		if !waited { // the trip was not known here yet
			_ = permit.Release(ctx)
			<-changed
			continue
		}
		fmt.Println("probe:", permit.Probe())
		status, err := permit.Report(ctx, breaker.Success())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(status.State)
		return
	}
	// Output:
	// probe: true
	// CLOSED
}

// An operator closes a destination for maintenance, looks, and opens it again.
func ExampleTrip() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()

	_, err := breaker.Trip(ctx, rdb, "deviantart", breaker.TripOptions{Reason: "maintenance", By: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	status, err := breaker.Get(ctx, rdb, "deviantart")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.State, status.Cause, status.Reason, status.TrippedBy, status.UntilReset())
	if _, err := breaker.Reset(ctx, rdb, "deviantart", "ben"); err != nil {
		log.Fatal(err)
	}
	events, err := breaker.History(ctx, rdb, "deviantart", 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range events {
		fmt.Println(e.From, "→", e.To, "by", e.By)
	}
	// Output:
	// OPEN manual maintenance ann true
	// CLOSED → OPEN by ann
	// OPEN → CLOSED by ben
}
