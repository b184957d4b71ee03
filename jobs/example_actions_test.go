package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// exampleJobs is a client for which jobs are enqueued already.
func exampleJobs(specs ...*jobs.Spec) (client *jobs.Client, stop func()) {
	client, stop = exampleClient()
	results, err := client.EnqueueMany(context.Background(), specs)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		panic(err)
	}
	return client, stop
}

// showStatus prints where a job stands.
func showStatus(client *jobs.Client, id string) {
	job, err := client.Get(context.Background(), id)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.ID, "is", job.Status)
}

func ExampleClient_Cancel() {
	client, stop := exampleJobs(jobs.New("deviantart", "Sunset", jobs.ID("sunset")))
	defer stop()
	ctx := context.Background()
	if err := client.Cancel(ctx, "sunset", jobs.By("alice"), jobs.Because("wrong picture")); err != nil {
		fmt.Println(err)
		return
	}
	job, err := client.Get(ctx, "sunset")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s\n", job.Status, job.LastError)
	fmt.Println(errors.Is(client.Cancel(ctx, "sunrise"), jobs.ErrNotFound))
	// Output:
	// cancelled: wrong picture
	// true
}

// A paused job keeps its place and its time; only its expiry goes on.
func ExampleClient_Pause() {
	client, stop := exampleJobs(jobs.New("deviantart", "Sunset", jobs.ID("sunset")))
	defer stop()
	ctx := context.Background()
	if err := client.Pause(ctx, "sunset"); err != nil {
		fmt.Println(err)
		return
	}
	showStatus(client, "sunset")
	// Output: sunset is paused
}

func ExampleClient_Resume() {
	client, stop := exampleJobs(jobs.New("deviantart", "Sunset", jobs.ID("sunset")))
	defer stop()
	ctx := context.Background()
	// What was not paused cannot be resumed.
	fmt.Println(client.Resume(ctx, "sunset"))
	for _, do := range []func(context.Context, string, ...jobs.ActOption) error{client.Pause, client.Resume} {
		if err := do(ctx, "sunset"); err != nil {
			fmt.Println(err)
			return
		}
		showStatus(client, "sunset")
	}
	// Output:
	// jobs: resume: job sunset cannot be resumed: it is pending
	// sunset is paused
	// sunset is pending
}

// Failed and cancelled jobs keep their payload and can run again for as long as
// they are kept.
func ExampleClient_Retry() {
	client, stop := exampleJobs(jobs.New("deviantart", "Sunset", jobs.ID("sunset")))
	defer stop()
	ctx := context.Background()
	for _, do := range []func(context.Context, string, ...jobs.ActOption) error{client.Cancel, client.Retry} {
		if err := do(ctx, "sunset"); err != nil {
			fmt.Println(err)
			return
		}
		showStatus(client, "sunset")
	}
	// Output:
	// sunset is cancelled
	// sunset is pending
}

// The owner knows that nobody wants it any more, although it has no end of its own.
func ExampleClient_MarkExpired() {
	client, stop := exampleJobs(jobs.New("deviantart", "Today's weather", jobs.ID("weather")))
	defer stop()
	ctx := context.Background()
	if err := client.MarkExpired(ctx, "weather"); err != nil {
		fmt.Println(err)
		return
	}
	showStatus(client, "weather")
	fmt.Println(client.Retry(ctx, "weather"))
	// Output:
	// weather is expired
	// jobs: retry: job weather cannot be retried: it is expired and expired jobs cannot be run again; enqueue a new one
}

// Where a status does not allow an action, the error says which one it is.
func ExampleStatusError() {
	client, stop := exampleJobs(jobs.New("deviantart", "Sunset", jobs.ID("sunset")))
	defer stop()
	err := client.Retry(context.Background(), "sunset")
	if refused, ok := errors.AsType[*jobs.StatusError](err); ok {
		fmt.Println(refused.ID, refused.Action, refused.Status)
	}
	fmt.Println(errors.Is(err, jobs.ErrStatus))
	// Output:
	// sunset retry pending
	// true
}

