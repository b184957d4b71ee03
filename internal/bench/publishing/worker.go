package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// workerEnv makes this program a worker: it holds the task as JSON.
const workerEnv = "TIDEGATE_BENCH_WORKER"

// task is what a worker is told.
type task struct {
	Contender string        `json:"contender"`
	Redis     string        `json:"redis"` // host:port
	URL       string        `json:"url"`
	Punishes  bool          `json:"punishes"`
	Hints     bool          `json:"hints"`
	Cooldown  time.Duration `json:"cooldown"`
	// Jitter is the longest random pause that bare asynq adds to each retry.
	Jitter time.Duration `json:"jitter"`
}

// tally is what a worker tells in the end.
type tally struct {
	// PutOff counts runs of jobs that ended with the job back in the queue.
	PutOff int64 `json:"put_off"`
	// Trips counts round trips to Redis.
	Trips int64 `json:"trips"`
}

// contender is one way to publish.
type contender struct {
	name string
	// enqueue adds the jobs and returns their idempotency keys.
	enqueue func(ctx context.Context, rdb redis.UniversalClient, n int) ([]string, error)
	// serve publishes until ctx ends, and returns when nothing runs any more.
	serve func(ctx context.Context, rdb redis.UniversalClient, t task, putOff *atomic.Int64) error
}

var contenders = []contender{
	{"asynq", enqueueAsynq, serveAsynq},
	{"asynq + naive breaker", enqueueAsynq, serveNaive},
	{"Tidegate", enqueueTidegate, serveTidegate},
}

// work is the worker's main: it says "ready", starts at the first line of stdin and
// ends with stdin, so that no worker outlives the program that started it.
func work(ctx context.Context, text string, stdin io.Reader, stdout io.Writer) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return fmt.Errorf("worker: read %s: %w", workerEnv, err)
	}
	rdb := connect(t.Redis)
	defer func() { _ = rdb.Close() }()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	fmt.Fprintln(stdout, "ready")
	orders := bufio.NewReader(stdin)
	if _, err := orders.ReadString('\n'); err != nil {
		return nil // called off
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, orders)
		stop()
	}()
	var putOff atomic.Int64
	count := &trips{}
	rdb.AddHook(count)
	for _, c := range contenders {
		if c.name == t.Contender {
			if err := c.serve(ctx, rdb, t, &putOff); err != nil {
				return fmt.Errorf("worker: %w", err)
			}
			return json.NewEncoder(stdout).Encode(tally{PutOff: putOff.Load(), Trips: count.n.Load()})
		}
	}
	return errors.New("worker: unknown contender " + t.Contender)
}

// connect has the options that Tidegate asks for, for all alike.
func connect(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}
