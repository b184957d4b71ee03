package asynqx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// counting is an Engine with so many jobs.
type counting struct {
	Engine
	jobs, recovered, purged, beats atomic.Int32
}

func (c *counting) Next() bool {
	if c.jobs.Add(-1) >= 0 {
		return true
	}
	<-time.After(time.Millisecond)
	return false
}

func (c *counting) RecoverLapsed()             { c.recovered.Add(1) }
func (c *counting) Purge(context.Context)      { c.purged.Add(1) }
func (c *counting) Heartbeat(time.Time, error) { c.beats.Add(1) }
func (c *counting) Aborted() error             { return nil }
func (c *counting) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// A Server calls its handler once for each job of the engine, whatever the handler returns, and writes
// nothing but its state to Redis.
func TestServerRunsTheEnginesJobs(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	w := &wire{UniversalClient: redistest.Database(t).Client(t)}
	e := &counting{}
	e.jobs.Store(20)
	var calls atomic.Int32
	server := asynq.NewServerFromRedisClient(New(w, e), asynq.Config{
		Concurrency: 3, Queues: map[string]int{Queue: 1}, TaskCheckInterval: time.Millisecond, JanitorInterval: 50 * time.Millisecond,
		ShutdownTimeout: 10 * time.Millisecond, LogLevel: asynq.FatalLevel,
	})
	goOn := make(chan struct{})
	defer close(goOn)
	s.must(server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		n := calls.Add(1)
		if len(task.Payload()) != 0 || task.Type() != store.TaskType {
			t.Errorf("task %s with %q", task.Type(), task.Payload())
		}
		switch n {
		case 5:
			return errors.New("boom")
		case 6:
			panic("boom")
		case 20: // does not return until after the shutdown
			<-goOn
		}
		return nil
	})))
	redistest.Eventually(t, "all have run", func() bool {
		return calls.Load() == 20 && e.recovered.Load() > 0 && e.purged.Load() > 0 && e.beats.Load() > 0
	})
	servers, err := asynq.NewInspectorFromRedisClient(w.UniversalClient).Servers()
	s.must(err)
	if len(servers) != 1 || len(servers[0].ActiveWorkers) != 0 {
		t.Errorf("asynq lists %+v", servers)
	}
	server.Shutdown()
	var sent []string
	for _, c := range w.calls {
		if !slices.Contains(sent, c.script()) {
			sent = append(sent, c.script())
		}
	}
	slices.Sort(sent)
	if diff := cmp.Diff([]string{"clearServerStateCmd", "reclaimStateAggregationSetsCmd", "writeServerStateCmd"}, sent); diff != "" {
		t.Errorf("scripts that reach Redis (-want +got):\n%s", diff)
	}
	keys := w.UniversalClient.Keys(t.Context(), "*").Val()
	if slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "{"+Queue+"}") }) {
		t.Errorf("the queue that stands for all has keys: %v", keys)
	}
}

// A script that asynq v0.26.0 does not have stops the Server, once.
func TestUnknownScriptIsFatal(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	var told []error
	e := engine.New(s.rdb, engine.Options{Queues: []string{s.queue}, Fatal: func(err error) { told = append(told, err) }})
	defer e.CloseGate(context.Background())
	c := New(s.rdb, engine.NewWorker(s.rdb, engine.WorkerOptions{}, e))
	unknown := redis.NewScript("return 'from another version'")
	for range 3 {
		// Run would fall back to EVAL if this looked like a script not loaded.
		reply, err := unknown.Run(context.Background(), c, []string{store.PendingKey(s.queue)}).Result()
		var want *UnknownScriptError
		if reply != nil || !errors.As(err, &want) || want.SHA != unknown.Hash() {
			t.Fatalf("reply %v, error %v; want an UnknownScriptError of %s", reply, err, unknown.Hash())
		}
	}
	text := fmt.Sprintf("asynqx: asynq sent script %s, which is none of version v0.26.0; build Tidegate with that version", unknown.Hash())
	if len(told) != 1 || told[0].Error() != text {
		t.Errorf("Fatal was told %q, want once %q", told, text)
	}
}

// The client is a Server's alone: what an asynq Client sends is not
// known either, and nothing is written.
func TestServersClientDoesNotEnqueue(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	var fatal error
	e := engine.New(s.rdb, engine.Options{Queues: []string{s.queue}, Fatal: func(err error) { fatal = err }})
	defer e.CloseGate(context.Background())
	c := New(s.rdb, engine.NewWorker(s.rdb, engine.WorkerOptions{}, e))
	_, err := asynq.NewClientFromRedisClient(c).Enqueue(asynq.NewTask("t", nil), asynq.Queue(s.queue))
	if err == nil || fatal == nil {
		t.Errorf("enqueue through a Server's client: error %v, Fatal %v; want both", err, fatal)
	}
	if keys := s.rdb.Keys(context.Background(), "*{"+s.queue+"}*").Val(); len(keys) != 0 {
		t.Errorf("the queue has %v", keys)
	}
}
