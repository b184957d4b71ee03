package engine

import (
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// testQueue is one queue in a Redis and everything to fill it and to look at it.
type testQueue struct {
	t     *testing.T
	rdb   redis.UniversalClient
	queue string
}

// realQueue is a queue of its own in the package's redis-server. Its jobs are
// deleted when the test ends: to look at a queue takes the longer, the more keys
// there are.
func realQueue(t *testing.T) *testQueue {
	t.Helper()
	s := queueIn(t, redistest.Shared(t).Client(t))
	t.Cleanup(func() {
		for keys := range slices.Chunk(s.records(), 1000) {
			s.must(s.rdb.Del(context.Background(), keys...).Err())
		}
	})
	return s
}

// records are the keys of all jobs of the queue.
func (s *testQueue) records() []string {
	s.t.Helper()
	prefix := strings.NewReplacer("{", "[{]", "}", "[}]").Replace(store.TaskPrefix(s.queue))
	keys, err := s.rdb.Keys(context.Background(), prefix+"*").Result()
	s.must(err)
	return keys
}

func queueIn(t *testing.T, rdb redis.UniversalClient) *testQueue {
	t.Helper()
	return &testQueue{t: t, rdb: rdb, queue: store.DefaultNamespace.Queue(redistest.Name(t, "d"), store.Default)}
}

// bothRedises runs a test on a real Redis and on the embedded one, which the
// demo uses.
func bothRedises(t *testing.T, test func(t *testing.T, s *testQueue)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, realQueue(t))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		rdb := redis.NewClient(&redis.Options{
			Addr: miniredis.RunT(t).Addr(), ContextTimeoutEnabled: true, MaxRetries: -1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = rdb.Close() })
		test(t, queueIn(t, rdb))
	})
}

// message is what stands in the hash of a job of this queue.
func (s *testQueue) message(id string) string {
	m := store.Message{Type: store.TaskType, ID: id, Queue: s.queue, Payload: []byte(`{}`), Retry: store.MaxRetry, Timeout: store.TaskTimeout}
	return string(m.AppendTo(nil))
}

// hash writes the record of a job without putting it anywhere.
func (s *testQueue) hash(id, state string, fields ...any) {
	s.t.Helper()
	fields = append([]any{store.FieldMsg, s.message(id), store.FieldState, state}, fields...)
	s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, id), fields...).Err())
}

// pending puts jobs into the queue, the first one to run first.
func (s *testQueue) pending(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.hash(id, store.StatePending, store.FieldPendingSince, "1")
		s.must(s.rdb.LPush(context.Background(), store.PendingKey(s.queue), id).Err())
	}
	s.wake("")
}

// wake publishes what a script does that has put a job into an empty list, or one that is the
// next to be due in some ms.
func (s *testQueue) wake(ms string) {
	s.t.Helper()
	s.must(s.rdb.Publish(context.Background(), store.DefaultNamespace.WakeChannel(), s.queue+ms).Err())
}

// active puts jobs into a worker's hands, as dequeue does.
func (s *testQueue) active(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.hash(id, store.StateActive)
		s.must(s.rdb.LPush(context.Background(), store.ActiveKey(s.queue), id).Err())
		s.must(s.rdb.ZAdd(context.Background(), store.LeaseKey(s.queue), redis.Z{Score: 4e9, Member: id}).Err())
	}
}

// at puts a job into a set of asynq by a time, and one that waits for it into ours.
func (s *testQueue) at(key, id, state string, at time.Time, fields ...any) {
	s.t.Helper()
	s.hash(id, state, fields...)
	ctx := context.Background()
	s.must(s.rdb.ZAdd(ctx, key, redis.Z{Score: math.Ceil(float64(at.UnixMilli()) / 1000), Member: id}).Err())
	if state != store.StateScheduled && state != store.StateRetry {
		return
	}
	defer s.wake(" " + strconv.FormatInt(max(0, time.Until(at).Milliseconds()), 10))
	exactly := redis.Z{Score: float64(at.UnixMilli()), Member: id}
	s.must(s.rdb.ZAdd(ctx, store.DueKey(s.queue), exactly).Err())
	reason := store.Reason(s.rdb.HGet(ctx, store.TaskKey(s.queue, id), store.FieldReason).Val())
	if state == store.StateScheduled && reason.Code() == store.ReasonBreakerOpen {
		s.must(s.rdb.ZAdd(ctx, store.DeferredKey(s.queue, reason.About()), exactly).Err())
	}
}

