package engine

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// Completions with long answers and outputs are sent in calls of at most 4 MiB, one that has more
// alone.
func TestCompletionsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	all := make(chan struct{})
	var calls [][]int
	k := committer{flush: func(batch []*completion) {
		<-all
		var sizes []int
		for _, a := range batch {
			sizes = append(sizes, a.size()>>20)
		}
		calls = append(calls, sizes)
		for _, a := range batch {
			a.done <- nil
		}
	}}
	k.busy = true // until all wait
	var wg sync.WaitGroup
	for i, mib := range []int{1, 2, 1, 1, 5, 3, 2} {
		wg.Go(func() {
			a := &completion{response: &store.Response{Body: strings.Repeat("x", mib<<20-9)}, output: "123456789"}
			if err := k.do(a); err != nil {
				t.Error(err)
			}
		})
		redistest.Eventually(t, "it waits", func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.waiting) == i+1
		})
	}
	close(all)
	k.run()
	wg.Wait()
	if diff := cmp.Diff([][]int{{1, 2, 1}, {1}, {5}, {3}, {2}}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// Completions that come while a call is under way share the next ones.
func TestCompletionsShareCalls(t *testing.T) {
	t.Parallel()
	const n = 200
	s := realQueue(t)
	w := &wire{UniversalClient: s.rdb}
	c := New(w, Options{Queues: []string{s.queue}, Concurrency: n, Retention: time.Hour, Worker: "host:1"})
	defer c.CloseGate(context.Background())
	var first sync.Once
	w.answer = func(under call) *redis.Cmd {
		first.Do(func() {
			// Until all the others wait behind this call.
			redistest.Eventually(t, "all wait", func() bool {
				c.acks.mu.Lock()
				defer c.acks.mu.Unlock()
				return len(c.acks.waiting)+(len(under.args)-4)/4 == n
			})
		})
		return nil
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("j%03d", i)
	}
	s.active(ids...)
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			asDone(c, s.queue, id)
		})
	}
	wg.Wait()
	calls := w.sent("complete")
	if len(calls) > 3 {
		t.Errorf("%d calls for %d jobs, want at most 3: the first one and two of 100", len(calls), n)
	}
	seen := map[string]int{}
	for _, call := range calls {
		if jobs := (len(call.args) - 4) / 4; jobs > maxCompletions {
			t.Errorf("a call of %d jobs, want at most %d", jobs, maxCompletions)
		}
		for i := 5; i < len(call.args); i += 4 {
			seen[fmt.Sprint(call.args[i])]++
		}
	}
	for _, id := range ids {
		if seen[id] != 1 {
			t.Errorf("%s was sent %d times", id, seen[id])
		}
	}
	if got := s.rdb.ZCard(context.Background(), store.CompletedKey(s.queue)).Val(); got != n {
		t.Errorf("%d of %d jobs are completed", got, n)
	}
}

