package breaker_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Every instance hears of every transition, whoever caused it.
func ExampleOptions_onEvent() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	told := make(chan breaker.Event)
	b, err := breaker.New(ctx, rdb, breaker.Options{
		Destination: "deviantart",
		OnEvent:     func(e breaker.Event) { told <- e },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	// Somewhere else:
	if _, err := breaker.DefaultNamespace.Trip(ctx, rdb, "deviantart", breaker.TripOptions{Reason: "maintenance", By: "ann"}); err != nil {
		log.Fatal(err)
	}
	if _, err := breaker.DefaultNamespace.Reset(ctx, rdb, "deviantart", "ben"); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		e := <-told
		fmt.Println(e.Name, e.From, "→", e.To, "by", e.By, e.Cause, e.Reason)
	}
	// Output:
	// deviantart CLOSED → OPEN by ann manual maintenance
	// deviantart OPEN → CLOSED by ben reset
}

// An API that answers 429 by mistake: the breaker is kept closed for an hour.
func ExampleNamespace_ForceClosed() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	_, err := breaker.DefaultNamespace.ForceClosed(ctx, rdb, "deviantart", breaker.TripOptions{For: time.Hour, Reason: "their bug", By: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart", FailureThreshold: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	for range 3 {
		err := b.Do(ctx, func(context.Context) error { return &breaker.RateLimitedError{} })
		fmt.Println(err, b.View().State)
	}
	status, err := breaker.DefaultNamespace.Get(ctx, rdb, "deviantart")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("forced", status.Forced, "by", status.TrippedBy+":", status.Reason)
	// Output:
	// rate limited CLOSED
	// rate limited CLOSED
	// rate limited CLOSED
	// forced closed by ann: their bug
}

// A breaker that was tripped until it is reset, and the reset.
func ExampleNamespace_ReadOne_keys() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	status, err := breaker.DefaultNamespace.Trip(ctx, rdb, "deviantart/alice", breaker.TripOptions{Reason: "token revoked"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Name, status.State, "until it is reset:", status.UntilReset)

	read, err := breaker.DefaultNamespace.ReadOne(ctx, rdb, breaker.Query{Keys: true}, "deviantart")
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range read.Breakers() {
		fmt.Println("-", s.Name, s.State)
	}
	status, err = breaker.DefaultNamespace.Reset(ctx, rdb, "deviantart/alice", "ann")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Name, status.State)
	// Output:
	// deviantart/alice OPEN until it is reset: true
	// - deviantart CLOSED
	// - deviantart/alice OPEN
	// deviantart/alice CLOSED
}

// What an incident was, and what it has cost.
func ExampleNamespace_ReadOne_incidents() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	b, err := breaker.New(ctx, rdb, breaker.Options{
		Destination: "deviantart", FailureThreshold: 2, Cooldown: time.Millisecond, Instance: "worker-1",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	answers := []error{&breaker.RateLimitedError{}, &breaker.RateLimitedError{}, &breaker.RateLimitedError{}, nil}
	for _, answer := range answers {
		for called := false; !called; {
			_ = b.Do(ctx, func(context.Context) error { called = true; return answer })
		}
	}
	read, err := breaker.DefaultNamespace.ReadOne(ctx, rdb, breaker.Query{Incidents: 10}, "deviantart")
	if err != nil {
		log.Fatal(err)
	}
	for _, i := range read.Incidents {
		fmt.Printf("opened by the %s, closed by a %s\n", i.Cause, i.EndedBy)
		fmt.Printf("%d calls answered 429, %d of them probes; instances: %v\n", i.Wasted, i.Probes, i.Instances)
		fmt.Println("over:", !i.Ended.IsZero())
	}
	// Output:
	// opened by the threshold, closed by a success
	// 3 calls answered 429, 1 of them probes; instances: [worker-1]
	// over: true
}
