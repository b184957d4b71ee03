package jobs_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// Each key has a budget of its own at the destination: a limit of alice's holds
// up nobody else. Jobs can be found by it, too.
func ExampleKey() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	for _, user := range []string{"alice", "bob"} {
		if _, err := client.Enqueue(ctx, jobs.New("deviantart", "Sunset", jobs.ID("for-"+user), jobs.Key(user))); err != nil {
			fmt.Println(err)
			return
		}
	}
	page, err := client.List(ctx, jobs.ListOptions{Filter: jobs.Filter{Key: "alice"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, job := range page.Items {
		fmt.Println(job.ID, job.Key)
	}
	// Output: for-alice alice
}

// With the destination's URL https://api.example/v1 this job is sent to
// https://api.example/v1/items/7.
func ExamplePath() {
	client, stop := exampleClient()
	defer stop()
	job, err := client.Enqueue(context.Background(), jobs.New("deviantart", "Sunset", jobs.Path("/items/7")))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Request.Path)
	// Output: /items/7
}

// The query is appended to that of the destination's URL, if it has one.
func ExampleQuery() {
	client, stop := exampleClient()
	defer stop()
	job, err := client.Enqueue(context.Background(), jobs.New("deviantart", "Sunset", jobs.Query("notify=no&lang=en")))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Request.Query)
	// Output: notify=no&lang=en
}

// A header of the job replaces the destination's own of the same name.
func ExampleHeader() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	job, err := client.Enqueue(ctx, jobs.New("deviantart", "Sunset", jobs.Header("X-Source", "importer"), jobs.Header("Accept-Language", "en")))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Request.Headers)
	// Output: map[Accept-Language:en X-Source:importer]
}

// Jobs of high priority are served first, but low ones are not starved.
func ExamplePrioritize() {
	client, stop := exampleClient()
	defer stop()
	for _, spec := range []*jobs.Spec{
		jobs.New("deviantart", "a backup", jobs.Prioritize(jobs.PriorityLow)),
		jobs.New("deviantart", "a picture"),
		jobs.New("deviantart", "an apology", jobs.Prioritize(jobs.PriorityHigh)),
	} {
		job, err := client.Enqueue(context.Background(), spec)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(string(job.Payload), job.Priority)
	}
	// Output:
	// "a backup" low
	// "a picture" default
	// "an apology" high
}

// Being put off is no failure, and without a bound it may happen for ever. With
// this one the 101st time fails the job: "max reschedules (100) exceeded".
func ExampleMaxReschedules() {
	client, stop := exampleClient()
	defer stop()
	job, err := client.Enqueue(context.Background(), jobs.New("deviantart", "Sunset", jobs.MaxReschedules(100)))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.RescheduleCount, "of", *job.MaxReschedules)
	// Output: 0 of 100
}

func ExampleDelay() {
	client, stop := exampleClient()
	defer stop()
	job, err := client.Enqueue(context.Background(), jobs.New("deviantart", "Sunset", jobs.Delay(5*time.Minute)))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Status, "for", job.AvailableAt.Sub(job.CreatedAt).Round(time.Second))
	// Output: pending for 5m0s
}

// What is not published within the hour is not worth it: the job ends as expired,
// whatever it waits for. TTL(0) is of no use but for trying that out.
func ExampleTTL() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	for _, ttl := range []time.Duration{time.Hour, 0} {
		job, err := client.Enqueue(ctx, jobs.New("deviantart", "Today's weather", jobs.TTL(ttl)))
		if err != nil {
			fmt.Println(err)
			return
		}
		if job, err = client.Get(ctx, job.ID); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("after", job.ExpiresAt.Sub(job.CreatedAt).Round(time.Second), "now", job.Status)
	}
	// Output:
	// after 1h0m0s now pending
	// after 0s now expired
}

// A time to begin and a time to end.
func ExampleExpiresAt() {
	client, stop := exampleClient()
	defer stop()
	newYear := time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC)
	job, err := client.Enqueue(context.Background(), jobs.New("deviantart", "Happy new year",
		jobs.At(newYear), jobs.ExpiresAt(newYear.Add(12*time.Hour))))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("from", job.AvailableAt)
	fmt.Println("to  ", job.ExpiresAt)
	// Output:
	// from 2100-01-01 00:00:00 +0000 UTC
	// to   2100-01-01 12:00:00 +0000 UTC
}

// What belongs together is counted, listed and cancelled together.
func ExampleBatch() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	for i := range 3 {
		if _, err := client.Enqueue(ctx, jobs.New("deviantart", i, jobs.Batch("import-7"))); err != nil {
			fmt.Println(err)
			return
		}
	}
	batch, err := client.Batch(ctx, "import-7")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(batch.Total, batch.Counts, batch.Done)
	// Output: 3 map[pending:3] false
}

// Jobs are found by their labels.
func ExampleLabel() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	for _, team := range []string{"web", "web", "mail"} {
		if _, err := client.Enqueue(ctx, jobs.New("deviantart", 1, jobs.Label("team", team))); err != nil {
			fmt.Println(err)
			return
		}
	}
	n, err := client.CountWhere(ctx, jobs.ActionCancel, jobs.Filter{Labels: map[string]string{"team": "web"}})
	fmt.Println(n, err)
	// Output: 2 <nil>
}

// The announcement waits until the pictures are there. If one of them does not get
// there, it is cancelled.
func ExampleAfter() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	results, err := client.EnqueueMany(ctx, []*jobs.Spec{
		jobs.New("deviantart", "Sunset", jobs.ID("picture-1")),
		jobs.New("deviantart", "Sunrise", jobs.ID("picture-2")),
		jobs.New("mastodon", "Two new pictures!", jobs.ID("news"), jobs.After("picture-1", "picture-2")),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range results {
		if r.Err != nil {
			fmt.Println(r.Err)
			return
		}
		fmt.Println(r.Job.ID, r.Job.Status, r.Job.After)
	}

	if err := client.Cancel(ctx, "picture-2"); err != nil {
		fmt.Println(err)
		return
	}
	news, err := client.Get(ctx, "news")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(news.ID, news.Status, "because", news.LastError)
	// Output:
	// picture-1 pending []
	// picture-2 pending []
	// news waiting [picture-1 picture-2]
	// news cancelled because parent picture-2 was cancelled
}

// The time between a failure and its retry has some chance in it, so that jobs
// which failed together do not come back together.
func ExampleRetryPolicy_DelayWith() {
	p := jobs.New("deviantart", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 4, InitialDelay: 10 * time.Second, MaxDelay: 60 * time.Second})).Retry
	for attempt := range p.MaxRetries {
		fmt.Println("retry", attempt+1, "after", p.DelayWith(attempt, 0), "to", p.DelayWith(attempt, 1))
	}
	// Output:
	// retry 1 after 9s to 11s
	// retry 2 after 18s to 22s
	// retry 3 after 36s to 44s
	// retry 4 after 1m0s to 1m0s
}

// Only the latest of several changes is published. With a delay they are collected, for ten minutes at most.
func ExampleReplace() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	for i, name := range []string{"Ann", "Anna"} {
		job, err := client.Enqueue(ctx, jobs.New("deviantart", map[string]string{"name": name},
			jobs.ID(fmt.Sprint("change-", i+1)), jobs.Replace("profile-7"), jobs.Delay(5*time.Second), jobs.ReplaceMax(10*time.Minute)))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s replaced %q\n", job.ID, job.Replaced)
	}
	first, err := client.Get(ctx, "change-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s\n", first.Status, first.LastError)
	// Output:
	// change-1 replaced ""
	// change-2 replaced "change-1"
	// cancelled: replaced by change-2
}