// Jobs of several queues are not mixed up: each is completed in its own.
func TestCompletionsOfSeveralQueues(t *testing.T) {
	t.Parallel()
	high, low := realQueue(t), realQueue(t)
	c := New(high.rdb, Options{Queues: []string{high.queue, low.queue}, Concurrency: 10, Retention: time.Hour})
	defer c.CloseGate(context.Background())
	high.active("a", "b")
	low.active("c", "d")
	var wg sync.WaitGroup
	for id, s := range map[string]*testQueue{"a": high, "b": high, "c": low, "d": low} {
		wg.Go(func() {
			asDone(c, s.queue, id)
		})
	}
	wg.Wait()
	if diff := cmp.Diff(map[string]string{"completed": "a b", "a": "completed", "b": "completed"}, high.look()); diff != "" {
		t.Errorf("high (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"completed": "c d", "c": "completed", "d": "completed"}, low.look()); diff != "" {
		t.Errorf("low (-want +got):\n%s", diff)
	}
}

// What Redis refuses for good is not repeated, and all who shared the call are
// told.
func TestRefusedCompletionReachesAll(t *testing.T) {
	t.Parallel()
	const n = 200
	w := &wire{answer: func(call) *redis.Cmd { return redis.NewCmdResult(nil, refusal("WRONGTYPE of a test")) }}
	c := New(w, Options{Queues: []string{"q"}, Concurrency: n})
	var told atomic.Int32
	var wg sync.WaitGroup
	for i := range n {
		id := fmt.Sprint("j", i)
		d := &Delivery{Queue: "q", ID: id}
		c.flight.add(d)
		d.Decide(store.Outcome{Kind: store.KindComplete}, func(a store.Applied) {
			if a.Kind == "" {
				told.Add(1)
			}
		})
		wg.Go(func() {
			asDone(c, "q", id)
		})
	}
	wg.Wait()
	jobs := 0
	for _, call := range w.sent("complete") {
		jobs += (len(call.args) - 4) / 4
	}
	if jobs != n {
		t.Errorf("%d jobs were sent, want each of %d once", jobs, n)
	}
	if told.Load() != n {
		t.Errorf("%d of %d outcomes were told that nothing came of them", told.Load(), n)
	}
	if c.CountInFlight() != 0 {
		t.Errorf("%d jobs are still in hand", c.CountInFlight())
	}
	if err := c.CloseGate(context.Background()); err != nil {
		t.Error(err)
	}
}

// An acknowledgement is repeated until the worker is told to stop, less and less often.
func TestAcknowledgementsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, kind := range []store.Kind{store.KindComplete, store.KindRetry} {
		for problem, want := range map[error]int{
			errGone:                              14, // at 0, 50, 150, 350, 750, 1550 ms, then every second
			refusal("LOADING from disk"):         14,
			refusal("OOM command not allowed"):   14,
			refusal("MISCONF cannot write"):      14,
			refusal("WRONGTYPE for good"):        1,
			refusal("MOVED 1 127.0.0.1:1"):       14,
			refusal("ERR max number of clients"): 14,
		} {
			t.Run(string(kind)+"/"+problem.Error(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := &wire{answer: func(call) *redis.Cmd { return redis.NewCmdResult(nil, problem) }}
					c := New(w, Options{Queues: []string{"q"}})
					d := &Delivery{Queue: "q", ID: "a"}
					c.flight.add(d)
					d.Decide(store.Outcome{Kind: kind}, nil)
					time.AfterFunc(10*time.Second, c.Abort)
					if over := c.settle(d); over != (want == 1) {
						t.Errorf("over %t", over)
					}
					if got := len(w.calls); got != want {
						t.Errorf("%d calls in 10 s, want %d", got, want)
					}
					c.Abort()
				})
			})
		}
	}
}

