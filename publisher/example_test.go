package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// embeddedRedis gives an example a Redis of its own.
func embeddedRedis() (redis.UniversalClient, func()) {
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

// Errors of the API client in ExampleFunc.
var (
	errBanned = errors.New("this title is not allowed here")
	errBusy   = errors.New("the gallery is busy")
)

// upload stands for the client of an API.
func upload(_ context.Context, title string) (id string, err error) {
	switch title {
	case `"Spam"`:
		return "", errBanned
	case `"Noon"`:
		return "", errBusy
	}
	return "picture-1", nil
}

// A publisher in Go calls the API in its own way and says by what it returns
// what becomes of the job.
func ExampleFunc() {
	rdb, disconnect := embeddedRedis()
	defer disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// The app: it only enqueues.
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("gallery"))
	if err != nil {
		log.Fatal(err)
	}
	for _, title := range []string{"Dusk", "Spam", "Noon"} {
		if _, err := client.Enqueue(ctx, jobs.New("gallery", title, jobs.ID(title), jobs.Key("alice"))); err != nil {
			log.Fatal(err)
		}
	}

	// The worker.
	ended := make(chan publisher.JobEvent, 10)
	p, err := publisher.New(rdb, publisher.Options{
		Logger:    slog.New(slog.DiscardHandler),
		Observers: []publisher.Observer{{OnJob: func(e publisher.JobEvent) { ended <- e }}},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = p.Handle("gallery", publisher.Func(func(ctx context.Context, job *jobs.Job) error {
		id, err := upload(ctx, string(job.Payload))
		switch {
		case errors.Is(err, errBanned):
			return jobs.Discard(err) // no retry would help
		case errors.Is(err, errBusy):
			return jobs.Reschedule(time.Hour) // not now; that is no failure
		case err != nil:
			return err // a failure, retried if the job has a retry policy
		}
		job.Response = &jobs.Response{Body: id} // kept with the job
		return nil
	}), publisher.Concurrency(1), publisher.Timeout(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	workerCtx, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- p.Run(workerCtx) }()
	for range 3 {
		e := <-ended
		job, err := client.Get(ctx, e.Job.ID)
		if err != nil {
			log.Fatal(err)
		}
		switch job.Status {
		case jobs.Completed:
			fmt.Println(job.ID, "is", job.Status, "as", job.Response.Body)
		case jobs.Failed:
			fmt.Println(job.ID, "is", job.Status, "because", job.LastError)
		default:
			fmt.Println(job.ID, "is", job.Status, "in", job.AvailableAt.Sub(job.CreatedAt).Round(time.Hour))
		}
	}
	stop()
	if err := <-stopped; err != nil {
		log.Fatal(err)
	}
	// Output:
	// Dusk is completed as picture-1
	// Spam is failed because this title is not allowed here
	// Noon is pending in 1h0m0s
}

// An HTTP destination needs no code: the payload is the body of the request. Once
// the API says that its limit is reached, no instance calls it until the time it
// named has come.
func ExamplePublisher() {
	rdb, disconnect := embeddedRedis()
	defer disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// An API that accepts one call and refuses the next one.
	var calls atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println("call:", r.Method, r.URL, string(body), r.Header.Get("Idempotency-Key"))
		if calls.Add(1) == 2 {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":42}`)
	}))
	defer api.Close()

	client, err := jobs.NewClient(rdb, jobs.WithDestinations("deviantart"))
	if err != nil {
		log.Fatal(err)
	}
	titles := []string{"Dusk", "Dawn", "Noon"}
	for _, title := range titles {
		payload := map[string]string{"title": title}
		if _, err := client.Enqueue(ctx, jobs.New("deviantart", payload, jobs.ID(title), jobs.Path("/items"))); err != nil {
			log.Fatal(err)
		}
	}

	deviantart, err := httpdest.New(httpdest.Options{URL: api.URL + "/v1", AuthToken: "the-token"})
	if err != nil {
		log.Fatal(err)
	}
	defer deviantart.Close()
	results := make(chan publisher.JobEvent, 10)
	p, err := publisher.New(rdb, publisher.Options{
		Logger:    slog.New(slog.DiscardHandler),
		Observers: []publisher.Observer{{OnJob: func(e publisher.JobEvent) { results <- e }}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Handle("deviantart", deviantart, publisher.Concurrency(1)); err != nil {
		log.Fatal(err)
	}
	workerCtx, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- p.Run(workerCtx) }()
	<-results // of Dusk
	<-results // of Dawn, which opened the breaker
	status, err := breaker.DefaultNamespace.Get(ctx, rdb, "deviantart")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("breaker:", status.State)
	stop()
	if err := <-stopped; err != nil {
		log.Fatal(err)
	}

	for _, title := range titles {
		job, err := client.Get(ctx, title)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.ID, "is", job.Status, "after", job.RescheduleCount, "reschedules")
		if job.Status == jobs.Completed {
			fmt.Println("answer:", job.Response.Status, job.Response.Body)
		}
	}
	// Output:
	// call: POST /v1/items {"title":"Dusk"} Dusk
	// call: POST /v1/items {"title":"Dawn"} Dawn
	// breaker: OPEN
	// Dusk is completed after 0 reschedules
	// answer: 201 {"id":42}
	// Dawn is pending after 1 reschedules
	// Noon is pending after 0 reschedules
}

// How a destination is served: by whom, how many calls at once, for how long each,
// and when its circuit breaker opens. All mistakes are told at once.
func ExamplePublisher_Handle() {
	rdb, disconnect := embeddedRedis()
	defer disconnect()
	p, err := publisher.New(rdb, publisher.Options{})
	if err != nil {
		log.Fatal(err)
	}
	h := publisher.Func(func(context.Context, *jobs.Job) error { return nil })
	err = p.Handle("deviantart", h,
		publisher.Concurrency(5),
		publisher.Timeout(10*time.Second),
		publisher.Breaker(breaker.Options{FailureThreshold: 5, Cooldown: time.Minute}))
	fmt.Println(err)
	fmt.Println(p.Handle("DeviantArt", h, publisher.Timeout(-time.Second)))
	// Output:
	// <nil>
	// publisher: handle DeviantArt: name "DeviantArt" must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit
	// timeout must be positive, is -1s
}

// Run publishes until its context ends: in a program that is the one of
// signal.NotifyContext, for SIGTERM. Calls in flight get ShutdownTimeout to finish.
func ExamplePublisher_Run() {
	rdb, disconnect := embeddedRedis()
	defer disconnect()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	client, err := jobs.NewClient(rdb, jobs.WithDestinations("gallery"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Enqueue(ctx, jobs.New("gallery", "Dusk", jobs.ID("dusk"))); err != nil {
		log.Fatal(err)
	}

	p, err := publisher.New(rdb, publisher.Options{Logger: slog.New(slog.DiscardHandler), ShutdownTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	err = p.Handle("gallery", publisher.Func(func(_ context.Context, job *jobs.Job) error {
		stop() // as SIGTERM would, in the middle of a call
		return nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err) // it could not start, or had to stop
	}
	job, err := client.Get(context.Background(), "dusk")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.ID, "is", job.Status)
	// Output: dusk is completed
}
