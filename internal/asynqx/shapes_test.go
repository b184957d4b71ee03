package asynqx

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/engine"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// What a plain asynq Server sends, in the positions that this package reads or
// writes itself.
func TestShapesOfAsynqsCalls(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	ctx := context.Background()
	high, queue := s.queue+":high", s.queue
	w := &wire{UniversalClient: s.rdb}

	client := asynq.NewClientFromRedisClient(s.rdb)
	enqueue := func(id string, opts ...asynq.Option) {
		t.Helper()
		opts = append([]asynq.Option{asynq.Queue(queue), asynq.TaskID(id), asynq.MaxRetry(math.MaxInt32)}, opts...)
		if _, err := client.Enqueue(asynq.NewTask("t", []byte(id)), opts...); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("done")
	enqueue("kept", asynq.Retention(time.Hour))
	enqueue("fails")
	enqueue("exhausted", asynq.MaxRetry(0))
	enqueue("revoked")
	enqueue("cut")
	// What a worker leaves that died a long time ago.
	enqueue("lost")
	enqueue("poison", asynq.MaxRetry(0))
	for _, id := range []string{"lost", "poison"} {
		s.must(s.rdb.LRem(ctx, store.PendingKey(queue), 1, id).Err())
		s.must(s.rdb.LPush(ctx, store.ActiveKey(queue), id).Err())
		s.must(s.rdb.ZAdd(ctx, store.LeaseKey(queue), redis.Z{Score: 1, Member: id}).Err())
	}

	inCall, goOn := make(chan struct{}), make(chan struct{})
	defer close(goOn)
	started := time.Now()
	server := asynq.NewServerFromRedisClient(w, asynq.Config{
		Concurrency: 1, Queues: map[string]int{high: 2, queue: 1}, StrictPriority: true,
		TaskCheckInterval: 5 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond, JanitorInterval: 50 * time.Millisecond,
		ShutdownTimeout: 10 * time.Millisecond, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
		IsFailure:      func(error) bool { return false },
	})
	s.must(server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		switch string(task.Payload()) {
		case "fails", "exhausted":
			return errors.New("boom")
		case "revoked":
			return asynq.RevokeTask
		case "cut":
			close(inCall)
			<-goOn
		}
		return nil
	})))
	<-inCall
	redistest.Eventually(t, "the janitor and the forwarder have come by", func() bool {
		return len(w.sent("deleteExpiredCompletedTasksCmd")) > 0 && len(w.sent("forwardCmd")) > 2
	})
	server.Shutdown()
	ended := time.Now()

	for _, c := range w.calls {
		if _, ok := asynqScripts[c.sha]; !ok {
			t.Errorf("a script that is not known was sent: %s with keys %v", c.sha, c.keys)
		}
	}
	// find returns the call of a script for a job, or the first one for "".
	find := func(script, id string) call {
		t.Helper()
		for _, c := range w.sent(script) {
			if id == "" || c.args[0] == id {
				if got := queueOf(c.keys[0]); got != queue && got != high {
					t.Errorf("%s: queue %q from %s", script, got, c.keys[0])
				}
				return c
			}
		}
		t.Errorf("asynq has not sent %s for %q", script, id)
		t.FailNow()
		return call{}
	}
	day := started.UTC().Format(time.DateOnly)
	if next := ended.UTC().Format(time.DateOnly); next != day {
		t.Log("the day has changed during the test; the names of the counters are those of either day")
	}
	key := func(suffix string) string { return "asynq:{" + queue + "}:" + suffix }
	keys := func(c call, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, c.keys, cmp.Transformer("day", func(k string) string {
			return strings.ReplaceAll(k, ended.UTC().Format(time.DateOnly), day)
		})); diff != "" {
			t.Errorf("%s: keys (-want +sent):\n%s", c.script(), diff)
		}
	}
	unix := func(c call, i int, after time.Duration) {
		t.Helper()
		n, ok := c.args[i].(int64)
		if !ok || n < started.Add(after).Unix() || n > ended.Add(after).Unix() {
			t.Errorf("%s: ARGV[%d] is %v (%T), want unix seconds %s ahead", c.script(), i+1, c.args[i], c.args[i], after)
		}
	}
	message := func(c call, i int, id, problem string) {
		t.Helper()
		b, ok := c.args[i].([]byte)
		if !ok {
			t.Fatalf("%s: ARGV[%d] is a %T, want the encoded message", c.script(), i+1, c.args[i])
		}
		m, err := store.DecodeMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		if m.ID != id || m.Queue != queue || m.ErrorMsg != problem {
			t.Errorf("%s: message of %s in %s with error %q; want %s, %s, %q", c.script(), m.ID, m.Queue, m.ErrorMsg, id, queue, problem)
		}
	}
	const statsTTL = 90 * 24 * time.Hour

	// Dequeue: all queues in order of urgency, again and again.
	for i, c := range w.sent("dequeueCmd")[:2] {
		q := []string{high, queue}[i]
		want := []string{store.PendingKey(q), store.PausedKey(q), store.ActiveKey(q), store.LeaseKey(q)}
		if diff := cmp.Diff(want, c.keys); diff != "" {
			t.Errorf("dequeue %d: keys (-want +sent):\n%s", i+1, diff)
		}
		unix(c, 0, 30*time.Second)
		if len(c.args) != 2 || c.args[1] != store.TaskPrefix(q) {
			t.Errorf("dequeue %d: ARGV %v", i+1, c.args)
		}
	}

	c := find("doneCmd", "done")
	keys(c, store.ActiveKey(queue), store.LeaseKey(queue), store.TaskKey(queue, "done"), key("processed:"+day), key("processed"))
	unix(c, 1, statsTTL)
	find("doneCmd", "revoked") // RevokeTask would delete the record: no outcome of ours uses it

	c = find("markAsCompleteCmd", "kept")
	keys(c, store.ActiveKey(queue), store.LeaseKey(queue), store.CompletedKey(queue), store.TaskKey(queue, "kept"), key("processed:"+day), key("processed"))
	unix(c, 1, statsTTL)
	unix(c, 2, time.Hour)

	retryKeys := func(id, set string) []string {
		return []string{
			store.TaskKey(queue, id), store.ActiveKey(queue), store.LeaseKey(queue), set,
			key("processed:" + day), key("failed:" + day), key("processed"), key("failed"),
		}
	}
	c = find("retryCmd", "fails")
	keys(c, retryKeys("fails", store.RetryKey(queue))...)
	message(c, 1, "fails", "boom")
	c = find("retryCmd", "lost")
	keys(c, retryKeys("lost", store.RetryKey(queue))...)
	message(c, 1, "lost", asynq.ErrLeaseExpired.Error())

	c = find("archiveCmd", "exhausted")
	keys(c, append(retryKeys("exhausted", key("archived")), store.TaskPrefix(queue))...)
	message(c, 1, "exhausted", "boom")
	message(find("archiveCmd", "poison"), 1, "poison", asynq.ErrLeaseExpired.Error())

	c = find("requeueCmd", "cut")
	keys(c, store.ActiveKey(queue), store.LeaseKey(queue), store.PendingKey(queue), store.TaskKey(queue, "cut"))
	if len(c.args) != 1 {
		t.Errorf("requeue: ARGV %v", c.args)
	}

	// Forward: scheduled before retry, for each queue.
	first := map[string]string{}
	for _, c := range w.sent("forwardCmd") {
		if q := queueOf(c.keys[0]); first[q] == "" {
			first[q] = c.keys[0]
		}
	}
	if diff := cmp.Diff(map[string]string{high: store.ScheduledKey(high), queue: store.ScheduledKey(queue)}, first); diff != "" {
		t.Errorf("the first set that is forwarded, by queue (-want +sent):\n%s", diff)
	}

	c = find("deleteExpiredCompletedTasksCmd", "")
	if c.keys[0] != store.CompletedKey(queueOf(c.keys[0])) {
		t.Errorf("janitor: keys %v", c.keys)
	}
	c = find("listLeaseExpiredCmd", "")
	if c.keys[0] != store.LeaseKey(queueOf(c.keys[0])) {
		t.Errorf("recoverer: keys %v", c.keys)
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