// An outage that ends before the lease does leaves nothing behind.
func TestCompletionAfterAnOutage(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	w := &wire{UniversalClient: s.rdb}
	var tries atomic.Int32
	w.answer = func(call) *redis.Cmd {
		if tries.Add(1) <= 3 {
			return redis.NewCmdResult(nil, errGone)
		}
		return nil
	}
	var log bytes.Buffer
	c := New(w, Options{
		Queues: []string{s.queue}, Concurrency: 1, Retention: time.Hour, Worker: "host:1",
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	defer c.CloseGate(context.Background())
	s.active("a")
	d := &Delivery{Queue: s.queue, ID: "a"}
	c.flight.add(d)
	var settled []store.Applied
	d.Decide(store.Outcome{Kind: store.KindComplete, Response: &store.Response{Status: 201, Body: "ok"}}, func(s store.Applied) { settled = append(settled, s) })
	asDone(c, s.queue, "a")
	if diff := cmp.Diff(map[string]string{"completed": "a", "a": "completed"}, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	if got := s.fields("a"); got[store.FieldResponseStatus] != "201" || got[store.FieldResponseBody] != "ok" {
		t.Errorf("record %v", got)
	}
	if diff := cmp.Diff([]store.Applied{{Kind: store.KindComplete}}, settled); diff != "" {
		t.Errorf("the outcome was told (-want +got):\n%s", diff)
	}
	if c.CountInFlight() != 0 || tries.Load() != 4 {
		t.Errorf("%d in hand after %d tries, want none after 4", c.CountInFlight(), tries.Load())
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "redis does not answer") || !strings.Contains(lines[1], "redis answers again") {
		t.Errorf("three failures and a success were logged as\n%s", log.String())
	}
}

// A success whose lease was lost is recorded as asynq's own would be.
func TestCompleteLate(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1, Retention: time.Hour, Worker: "host:1"})
	defer c.CloseGate(context.Background())
	s.at(store.ScheduledKey(s.queue), "a", store.StateScheduled, time.Now().Add(time.Minute), store.FieldCrashes, 1)
	d := &Delivery{Queue: s.queue, ID: "a"}
	c.flight.add(d)
	d.Decide(store.Outcome{Kind: store.KindComplete, Response: &store.Response{Status: 200}}, nil)
	day := time.Now().UTC().Format(time.DateOnly)
	settleDecided(c)
	if diff := cmp.Diff(map[string]string{"completed": "a", "a": "completed"}, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	if c.CountInFlight() != 0 {
		t.Error("it is still in hand")
	}
	if next := time.Now().UTC().Format(time.DateOnly); next != day {
		day = next // midnight has passed
	}
	ttl := s.rdb.TTL(context.Background(), s.stats(":"+day)).Val()
	if ttl < 90*24*time.Hour-time.Minute || ttl > 90*24*time.Hour {
		t.Errorf("asynq's counter of the day lives for %s, want 90 days", ttl)
	}
}

// A job whose lease has lapsed comes back after a while, also if its worker lives and still runs it.
func TestRecover(t *testing.T) {
	t.Parallel()
	const spread = 10 * time.Second
	for _, lives := range []bool{false, true} {
		t.Run(fmt.Sprint("its worker lives ", lives), func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			ctx := context.Background()
			var told []store.Kind
			c := New(s.rdb, Options{
				Queues: []string{s.queue}, Concurrency: 1, RecoverSpread: spread,
				Recovered: func(msg *store.Message, st store.Applied) {
					if msg.ID != "a" || msg.Queue != s.queue || st.Count != 1 || st.Error != "" {
						t.Errorf("told of %s in %s: %+v", msg.ID, msg.Queue, st)
					}
					told = append(told, st.Kind)
				},
			})
			defer c.CloseGate(ctx)
			s.active("a")
			left := 0
			if lives {
				c.flight.add(&Delivery{Queue: s.queue, ID: "a"})
				left = 1
			}
			s.lease("a", time.Unix(1, 0))
			before := s.now()
			s.asLost(c, "a")
			if diff := cmp.Diff(map[string]string{"scheduled": "a", "a": "scheduled"}, s.look()); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
			fields := s.fields("a")
			s.between("available_at", fields[store.FieldAvailableAt], before, s.now().Add(spread))
			delete(fields, store.FieldAvailableAt)
			if diff := cmp.Diff(map[string]string{"state": "scheduled", "crashes": "1", "crash_run": "", "reason": "worker_lost"}, fields); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			if c.CountInFlight() != left {
				t.Errorf("%d in hand, want %d", c.CountInFlight(), left)
			}
			if diff := cmp.Diff([]store.Kind{store.KindRecover}, told); diff != "" {
				t.Errorf("recovered (-want +told):\n%s", diff)
			}
		})
	}
}

// Jobs of a dead worker do not come back all together.
func TestRecoveredJobsAreSpread(t *testing.T) {
	t.Parallel()
	const spread = 30 * time.Second
	c := New(nil, Options{Queues: []string{"q"}})
	defer c.cancel()
	var first, second, third int
	for range 3000 {
		at := time.Until(c.recoverOutcome().At)
		switch {
		case at < -time.Second || at > spread:
			t.Fatalf("a job comes back in %s", at)
		case at < spread/3:
			first++
		case at < 2*spread/3:
			second++
		default:
			third++
		}
	}
	for _, n := range []int{first, second, third} {
		if n < 850 || n > 1150 {
			t.Fatalf("by thirds of the spread: %d, %d, %d; want about 1000 each", first, second, third)
		}
	}
}

// A recovery that Redis does not answer does not hold up a shutdown.
func TestRecoveryDoesNotHoldUpAShutdown(t *testing.T) {
	t.Parallel()
	recoverOne := func(c *Engine) time.Duration {
		started := time.Now()
		c.Recover("q", store.Lapsed{RunOf: store.RunOf{ID: "a"}})
		return time.Since(started)
	}
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answer: func(call) *redis.Cmd { return redis.NewCmdResult(nil, errGone) }}
		c := New(w, Options{Queues: []string{"q"}})
		if took := recoverOne(c); took > redisTimeout {
			t.Errorf("it was tried for %s, want at most %s: it comes by again", took, redisTimeout)
		}
		ended := make(chan time.Duration)
		go func() { ended <- recoverOne(c) }()
		<-time.After(time.Second)
		if err := c.CloseGate(context.Background()); err != nil {
			t.Error(err)
		}
		if took := <-ended; took != time.Second {
			t.Errorf("it ended after %s, want with the gate after 1s", took)
		}
	})
}

// A job whose handler does not return goes back to the head of its queue.
func TestRequeueUndecided(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1})
	defer c.CloseGate(context.Background())
	s.pending("waiting")
	s.active("a")
	c.flight.add(&Delivery{Queue: s.queue, ID: "a"})
	c.requeueUndecided()
	if diff := cmp.Diff(map[string]string{"pending": "a waiting", "a": "pending", "waiting": "pending"}, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	if c.CountInFlight() != 0 {
		t.Error("it is still in hand")
	}
}
