package publisher_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A handler uses an http.Client that asks a circuit breaker before each request, here
// one of another API than the destination's own. It returns the client's errors as they
// are: a request that was not sent puts the job off until the breaker lets it through,
// which is no failure.
func ExampleHandler_breakerhttp() {
	rdb, disconnect := embeddedRedis()
	defer disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer api.Close()

	// The breaker that all users of this API share: workers, web servers, scripts.
	images, err := breaker.New(ctx, rdb, breaker.Options{Destination: "images"})
	if err != nil {
		log.Fatal(err)
	}
	defer images.Close()
	httpClient := &http.Client{Transport: breakerhttp.New(images, nil)}

	handler := publisher.Func(func(ctx context.Context, job *jobs.Job) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL, strings.NewReader(string(job.Payload)))
		if err != nil {
			return jobs.Discard(err)
		}
		req.Header["Idempotency-Key"] = []string{job.ID}
		resp, err := httpClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusTooManyRequests:
			// The client's breaker has read the headers; the next call asks it.
			return jobs.Reschedule(0)
		case resp.StatusCode >= 400:
			return fmt.Errorf("answered %s", resp.Status)
		}
		return nil
	})

	done := make(chan publisher.JobEvent, 10)
	p, err := publisher.New(rdb, publisher.Options{
		Logger: slog.New(slog.DiscardHandler), Observers: []publisher.Observer{{OnJob: func(e publisher.JobEvent) { done <- e }}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Handle("resize", handler, publisher.Concurrency(1)); err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()

	client, err := jobs.NewClient(rdb)
	if err != nil {
		log.Fatal(err)
	}
	<-p.Started()
	job, err := client.Enqueue(ctx, jobs.New("resize", map[string]int{"picture": 7}))
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		e := <-done
		fmt.Println(e.Result, "by", e.Reason, "- called:", e.Called)
	}
	job, err = client.Get(ctx, job.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Status, "in", time.Until(job.AvailableAt).Round(time.Minute), "because", job.Reason)
	cancel()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// rescheduled by publisher - called: true
	// rescheduled by breaker - called: false
	// pending in 10m0s because breaker images open
}
