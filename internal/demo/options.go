// Package demo shows Tidegate at work in one process: an embedded Redis, an API
// with a rate limit over real HTTP, and workers that share a circuit breaker.
package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// Options are the figures of the show. The zero value is not valid; see
// [Defaults].
type Options struct {
	// Jobs to publish, 1 to 10000.
	Jobs int
	// Workers, 1 to 20, each with its own connections to Redis, as separate
	// processes have them.
	Workers int
	// Concurrency is the number of calls at a time of each worker, 1 to 100.
	Concurrency int
	// Quota is how many calls the API accepts in a Window, 1 or more. A window
	// begins with the first call after the last one's end; 100 ms to 10 minutes.
	Quota  int
	Window time.Duration
	// Latency is how long the API takes for an answer, 0 to a minute.
	Latency time.Duration
	// Threshold is the breaker's: rate-limited answers in a row that open it, 1 to
	// 1000. Cooldown is how long it then stays open, 100 ms to 10 minutes.
	Threshold int
	Cooldown  time.Duration
	// Serve, if set, serves a dashboard of what is in Redis and returns where. The show
	// then goes on with more jobs after its summary, until its context ends.
	Serve func(ctx context.Context, rdb redis.UniversalClient, client *jobs.Client) (url string, stop func() error, err error)
}

// Defaults are figures that show two incidents in about half a minute: the quota
// is reached after some two seconds, and again after the recovery.
func Defaults() Options {
	return Options{
		Jobs: 150, Workers: 3, Concurrency: 4,
		Quota: 50, Window: 10 * time.Second, Latency: 400 * time.Millisecond,
		Threshold: 3, Cooldown: 5 * time.Second,
	}
}

// Validate returns everything that is out of range, in one line.
func (o Options) Validate() error {
	var wrong []string
	check := func(name string, value, least, most any, in bool) {
		if !in {
			wrong = append(wrong, fmt.Sprintf("%s must be from %v to %v, is %v", name, least, most, value))
		}
	}
	number := func(name string, value, most int) { check(name, value, 1, most, 1 <= value && value <= most) }
	span := func(name string, value, least, most time.Duration) {
		check(name, value, least, most, least <= value && value <= most)
	}
	number("jobs", o.Jobs, 10000)
	number("workers", o.Workers, 20)
	number("concurrency", o.Concurrency, 100)
	number("quota", o.Quota, 1_000_000)
	number("threshold", o.Threshold, 1000)
	span("window", o.Window, 100*time.Millisecond, 10*time.Minute)
	span("cooldown", o.Cooldown, 100*time.Millisecond, 10*time.Minute)
	span("latency", o.Latency, 0, time.Minute)
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(wrong, "; "))
}
