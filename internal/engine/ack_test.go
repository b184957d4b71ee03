package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tidegate/tidegate/internal/asynqx"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"

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
				return len(c.acks.waiting)+(len(under.args)-4)/3 == n
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
			if err := asDone(context.Background(), c, s.queue, id); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	wg.Wait()
	calls := w.sent("complete")
	if len(calls) > 3 {
		t.Errorf("%d calls for %d jobs, want at most 3: the first one and two of 100", len(calls), n)
	}
	seen := map[string]int{}
	for _, call := range calls {
		if jobs := (len(call.args) - 4) / 3; jobs > maxCompletions {
			t.Errorf("a call of %d jobs, want at most %d", jobs, maxCompletions)
		}
		for i := 5; i < len(call.args); i += 3 {
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
			if err := asDone(context.Background(), c, s.queue, id); err != nil {
				t.Error(err)
			}
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
			var reply refusal
			if err := asDone(context.Background(), c, "q", id); !errors.As(err, &reply) || reply != "WRONGTYPE of a test" {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	wg.Wait()
	jobs := 0
	for _, call := range w.sent("complete") {
		jobs += (len(call.args) - 4) / 3
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

// An acknowledgement is repeated while the lease lives, less and less often.
func TestAcknowledgementsAreRepeatedUntilTheLeaseEnds(t *testing.T) {
	t.Parallel()
	message := (&store.Message{ID: "a", Queue: "q", ErrorMsg: "boom"}).AppendTo(nil)
	for _, tc := range []struct {
		name string
		ack  func(ctx context.Context, c *Engine) error
	}{
		{"complete", func(ctx context.Context, c *Engine) error {
			return c.recordCompletion(ctx, &completion{queue: "q", id: "a"})
		}},
		{"retry", func(ctx context.Context, c *Engine) error {
			return asServer(c).EvalSha(ctx, asynqx.SHA("retryCmd"), []string{store.TaskKey("q", "a")}, "a", message).Err()
		}},
		{"archive", func(ctx context.Context, c *Engine) error {
			return asServer(c).EvalSha(ctx, asynqx.SHA("archiveCmd"), []string{store.TaskKey("q", "a")}, "a", message).Err()
		}},
		{"requeue", func(ctx context.Context, c *Engine) error {
			return asServer(c).EvalSha(ctx, asynqx.SHA("requeueCmd"), []string{store.ActiveKey("q")}, "a").Err()
		}},
	} {
		for problem, want := range map[error]int{
			errGone:                              14, // at 0, 50, 150, 350, 750, 1550 ms, then every second
			refusal("LOADING from disk"):         14,
			refusal("OOM command not allowed"):   14,
			refusal("MISCONF cannot write"):      14,
			refusal("WRONGTYPE for good"):        1,
			refusal("MOVED 1 127.0.0.1:1"):       14,
			refusal("ERR max number of clients"): 14,
		} {
			t.Run(tc.name+"/"+problem.Error(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := &wire{answer: func(call) *redis.Cmd { return redis.NewCmdResult(nil, problem) }}
					c := New(w, Options{Queues: []string{"q"}})
					c.flight.add(&Delivery{Queue: "q", ID: "a"})
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					if err := tc.ack(ctx, c); !errors.Is(err, problem) {
						t.Errorf("error %v, want %v", err, problem)
					}
					if got := len(w.calls); got != want {
						t.Errorf("%d calls in 10 s, want %d", got, want)
					}
					c.cancel()
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
	s.must(asDone(context.Background(), c, s.queue, "a"))
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
	c.applyReturned(time.Now().Add(2 * ackWithin))
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

// What becomes of a job that asynq gives back: what its handler decided, or, if
// it did not, what asynq says.
func TestRetryCarriesOut(t *testing.T) {
	t.Parallel()
	const spread = 10 * time.Second
	for _, tc := range []struct {
		name    string
		inHand  bool
		decided *store.Outcome
		problem string // asynq's
		want    map[string]string
		fields  map[string]string // without times
		left    int               // in hand
		told    []store.Kind      // Recovered
	}{
		{
			name: "decided", inHand: true, decided: &store.Outcome{Kind: store.KindFail, Error: "boom"}, problem: "not completed",
			want: map[string]string{"failed": "a", "a": "failed"}, fields: map[string]string{"state": "failed", "last_error": "boom"},
		},
		{
			// The lease was lost, so that asynq did not acknowledge; its
			// recoverer finds the job.
			name: "decided, acknowledged by the recoverer", inHand: true, decided: &store.Outcome{Kind: store.KindReschedule, Reason: "later"}, problem: asynq.ErrLeaseExpired.Error(),
			want: map[string]string{"pending": "a", "a": "pending"}, fields: map[string]string{"state": "pending", "reschedules": "1", "reason": "later"},
		},
		{
			name: "its worker died", problem: asynq.ErrLeaseExpired.Error(),
			want:   map[string]string{"scheduled": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "crashes": "1", "crash_run": "", "reason": "worker_lost"},
			told:   []store.Kind{store.KindRecover},
		},
		{
			name: "this worker outlived the lease and still runs it", inHand: true, problem: asynq.ErrLeaseExpired.Error(),
			want:   map[string]string{"scheduled": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "crashes": "1", "crash_run": "", "reason": "worker_lost"},
			left:   1, told: []store.Kind{store.KindRecover},
		},
		{
			name: "asynq's deadline has passed", inHand: true, problem: "context deadline exceeded",
			want: map[string]string{"failed": "a", "a": "failed"}, fields: map[string]string{"state": "failed", "last_error": "context deadline exceeded"},
			left: 1,
		},
	} {
		for _, script := range []string{"retryCmd", "archiveCmd"} {
			t.Run(tc.name+"/"+script, func(t *testing.T) {
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
				var settled []store.Kind
				if tc.inHand {
					d := &Delivery{Queue: s.queue, ID: "a", started: time.Now()}
					c.flight.add(d)
					if tc.decided != nil {
						d.Decide(*tc.decided, func(a store.Applied) { settled = append(settled, a.Kind) })
					}
				}
				if tc.problem == asynq.ErrLeaseExpired.Error() {
					s.must(s.rdb.ZAdd(ctx, store.LeaseKey(s.queue), redis.Z{Score: 1, Member: "a"}).Err())
				}
				msg := (&store.Message{Type: store.TaskType, ID: "a", Queue: s.queue, ErrorMsg: tc.problem}).AppendTo(nil)
				before := s.now()
				s.must(asServer(c).EvalSha(ctx, asynqx.SHA(script), []string{store.TaskKey(s.queue, "a"), store.ActiveKey(s.queue)}, "a", msg).Err())
				if diff := cmp.Diff(tc.want, s.look()); diff != "" {
					t.Errorf("afterwards (-want +got):\n%s", diff)
				}
				fields := s.fields("a")
				if tc.told != nil {
					s.between("available_at", fields[store.FieldAvailableAt], before, s.now().Add(spread))
				}
				for _, at := range []string{store.FieldAvailableAt, store.FieldEndedAt, store.FieldPendingSince} {
					delete(fields, at)
				}
				if diff := cmp.Diff(tc.fields, fields); diff != "" {
					t.Errorf("record (-want +got):\n%s", diff)
				}
				if c.CountInFlight() != tc.left {
					t.Errorf("%d in hand, want %d", c.CountInFlight(), tc.left)
				}
				if diff := cmp.Diff(tc.told, told); diff != "" {
					t.Errorf("recovered (-want +told):\n%s", diff)
				}
				if tc.decided != nil && (len(settled) != 1 || settled[0] != tc.decided.Kind) {
					t.Errorf("the outcome was told %v", settled)
				}
			})
		}
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

// asynq's recoverer has no deadline, and its Server's shutdown waits for it.
func TestRecoveryDoesNotHoldUpAShutdown(t *testing.T) {
	t.Parallel()
	recoverOne := func(c *Engine) time.Duration {
		started := time.Now()
		msg := (&store.Message{ID: "a", Queue: "q", ErrorMsg: asynq.ErrLeaseExpired.Error()}).AppendTo(nil)
		_ = asServer(c).EvalSha(context.Background(), asynqx.SHA("retryCmd"), []string{store.TaskKey("q", "a")}, "a", msg)
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

// A message that cannot be decoded is refused, not lost: it stays in hand until
// somebody looks.
func TestRetryOfGarbage(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1})
	defer c.CloseGate(context.Background())
	s.active("a")
	for _, garbage := range []any{[]byte{0xff}, nil, "text"} {
		if err := asServer(c).EvalSha(context.Background(), asynqx.SHA("retryCmd"), []string{store.TaskKey(s.queue, "a")}, "a", garbage).Err(); err == nil {
			t.Errorf("%v was accepted", garbage)
		}
	}
	if diff := cmp.Diff(map[string]string{"active": "a", "lease": "a", "a": "active"}, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

// An acknowledgement that comes after a stall, when the job was settled without it,
// takes it from nobody: neither from another worker, nor from a later run of this one.
func TestAcknowledgementOfASettledJob(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{false, true} {
		t.Run(fmt.Sprintf("same worker %t", same), func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1})
			defer c.CloseGate(context.Background())
			s.pending("a")
			asDequeue(t, c, s.queue)
			c.Delivery("a").Decide(store.Outcome{Kind: store.KindReschedule}, nil)
			c.applyReturned(time.Now().Add(2 * ackWithin))
			if same {
				asDequeue(t, c, s.queue)
			} else if got := fetchIDs(s, 1); len(got) != 1 {
				t.Fatalf("took %v", got)
			}
			s.must(asServer(c).EvalSha(context.Background(), asynqx.SHA("doneCmd"), []string{store.TaskKey(s.queue, "a")}, "a").Err())
			if diff := cmp.Diff(map[string]string{"active": "a", "lease": "a", "a": "active"}, s.look()); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1})
	defer c.CloseGate(context.Background())
	s.pending("waiting")
	s.active("a")
	c.flight.add(&Delivery{Queue: s.queue, ID: "a"})
	s.must(asServer(c).EvalSha(context.Background(), asynqx.SHA("requeueCmd"),
		[]string{store.ActiveKey(s.queue), store.LeaseKey(s.queue), store.PendingKey(s.queue), store.TaskKey(s.queue, "a")}, "a").Err())
	if diff := cmp.Diff(map[string]string{"pending": "a waiting", "a": "pending", "waiting": "pending"}, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	if c.CountInFlight() != 0 {
		t.Error("it is still in hand")
	}
}

// A delivery whose handler has returned and that asynq never acknowledged is
// dropped after a while, so that its slot is free, and not before Redis knows.
func TestForgottenDeliveries(t *testing.T) {
	t.Parallel()
	var problem error
	w := &wire{answer: func(call) *redis.Cmd { return redis.NewCmdResult([]any{"gone", int64(0), int64(0), int64(0)}, problem) }}
	c := New(w, Options{Queues: []string{"q"}, Concurrency: 2})
	defer c.cancel()
	returned, running := &Delivery{ID: "returned"}, &Delivery{ID: "running"}
	c.flight.add(returned)
	c.flight.add(running)
	returned.Decide(store.Outcome{Kind: store.KindFail}, nil)
	if got := c.free(); got != 1 {
		t.Errorf("asynq has a slot, so that at least one may be fetched; free is %d", got)
	}
	c.applyReturned(time.Now())
	if got := c.CountInFlight(); got != 2 {
		t.Errorf("%d in hand at once, want 2: asynq may still acknowledge", got)
	}
	problem = errGone
	c.applyReturned(time.Now().Add(2 * ackWithin))
	if got := c.CountInFlight(); got != 2 {
		t.Errorf("%d in hand without Redis, want 2", got)
	}
	problem = nil
	c.applyReturned(time.Now().Add(2 * ackWithin))
	if c.CountInFlight() != 1 || c.Delivery("running") == nil {
		t.Errorf("%d in hand, want the running one only", c.CountInFlight())
	}
}
