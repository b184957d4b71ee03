package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// exampleRedis stands for your Redis.
func exampleRedis() (rdb redis.UniversalClient, stop func()) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: m.Addr()})
	return rdb, func() {
		_ = rdb.Close()
		m.Close()
	}
}

// exampleClient is a client for two destinations.
func exampleClient() (client *jobs.Client, stop func()) {
	rdb, stop := exampleRedis()
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("deviantart", "mastodon"))
	if err != nil {
		panic(err)
	}
	return client, stop
}

func ExampleNewClient() {
	rdb, stop := exampleRedis() // redis.NewClient, NewClusterClient, NewFailoverClient …
	defer stop()
	// Destinations are known once a worker has served them, or by name.
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("deviantart"), jobs.WithLimits(jobs.Limits{MaxPayloadBytes: 1024}))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.Enqueue(context.Background(), jobs.New("devianart", nil))
	fmt.Println(err)
	// Output: jobs: enqueue: destination "devianart" is not known; known are deviantart
}

func ExampleClient_Enqueue() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	job, err := client.Enqueue(ctx, jobs.New("deviantart", map[string]string{"title": "Sunset"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err = client.Get(ctx, job.ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Status, job.Destination, string(job.Payload))
	// Output: pending deviantart {"title":"Sunset"}
}

// An id of your own makes an enqueue safe to repeat.
func ExampleID() {
	client, stop := exampleClient()
	defer stop()
	for _, title := range []string{"Sunset", "Sunrise"} {
		job, err := client.Enqueue(context.Background(), jobs.New("deviantart", title, jobs.ID("post-4711")))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(job.ID, string(job.Payload), job.Duplicate)
	}
	// Output:
	// post-4711 "Sunset" false
	// post-4711 "Sunset" true
}

func ExampleClient_EnqueueMany() {
	client, stop := exampleClient()
	defer stop()
	results, err := client.EnqueueMany(context.Background(), []*jobs.Spec{
		jobs.New("deviantart", 1, jobs.ID("a")),
		jobs.New("deviantart", []byte("not JSON")),
		jobs.New("mastodon", 3, jobs.ID("c")),
	})
	if err != nil { // of Redis: concerns all of them
		fmt.Println(err)
		return
	}
	for i, r := range results {
		if r.Err != nil {
			fmt.Println(i, r.Err)
			continue
		}
		fmt.Println(i, r.Job.ID, r.Job.Destination)
	}
	// Output:
	// 0 a deviantart
	// 1 jobs: enqueue: payload: is not valid JSON: invalid character 'o' in literal null (expecting 'u'); a payload is JSON, with names and texts in double quotes, such as {"title":"Sunset"} or "Sunset"; in a shell put single quotes around it
	// 2 c mastodon
}

func ExampleNew_options() {
	client, stop := exampleClient()
	defer stop()
	job, err := client.Enqueue(context.Background(), jobs.New("deviantart", map[string]int{"stars": 5},
		jobs.Key("alice"),                   // her own budget at the destination
		jobs.Path("/items/7"),               // appended to the destination's URL
		jobs.Query("notify=no"),             //
		jobs.Header("X-Source", "importer"), //
		jobs.Prioritize(jobs.PriorityHigh),  // before the others of its destination
		jobs.MaxReschedules(100),            // then it fails
		jobs.Delay(time.Hour),               // not before that
	))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Key, job.Priority, job.Request.Path, job.Request.Query, job.Request.Headers, *job.MaxReschedules)
	fmt.Println("waits", job.AvailableAt.Sub(job.CreatedAt).Round(time.Second))
	// Output:
	// alice high /items/7 notify=no map[X-Source:importer] 100
	// waits 1h0m0s
}

func ExampleRetry() {
	spec := jobs.New("deviantart", nil, jobs.Retry(jobs.RetryPolicy{
		MaxRetries: 3,
		RetryOn:    []jobs.Trigger{jobs.OnTimeout, jobs.OnFailure},
	}))
	p := spec.Retry
	fmt.Printf("after %s, then %g times as long each time, at most %s\n", p.InitialDelay, p.BackoffMultiplier, p.MaxDelay)
	for attempt := range 4 {
		fmt.Println(attempt, p.Retries(attempt, jobs.OnTimeout), p.Retries(attempt, jobs.OnExplicit))
	}
	// Output:
	// after 5s, then 2 times as long each time, at most 5m0s
	// 0 true false
	// 1 true false
	// 2 true false
	// 3 false false
}

func ExampleAt() {
	client, stop := exampleClient()
	defer stop()
	newYear := time.Date(2100, time.January, 1, 0, 0, 0, 0, time.FixedZone("CET", 3600))
	job, err := client.Enqueue(context.Background(), jobs.New("deviantart", "Happy new year", jobs.At(newYear)))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Status, "until", job.AvailableAt)
	// Output: pending until 2099-12-31 23:00:00 +0000 UTC
}