// lookScript reads KEYS with the commands in ARGV at one moment: a Server may be moving
// jobs. A full Redis refuses any command of a transaction, but no script that reads.
var lookScript = redis.NewScript(`
local out = {}
for i, key in ipairs(KEYS) do
  local command = ARGV[i]
  if command == 'GET' then
    out[i] = { redis.call('GET', key) or nil }
  elseif command == 'SMEMBERS' then
    out[i] = redis.call('SMEMBERS', key)
  else
    out[i] = redis.call(command, key, 0, -1)
  end
end
return out`)

// look is where every job of the queue is: the lists, the next one first, and
// the sets, the first one first; how many ghosts the queue counts; and the state
// of each record.
func (s *testQueue) look() map[string]string {
	s.t.Helper()
	ctx := context.Background()
	out := map[string]string{}
	read := map[string][]string{}
	keys, commands, names := []string{}, []any{}, []string{}
	for command, of := range map[string]map[string]string{
		"LRANGE": {"pending": store.PendingKey(s.queue), "active": store.ActiveKey(s.queue)},
		"ZRANGE": {
			"lease": store.LeaseKey(s.queue), "scheduled": store.ScheduledKey(s.queue), "retry": store.RetryKey(s.queue),
			"completed": store.CompletedKey(s.queue), "failed": store.FailedKey(s.queue),
			"cancelled": store.ParkedKey(s.queue, store.StateCancelled), "expired": store.ParkedKey(s.queue, store.StateExpired),
			"paused": store.ParkedKey(s.queue, store.StatePaused), "waiting": store.ParkedKey(s.queue, store.StateWaiting),
			"held": store.HeldKey(s.queue), "held_keys": store.HeldIndexKey(s.queue),
			"deferred": store.DeferredKey(s.queue, "d"), "expiry": store.ExpiryKey(s.queue), "outbox": store.OutboxKey(s.queue),
			"due": store.DueKey(s.queue),
		},
		"SMEMBERS": {"actions": store.ActionsKey(s.queue)},
		"GET":      {"tombstones": store.TombstonesKey(s.queue)},
	} {
		for name, key := range of {
			names, keys, commands = append(names, name), append(keys, key), append(commands, command)
		}
	}
	reply, err := lookScript.Run(ctx, s.rdb, keys, commands...).Slice()
	s.must(err)
	for i, values := range reply {
		for _, v := range values.([]any) {
			read[names[i]] = append(read[names[i]], v.(string))
		}
	}
	// All that wait for a time, and no others, are in the set of the exact times.
	timed := slices.Sorted(slices.Values(slices.Concat(read["scheduled"], read["retry"])))
	due := slices.Sorted(slices.Values(read["due"]))
	if !slices.Equal(timed, due) {
		s.t.Errorf("in scheduled and retry are %v, in due %v", timed, due)
	}
	delete(read, "due")
	for name, ids := range read {
		switch name {
		case "pending", "active":
			slices.Reverse(ids)
		case "lease", "actions": // jobs that are fetched one after the other may do so in the same millisecond
			slices.Sort(ids)
		}
		out[name] = strings.Join(ids, " ")
	}
	prefix := store.TaskPrefix(s.queue)
	states := map[string]*redis.StringCmd{}
	keys = s.records()
	if _, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			states[strings.TrimPrefix(key, prefix)] = pipe.HGet(ctx, key, store.FieldState)
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	for id, state := range states {
		out[id] = state.Val()
	}
	return out
}

// fields returns the record of a job without its message and its history.
func (s *testQueue) fields(id string) map[string]string {
	s.t.Helper()
	m, err := s.rdb.HGetAll(context.Background(), store.TaskKey(s.queue, id)).Result()
	s.must(err)
	delete(m, store.FieldMsg)
	delete(m, store.FieldWait) // a length that clock_test.go looks at
	delete(m, store.FieldHistory)
	delete(m, store.FieldVersions)
	return m
}

// duly checks the times in the sets of a job that waits for an instant: the one of its
// record, and in asynq's sets the first whole second from then on.
func (s *testQueue) duly(id string) {
	s.t.Helper()
	ctx := context.Background()
	available := s.fields(id)[store.FieldAvailableAt]
	for _, key := range []string{store.ScheduledKey(s.queue), store.RetryKey(s.queue)} {
		score, err := s.rdb.ZScore(ctx, key, id).Result()
		if err != nil {
			continue
		}
		ms := s.millisOf(available)
		if score != float64((ms+999)/1000) {
			s.t.Errorf("%s says %v s, the record %d ms", key, score, ms)
		}
		if due := s.rdb.ZScore(ctx, store.DueKey(s.queue), id).Val(); due != float64(ms) {
			s.t.Errorf("due says %v ms, the record %d", due, ms)
		}
	}
}

// now is the time by which the scripts go.
func (s *testQueue) now() time.Time {
	s.t.Helper()
	t, err := s.rdb.Time(context.Background()).Result()
	s.must(err)
	return t
}