// Many jobs in few round trips; one that cannot be cancelled stops no other.
func ExampleClient_Act() {
	client, stop := exampleJobs(
		jobs.New("deviantart", 1, jobs.ID("a")),
		jobs.New("mastodon", 2, jobs.ID("b")),
	)
	defer stop()
	results, err := client.Act(context.Background(), jobs.ActionCancel, []string{"a", "nobody", "b"})
	if err != nil { // of Redis: concerns all of them
		fmt.Println(err)
		return
	}
	for _, r := range results {
		fmt.Printf("%s: done %t, was %q, %v\n", r.ID, r.Done, r.Status, r.Err)
	}
	// Output:
	// a: done true, was "pending", <nil>
	// nobody: done false, was "", nobody: job not found
	// b: done true, was "pending", <nil>
}

// Everything of one user at one destination, however many jobs that are. Count
// first what it would be.
func ExampleClient_ActWhere() {
	client, stop := exampleJobs(
		jobs.New("deviantart", 1, jobs.Key("alice")),
		jobs.New("deviantart", 2, jobs.Key("alice"), jobs.Delay(time.Hour)),
		jobs.New("deviantart", 3, jobs.Key("bob")),
		jobs.New("mastodon", 4, jobs.Key("alice")),
	)
	defer stop()
	ctx := context.Background()
	hers := jobs.Filter{Destination: "deviantart", Key: "alice"}
	n, err := client.CountWhere(ctx, jobs.ActionPause, hers)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("to be paused:", n)
	sum, err := client.ActWhere(ctx, jobs.ActionPause, hers, jobs.By("support"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("paused:", sum.Done)

	_, err = client.ActWhere(ctx, jobs.ActionCancel, jobs.Filter{})
	fmt.Println(err)
	// Output:
	// to be paused: 2
	// paused: 2
	// jobs: cancel: filter: selects every job there is; give a status, a destination, a key, a batch, a label, a time, an error or a cause
}

func ExampleClient_CountWhere() {
	client, stop := exampleJobs(jobs.New("deviantart", 1), jobs.New("deviantart", 2), jobs.New("mastodon", 3))
	defer stop()
	ctx := context.Background()
	for _, action := range []jobs.Action{jobs.ActionCancel, jobs.ActionRetry} {
		n, err := client.CountWhere(ctx, action, jobs.Filter{Destination: "deviantart"})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(action, n)
	}
	// Output:
	// cancel 2
	// retry 0
}

// What happened to a job, and who did it.
func ExampleClient_History() {
	client, stop := exampleJobs(jobs.New("deviantart", "Sunset", jobs.ID("sunset")))
	defer stop()
	ctx := context.Background()
	if err := client.Pause(ctx, "sunset", jobs.By("alice")); err != nil {
		fmt.Println(err)
		return
	}
	if err := client.Cancel(ctx, "sunset", jobs.By("bob"), jobs.Because("wrong picture")); err != nil {
		fmt.Println(err)
		return
	}
	history, err := client.History(ctx, "sunset")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range history {
		fmt.Printf("%d. %s by %q: %q, it is %s\n", e.Version, e.Event, e.By, e.Detail, e.Status)
	}
	// Output:
	// 1. created by "": "", it is pending
	// 2. paused by "alice": "", it is paused
	// 3. cancelled by "bob": "wrong picture", it is cancelled
}

func ExampleClient_Batch() {
	client, stop := exampleJobs(
		jobs.New("deviantart", 1, jobs.Batch("import-7"), jobs.ID("a")),
		jobs.New("deviantart", 2, jobs.Batch("import-7")),
		jobs.New("mastodon", 3, jobs.Batch("import-7")),
		jobs.New("mastodon", 4, jobs.Batch("import-7"), jobs.Delay(time.Hour)),
	)
	defer stop()
	ctx := context.Background()
	if err := client.Cancel(ctx, "a"); err != nil {
		fmt.Println(err)
		return
	}
	b, err := client.Batch(ctx, "import-7")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d jobs, %d cancelled, %d pending, %.0f %% have ended\n",
		b.Total, b.Counts[jobs.Cancelled], b.Counts[jobs.Pending], 100*b.Progress)
	// Output: 4 jobs, 1 cancelled, 3 pending, 25 % have ended
}

// Wait for the end of an import, and see it come.
func ExampleClient_WaitBatch() {
	client, stop := exampleJobs(jobs.New("deviantart", 1, jobs.Batch("import-7")), jobs.New("mastodon", 2, jobs.Batch("import-7")))
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := client.WaitBatch(ctx, "import-7", func(b *jobs.BatchStatus) {
		fmt.Printf("%.0f %%\n", 100*b.Progress)
		if b.Progress == 0 { // here the end comes by a cancel; else workers bring it
			if _, err := client.ActWhere(ctx, jobs.ActionCancel, jobs.Filter{Batch: "import-7"}); err != nil {
				fmt.Println(err)
			}
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Done, b.Counts)
	// Output:
	// 0 %
	// 100 %
	// true map[cancelled:2]
}

func ExampleClient_Stats() {
	client, stop := exampleJobs(
		jobs.New("deviantart", 1),
		jobs.New("deviantart", 2, jobs.Delay(time.Hour)),
		jobs.New("deviantart", 3, jobs.ID("paused")),
	)
	defer stop()
	ctx := context.Background()
	if err := client.Pause(ctx, "paused"); err != nil {
		fmt.Println(err)
		return
	}
	stats, err := client.Stats(ctx, "deviantart")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range stats {
		fmt.Println(s.Destination, "has a backlog of", s.Backlog)
		for _, status := range jobs.Statuses {
			if n := s.Counts[status]; n > 0 {
				fmt.Println(status, n)
			}
		}
	}
	// Output:
	// deviantart has a backlog of 3
	// pending 2
	// paused 1
}

// An operator stops a whole destination, and lets it go on.
func ExampleClient_PauseDestination() {
	client, stop := exampleJobs(jobs.New("deviantart", 1))
	defer stop()
	ctx := context.Background()
	pause := func(ctx context.Context, name string) (bool, error) {
		return client.PauseDestination(ctx, name, jobs.By("ann"), jobs.Because("maintenance"))
	}
	for _, do := range []func(context.Context, string) (bool, error){pause, pause, client.ResumeDestination} {
		changed, err := do(ctx, "deviantart")
		if err != nil {
			fmt.Println(err)
			return
		}
		stats, err := client.Stats(ctx, "deviantart")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("changed:", changed, "paused:", stats[0].Paused)
		if stats[0].Paused {
			fmt.Println(stats[0].Pause)
		}
	}
	// Output:
	// changed: true paused: true
	// paused by ann (maintenance)
	// changed: false paused: true
	// paused by ann (maintenance)
	// changed: true paused: false
}

// Instants of jobs are by Redis's clock, which is the same for all.
func ExampleClient_Now() {
	client, stop := exampleClient()
	defer stop()
	now, err := client.Now(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(now.Location(), time.Since(now).Abs() < time.Minute)
	// Output: UTC true
}

// A job that failed or was cancelled is corrected before it runs again.
func ExampleSet() {
	client, stop := exampleJobs(jobs.New("deviantart", map[string]any{"title": "Sunset", "album": 7}, jobs.ID("sunset")))
	defer stop()
	ctx := context.Background()
	err := client.Cancel(ctx, "sunset")
	if err == nil {
		err = client.Retry(ctx, "sunset", jobs.Set("payload.album", 8), jobs.Because("the album was renamed"))
	}
	job, failed := client.Get(ctx, "sunset")
	if err := errors.Join(err, failed); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s\n", job.Status, job.Payload)
	fmt.Println(client.Retry(ctx, "sunset", jobs.Set("key", "bob")))
	// Output:
	// pending: {"album":8,"title":"Sunset"}
	// set: "key" cannot be changed; there are payload, and in the request request.path, .query, .method, .encoding, .timeout_secs and .headers.NAME
}
