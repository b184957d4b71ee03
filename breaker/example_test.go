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
	if _, err := breaker.DefaultNamespace.Trip(ctx, rdb, "deviantart", breaker.TripOptions{For: 50 * time.Millisecond}); err != nil {
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
		if !waited && !permit.Probe() { // the trip was not known here yet
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
func ExampleNamespace_Trip() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()

	_, err := breaker.DefaultNamespace.Trip(ctx, rdb, "deviantart", breaker.TripOptions{Reason: "maintenance", By: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	status, err := breaker.DefaultNamespace.Get(ctx, rdb, "deviantart")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.State, status.Cause, status.Reason, status.TrippedBy, status.UntilReset)
	if _, err := breaker.DefaultNamespace.Reset(ctx, rdb, "deviantart", "ben"); err != nil {
		log.Fatal(err)
	}
	read, err := breaker.DefaultNamespace.ReadOne(ctx, rdb, breaker.Query{History: 10}, "deviantart")
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range read.History {
		fmt.Println(e.From, "→", e.To, "by", e.By)
	}
	// Output:
	// OPEN manual maintenance ann true
	// CLOSED → OPEN by ann
	// OPEN → CLOSED by ben
}

// The breaker calls a function, if it may, and judges its error.
func ExampleBreaker_Do() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	publish := func(context.Context) error { // here it calls the API, which answers 429
		return &breaker.RateLimitedError{RetryAfter: 30 * time.Second, Err: errors.New("slow down")}
	}
	for range 2 {
		err := b.Do(ctx, publish)
		if open, ok := errors.AsType[*breaker.OpenError](err); ok {
			fmt.Println("not called, again in", open.RetryAfter.Round(time.Second))
		} else {
			fmt.Println("called:", err)
		}
	}
	// Output:
	// called: rate limited, retry after 30s: slow down
	// not called, again in 30s
}

// Errors of one's own client are judged by a function of one's own.
func ExampleOptions_judge() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	errQuota := errors.New("quota exceeded") // of the API's client
	b, err := breaker.New(ctx, rdb, breaker.Options{
		Destination: "deviantart", FailureThreshold: 1,
		Judge: func(err error) breaker.Outcome {
			if errors.Is(err, errQuota) {
				return breaker.RateLimited(0)
			}
			return breaker.Judge(err)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	fmt.Println(b.Do(ctx, func(context.Context) error { return errQuota }))
	fmt.Println(b.View().State)
	// Output:
	// quota exceeded
	// OPEN
}

// Each user has a limit of their own, and all of them share that of the API.
func ExampleBreaker_Key() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	call := func(user string, outcome breaker.Outcome) {
		permit, err := b.Key(user).Allow(ctx)
		if open, ok := errors.AsType[*breaker.OpenError](err); ok {
			fmt.Println(user, "not called: of", open.Name)
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		if _, err := permit.Report(ctx, outcome); err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, "called:", outcome)
	}
	call("alice", breaker.RateLimited(time.Minute)) // hers, as long as the API says nothing else
	call("alice", breaker.Success())
	call("bob", breaker.Success())
	call("bob", breaker.RateLimited(time.Minute).WithScope(breaker.ScopeGlobal))
	call("carol", breaker.Success())
	// Output:
	// alice called: limited 1m0s
	// alice not called: of deviantart/alice
	// bob called: success
	// bob called: limited 1m0s
	// carol not called: of deviantart
}

// A worker asks for the destination before it takes a job, and for the job's key
// when it knows the job.
func ExamplePermit_ForKey() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	if _, err := breaker.DefaultNamespace.Trip(ctx, rdb, "deviantart/alice", breaker.TripOptions{Reason: "asked us to stop"}); err != nil {
		log.Fatal(err)
	}
	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	permit, err := b.Allow(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"alice", "bob"} { // whose jobs are next
		keyed, err := permit.ForKey(ctx, user)
		if open, ok := errors.AsType[*breaker.OpenError](err); ok {
			fmt.Println(user+"'s job is put back:", open.Reason)
			continue // with the destination's permit still in hand
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user + "'s job is called")
		if _, err := keyed.Report(ctx, breaker.Success()); err != nil {
			log.Fatal(err)
		}
		break
	}
	// Output:
	// alice's job is put back: asked us to stop
	// bob's job is called
}

// What the API says is left keeps all instances within it.
func ExampleOutcome_WithBudget() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart", MaxInFlight: 10})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	permit, err := b.Allow(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// "X-RateLimit-Remaining: 2" and "X-RateLimit-Reset: 60" of the answer:
	left := breaker.Budget{Remaining: 2, Reset: time.Minute}
	if _, err := permit.Report(ctx, breaker.Success().WithBudget(left)); err != nil {
		log.Fatal(err)
	}
	var inFlight []breaker.Permit
	for range 3 {
		permit, err := b.Allow(ctx)
		if open, ok := errors.AsType[*breaker.OpenError](err); ok {
			fmt.Println(open.State, "but not called:", open.Cause)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("called, and counted:", permit.Metered())
		inFlight = append(inFlight, permit)
	}
	for _, permit := range inFlight {
		if _, err := permit.Report(ctx, breaker.Success()); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// called, and counted: true
	// called, and counted: true
	// CLOSED but not called: budget
}

// A limit that is known beforehand is kept by all instances together.
func ExampleRates() {
	rdb, disconnect := connect()
	defer disconnect()
	ctx := context.Background()
	rate, err := breaker.ParseRates("60/1h:2,500/1d@Europe/Paris")
	if err != nil {
		log.Fatal(err)
	}
	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart", Rate: rate})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	for range 3 {
		err := b.Do(ctx, func(context.Context) error { return nil })
		if open, ok := errors.AsType[*breaker.OpenError](err); ok {
			fmt.Println("not called:", open.Cause, open.Window, "again in", open.RetryAfter.Round(time.Second))
			continue
		}
		fmt.Println("called:", err)
	}
	// Output:
	// called: <nil>
	// called: <nil>
	// not called: rate 60/1h:2 again in 1m0s
}