// Everything that is wrong with a job is said at once.
func ExampleValidationError() {
	client, stop := exampleClient()
	defer stop()
	_, err := client.Enqueue(context.Background(), jobs.New("deviantart", nil,
		jobs.Key("a b"), jobs.Prioritize("urgent")))
	if invalid, ok := errors.AsType[*jobs.ValidationError](err); ok {
		for _, f := range invalid.Fields {
			fmt.Printf("%s %s\n", f.Field, f.Message)
		}
	}
	// Output:
	// key "a b" must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit
	// priority "urgent" is none of high, default, low
}

func ExampleClient_Get() {
	client, stop := exampleClient()
	defer stop()
	_, err := client.Get(context.Background(), "post-4711")
	fmt.Println(errors.Is(err, jobs.ErrNotFound), err)
	// Output: true jobs: get post-4711: job not found
}

func ExampleClient_List() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	for i := range 5 {
		if _, err := client.Enqueue(ctx, jobs.New("deviantart", i, jobs.ID(fmt.Sprint("job-", i)))); err != nil {
			fmt.Println(err)
			return
		}
	}
	o := jobs.ListOptions{Filter: jobs.Filter{Destination: "deviantart", Statuses: []jobs.Status{jobs.Pending}}, Limit: 2}
	for {
		page, err := client.List(ctx, o)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, j := range page.Items {
			fmt.Print(j.ID, " ")
		}
		if page.Next == "" {
			fmt.Println("end")
			return
		}
		fmt.Print("| ")
		o.Cursor = page.Next
	}
	// Output: job-4 job-3 | job-2 job-1 | job-0 end
}

// A publisher that looks whether it makes sense to call now.
func ExampleReschedule() {
	publish := func(_ context.Context, _ *jobs.Job) error {
		maintenance := true
		if maintenance {
			return jobs.Reschedule(10*time.Minute, jobs.ExtendExpiration(10*time.Minute))
		}
		return nil
	}
	err := publish(context.Background(), &jobs.Job{})
	later, ok := errors.AsType[*jobs.RescheduleError](err)
	fmt.Println(err, ok, later.ExtendExpiration)
	// Output: reschedule in 10m0s true 10m0s
}

// A publisher that knows its API: what is a rate limit, what is final, what may
// go better next time.
func ExampleRateLimited() {
	publish := func(answer string) error {
		switch answer {
		case "slow down":
			return jobs.RateLimited(30 * time.Second) // counts against the breaker, costs no retry
		case "no such gallery":
			return jobs.Discard(errors.New(answer)) // fails now
		case "busy":
			return jobs.Fail(errors.New(answer)) // retried by the job's policy, trigger "explicit"
		}
		return nil // completed
	}
	for _, answer := range []string{"slow down", "no such gallery", "busy", "ok"} {
		fmt.Println(publish(answer))
	}
	// Output:
	// rate limited, retry after 30s
	// no such gallery
	// busy
	// <nil>
}
