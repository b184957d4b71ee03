package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// picture is the payload of all jobs.
const picture = `{"title":"A picture","body":"` + "0123456789abcdef0123456789abcdef" + `"}`

// What asynq's users set, scaled. Its default backoff begins with 15 s; its default of
// 5 s between two polls for due retries becomes 0.3 s; it polls for jobs every second
// when the queue is empty, which is shorter here so that it is not what is measured.
const (
	forwardEvery = 200 * time.Millisecond
	pollEvery    = 100 * time.Millisecond
	callTimeout  = 5 * time.Second
	threshold    = 3
)

func enqueueAsynq(ctx context.Context, rdb redis.UniversalClient, n int) ([]string, error) {
	client := asynq.NewClientFromRedisClient(rdb)
	ids := make([]string, n)
	for i := range ids {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("enqueue: %w", err)
		}
		ids[i] = id.String()
		task := asynq.NewTask("publish", []byte(picture))
		// No number of refusals must end in the archive, and jobs stay on record as
		// Tidegate's do.
		if _, err := client.EnqueueContext(ctx, task, asynq.TaskID(ids[i]), asynq.MaxRetry(math.MaxInt32), asynq.Retention(24*time.Hour)); err != nil {
			return nil, fmt.Errorf("enqueue: %w", err)
		}
	}
	return ids, nil
}

// limitedError is a 429.
type limitedError struct{ retryAfter time.Duration }

func (e *limitedError) Error() string { return "rate limited" }

// openError is a job that met an open breaker.
type openError struct{ until time.Time }

func (e *openError) Error() string { return "the breaker is open" }

// poster makes the calls of the contenders that use bare asynq.
type poster struct {
	url    string
	client *http.Client
}

func newPoster(url string, connections int) *poster {
	return &poster{url: url, client: &http.Client{
		Timeout:   callTimeout,
		Transport: &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections},
	}}
}

// post publishes a job.
func (p *poster) post(ctx context.Context, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id)
	resp, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("post: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		wait, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0 without
		return &limitedError{time.Duration(wait) * time.Second}
	case resp.StatusCode/100 != 2:
		return errors.New("post: " + resp.Status)
	}
	return nil
}

// serveAsynq is what asynq's documentation leads to. Without a hint a 429 is an error
// like any other and asynq's own backoff spaces the retries; with one the job is tried
// again when the API says, and does not count as failed.
func serveAsynq(ctx context.Context, rdb redis.UniversalClient, t task, deferred *atomic.Int64) error {
	p := newPoster(t.URL, concurrency)
	defer p.client.CloseIdleConnections()
	return runAsynq(ctx, rdb, t, deferred,
		func(ctx context.Context, id string) error { return p.post(ctx, id, []byte(picture)) },
		func(n int, err error, task *asynq.Task) time.Duration {
			if limited, ok := errors.AsType[*limitedError](err); ok && limited.retryAfter > 0 {
				return limited.retryAfter
			}
			return wholeSecond(time.Now(), asynq.DefaultRetryDelayFunc(n, err, task)/time.Duration(scale))
		},
		func(err error) bool {
			limited, ok := errors.AsType[*limitedError](err)
			return !ok || limited.retryAfter == 0
		})
}

// serveNaive asks the shared breaker before each call. A job that meets it open, or is
// refused, comes back when it may be closed again.
func serveNaive(ctx context.Context, rdb redis.UniversalClient, t task, deferred *atomic.Int64) error {
	p := newPoster(t.URL, concurrency)
	defer p.client.CloseIdleConnections()
	b := newNaive(rdb, "circuit-breaker", threshold, t.Cooldown)
	return runAsynq(ctx, rdb, t, deferred,
		func(ctx context.Context, id string) error {
			ok, until, err := b.Allow(ctx)
			if err != nil {
				return err
			}
			if !ok {
				return &openError{until}
			}
			err = p.post(ctx, id, []byte(picture))
			if limited, ok := errors.AsType[*limitedError](err); ok {
				return errors.Join(err, b.RateLimited(ctx, limited.retryAfter))
			}
			if err != nil {
				return err
			}
			return b.Succeeded(ctx)
		},
		func(_ int, err error, _ *asynq.Task) time.Duration {
			if limited, ok := errors.AsType[*limitedError](err); ok && limited.retryAfter > 0 {
				return limited.retryAfter
			}
			wait := t.Cooldown
			if open, ok := errors.AsType[*openError](err); ok {
				wait = time.Until(open.until)
			}
			if t.Hints {
				return wait
			}
			return wholeSecond(time.Now(), wait)
		},
		func(error) bool { return false })
}

// runAsynq runs an asynq server until ctx ends.
func runAsynq(ctx context.Context, rdb redis.UniversalClient, t task, deferred *atomic.Int64,
	handle func(ctx context.Context, id string) error,
	delay asynq.RetryDelayFunc, failure func(error) bool,
) error {
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency: concurrency, LogLevel: asynq.FatalLevel, ShutdownTimeout: callTimeout,
		TaskCheckInterval: pollEvery, DelayedTaskCheckInterval: forwardEvery,
		IsFailure: failure,
		RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
			return delay(n, err, task) + rand.N(t.Jitter+1)
		},
	})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		err := handle(ctx, id)
		if err != nil {
			deferred.Add(1)
		}
		return err
	}))
	if err != nil {
		return fmt.Errorf("start asynq: %w", err)
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

// wholeSecond prolongs a delay to the next whole second of the clock. asynq cuts the
// due time to one, so that jobs would come back before their time, up to ten times on
// end. Where the API has said how long, which is rounded up to seconds, the cut does
// no harm and makes both contenders faster.
func wholeSecond(now time.Time, delay time.Duration) time.Duration {
	due := now.Add(delay)
	if cut := due.Truncate(time.Second); cut.Before(due) {
		due = cut.Add(time.Second)
	}
	return due.Sub(now)
}