// millis reads a field that holds unix milliseconds and checks that it lies
// between two readings of the clock.
func (s *testQueue) millis(id, field string, from, to time.Time) {
	s.t.Helper()
	s.between(field+" of "+id, s.rdb.HGet(context.Background(), store.TaskKey(s.queue, id), field).Val(), from, to)
}

// millisOf parses unix milliseconds.
func (s *testQueue) millisOf(text string) int64 {
	s.t.Helper()
	ms, err := strconv.ParseInt(text, 10, 64)
	s.must(err)
	return ms
}

func (s *testQueue) between(what, millis string, from, to time.Time) {
	s.t.Helper()
	ms, err := strconv.ParseInt(millis, 10, 64)
	if err != nil {
		s.t.Errorf("%s is %q, want unix milliseconds", what, millis)
		return
	}
	if ms < from.UnixMilli() || ms > to.UnixMilli() {
		s.t.Errorf("%s is %d, want %d to %d", what, ms, from.UnixMilli(), to.UnixMilli())
	}
}

func (s *testQueue) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// call is one script that was sent to Redis.
type call struct {
	sha  string
	keys []string
	args []any
}

// script names the script, one of store's; its SHA-1 if it is another.
func (c call) script() string { return cmp.Or(store.ScriptName(c.sha), c.sha) }

// wire stands between a client and Redis: it keeps what scripts are sent, and
// may answer instead of Redis.
type wire struct {
	redis.UniversalClient
	answer func(call) *redis.Cmd // nil: Redis answers; a nil answer as well

	mu    sync.Mutex
	calls []call
}

func (w *wire) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	c := call{sha, keys, args}
	w.mu.Lock()
	w.calls = append(w.calls, c)
	answer := w.answer // a test may replace it meanwhile
	w.mu.Unlock()
	if answer != nil {
		if cmd := answer(c); cmd != nil {
			return cmd
		}
	}
	return w.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// sent returns what was sent of one script.
func (w *wire) sent(script string) []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []call
	for _, c := range w.calls {
		if c.script() == script {
			out = append(out, c)
		}
	}
	return out
}

// refusal is an error reply of Redis.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

var errGone = errors.New("connection refused")

// byHand is a worker of one engine that fetches when the test asks it to.
type byHand struct {
	*Worker
	e *Engine
}

// patience is how long byHand waits for a job, by engine, where it is not fetchPatience.
var patience sync.Map

func (w byHand) Next() *Delivery {
	d, set := patience.Load(w.e)
	if !set {
		d = fetchPatience
	}
	limit := d.(time.Duration)
	ctx, cancel := context.WithTimeout(w.e.ctx, limit)
	defer cancel()
	for {
		d, err := w.e.Next(limit)
		if d != nil || !errors.Is(err, errEmpty) || ctx.Err() != nil {
			return d
		}
		w.e.wait(ctx)
		w.e.forget() // tests write without messages
	}
}

// workerOf is a worker of some engines, the first one's Redis.
func workerOf(engines ...*Engine) *Worker {
	return NewWorker(engines[0].rdb, WorkerOptions{PollEvery: 500 * time.Millisecond, SecondCheck: time.Nanosecond}, engines...)
}

// beat looks at a queue once, and returns how many jobs were moved.
func (e *Engine) beat(ctx context.Context, queue string) (int, error) {
	a := store.ForwardArgs{Queue: queue, Move: true, Parents: true, Actions: true, Lease: e.o.Lease}
	began := time.Now()
	r, err := store.Forward(ctx, e.rdb, a)
	e.endForward(began, a, r, err)
	return r.Moved, err
}

// asDequeue fetches the next job and returns its id, "" if there is none.
func asDequeue(t *testing.T, c *Engine) string {
	t.Helper()
	if d := (byHand{workerOf(c), c}).Next(); d != nil {
		return d.ID
	}
	return ""
}

// asDone completes a job, unless something else was decided, and settles it.
func asDone(c *Engine, queue, id string) {
	d := c.Delivery(id)
	if d == nil {
		d = &Delivery{Queue: queue, ID: id}
		c.flight.add(d)
	}
	if d.decided() == nil {
		d.Decide(store.Outcome{Kind: store.KindComplete}, nil)
	}
	if c.settle(d) {
		c.flight.remove(d)
	}
}

// settleDecided settles the jobs in flight whose handlers have returned.
func settleDecided(c *Engine) {
	for _, d := range c.flight.all() {
		if d.decided() != nil && c.settle(d) {
			c.flight.remove(d)
		}
	}
}

// zAt is a member of a set of instants.
func zAt(id string, score float64) redis.Z { return redis.Z{Score: score, Member: id} }

// forget has the next fetch look at all queues.
func (e *Engine) forget() {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	clear(e.empty)
}
