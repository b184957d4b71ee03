package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// task is what a worker does.
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

// tally is what a worker reports in the end.
type tally struct {
	// Deferred counts runs of jobs that ended with the job back in the queue.
	Deferred int64 `json:"deferred"`
	// Trips counts round trips to Redis.
	Trips int64 `json:"trips"`
}

// contender is one way to publish.
type contender struct {
	name string
	// enqueue adds the jobs and returns their idempotency keys.
	enqueue func(ctx context.Context, rdb redis.UniversalClient, n int) ([]string, error)
	// serve publishes until ctx ends, and returns when nothing runs any more.
	serve func(ctx context.Context, rdb redis.UniversalClient, t task, deferred *atomic.Int64) error
}

// learning is Tidegate that learns limits which the API does not announce.
const learning = "Tidegate learning"

var contenders = []contender{
	{"asynq", enqueueAsynq, serveAsynq},
	{"asynq + naive breaker", enqueueAsynq, serveNaive},
	{"Tidegate plain", enqueueTidegate, serveTidegate},
	{learning, enqueueTidegate, serveTidegate},
}

// publishTask is the worker's main: it prints "ready", starts at the first line of stdin
// and ends with stdin.
func publishTask(ctx context.Context, text string, stdin io.Reader, stdout io.Writer) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return fmt.Errorf("worker: read the task: %w", err)
	}
	rdb := connect(t.Redis)
	defer func() { _ = rdb.Close() }()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	fmt.Fprintln(stdout, "ready")
	commands := bufio.NewReader(stdin)
	if _, err := commands.ReadString('\n'); err != nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, commands)
		stop()
	}()
	var deferred atomic.Int64
	count := &trips{}
	rdb.AddHook(count)
	for _, c := range contenders {
		if c.name == t.Contender {
			if err := c.serve(ctx, rdb, t, &deferred); err != nil {
				return fmt.Errorf("worker: %w", err)
			}
			return json.NewEncoder(stdout).Encode(tally{Deferred: deferred.Load(), Trips: count.n.Load()})
		}
	}
	return errors.New("worker: unknown contender " + t.Contender)
}

// trips counts a client's round trips to Redis: a pipeline is one.
type trips struct{ n atomic.Int64 }

var _ redis.Hook = (*trips)(nil)

func (t *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmds)
	}
}

// fleet is the worker processes of one run.
type fleet []*process

// startFleet returns when all workers are connected.
func startFleet(t testing.TB, work task) fleet {
	t.Helper()
	text := must(json.Marshal(work))(t)
	f := make(fleet, workers)
	for i := range f {
		f[i] = startProcess(t, rolePublisher, nil, string(text))
	}
	for _, p := range f {
		check(t, p.await(t.Context(), &p.out, func(string) bool { return true }))
	}
	return f
}

// begin lets all workers publish.
func (f fleet) begin(t testing.TB) {
	t.Helper()
	for _, p := range f {
		_, err := io.WriteString(p.stdin, "go\n")
		check(t, err)
	}
}

// stop ends all workers in order and sums up their tallies.
func (f fleet) stop(t testing.TB) (deferred, trips int64) {
	t.Helper()
	for _, p := range f {
		_ = p.stdin.Close()
	}
	for _, p := range f {
		p.stop(t)
		text, _ := p.out.read()
		var sum tally
		check(t, json.Unmarshal([]byte(strings.TrimPrefix(text, "ready\n")), &sum))
		deferred += sum.Deferred
		trips += sum.Trips
	}
	return deferred, trips
}
