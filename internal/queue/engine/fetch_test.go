package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/queue/asynqx"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// runServer starts an asynq Server on a client until the test ends, and returns
// how to end it earlier: the gate first.
func runServer(t *testing.T, c *Engine, handle func(*Delivery)) (stop func()) {
	t.Helper()
	worker := NewWorker(c.rdb, WorkerOptions{PollEvery: time.Hour}, c) // messages wake it, and nothing else
	server := asynq.NewServerFromRedisClient(asynqx.New(c.rdb, worker), asynq.Config{
		Concurrency: c.o.Concurrency, Queues: map[string]int{asynqx.Queue: 1}, TaskCheckInterval: 5 * time.Millisecond,
		DelayedTaskCheckInterval: 20 * time.Millisecond, ShutdownTimeout: 20 * time.Second,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
		IsFailure:      func(error) bool { return false },
		LogLevel:       asynq.FatalLevel,
	})
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		d := worker.Take()
		handle(d)
		worker.Settle(d)
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	worker.Start()
	var listening sync.WaitGroup
	listening.Go(func() {
		store.Listen(c.ctx, c.rdb, func(string) { worker.Resync() }, func(m *redis.Message) { worker.Receive(m.Payload) }, store.DefaultNamespace.WakeChannel())
	})
	stop = sync.OnceFunc(func() {
		if err := worker.CloseGate(context.Background()); err != nil {
			t.Errorf("close the gate: %v", err)
		}
		server.Stop()
		server.Shutdown()
		worker.Finish()
		listening.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// completing is a handler that completes its job after f.
func completing(f func(id string)) func(*Delivery) {
	return func(d *Delivery) {
		f(d.ID)
		d.Decide(store.Outcome{Kind: store.KindComplete}, nil)
	}
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("j%04d", i)
	}
	return ids
}

// A Server never holds more jobs than it has slots, however it fetches, and
// runs each one once.
func TestNeverMoreInFlightThanSlots(t *testing.T) {
	t.Parallel()
	const n, slots = 600, 7
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: slots, Retention: time.Hour})
	s.pending(numbered(n)...)
	var running, atOnce, inHand, done atomic.Int64
	var mu sync.Mutex
	runs := map[string]int{}
	all := make(chan struct{})
	highest := func(a *atomic.Int64, n int64) {
		for was := a.Load(); n > was && !a.CompareAndSwap(was, n); was = a.Load() {
		}
	}
	stop := runServer(t, c, completing(func(id string) {
		highest(&atOnce, running.Add(1))
		defer running.Add(-1)
		highest(&inHand, s.rdb.LLen(context.Background(), store.ActiveKey(s.queue)).Val())
		mu.Lock()
		runs[id]++
		mu.Unlock()
		if done.Add(1) == n {
			close(all)
		}
	}))
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Fatalf("%d of %d jobs were run", done.Load(), n)
	}
	stop()
	if inHand.Load() > slots || atOnce.Load() > slots {
		t.Errorf("up to %d in hand and %d running at once, with %d slots", inHand.Load(), atOnce.Load(), slots)
	}
	for id, times := range runs {
		if times != 1 {
			t.Errorf("%s was run %d times", id, times)
		}
	}
	if got := s.rdb.ZCard(context.Background(), store.CompletedKey(s.queue)).Val(); got != n {
		t.Errorf("%d of %d jobs are completed", got, n)
	}
	if c.CountInFlight() != 0 {
		t.Errorf("%d still in hand at the end", c.CountInFlight())
	}
}

// Several jobs come with one call: as many as there are free slots, within
// bounds.
func TestFetchesForFreeSlots(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		slots, inHand int
		grant         Grant
		want          int // asked for
		wantOfThree   string
	}{
		{name: "one slot", slots: 1, want: 1, wantOfThree: "j0000"},
		{name: "two of five are taken", slots: 5, inHand: 2, want: 3, wantOfThree: "j0000 j0001 j0002"},
		{name: "all are taken, but asynq asks", slots: 5, inHand: 5, want: 1, wantOfThree: "j0000"},
		{name: "very many slots", slots: 100000, want: maxFetch, wantOfThree: "j0000 j0001 j0002"},
		{name: "the gate says two", slots: 5, grant: Grant{Max: 2}, want: 2, wantOfThree: "j0000 j0001"},
		{name: "a permit is for one", slots: 5, grant: Grant{Permit: "p"}, want: 1, wantOfThree: "j0000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			w := &wire{UniversalClient: s.rdb}
			c := New(w, Options{Queues: []string{s.queue}, Concurrency: tc.slots, Worker: "host:1", Gate: &fakeGate{grant: tc.grant}})
			defer c.CloseGate(context.Background())
			for i := range tc.inHand {
				c.flight.add(&Delivery{ID: fmt.Sprint("other", i)})
			}
			s.pending(numbered(3)...)
			first := asDequeue(t, c)
			asked := w.sent("fetch")
			if len(asked) != 1 || asked[0].args[2] != tc.want {
				t.Fatalf("Redis was asked with %v, want once for %d", asked, tc.want)
			}
			got := []string{first}
			for _, d := range c.buffer {
				got = append(got, d.ID)
			}
			if strings.Join(got, " ") != tc.wantOfThree {
				t.Errorf("fetched %v, want %s", got, tc.wantOfThree)
			}
			if d := c.Delivery("j0000"); d == nil || d.Permit != tc.grant.Permit || d.Queue != s.queue {
				t.Errorf("delivery %+v, want one of %s with permit %v", d, s.queue, tc.grant.Permit)
			}
			if c.CountInFlight() != tc.inHand+len(got) {
				t.Errorf("%d in hand, want %d", c.CountInFlight(), tc.inHand+len(got))
			}
		})
	}
}

// afterPipelines calls after with each pipeline that Redis has answered.
type afterPipelines struct{ after func([]redis.Cmder) error }

func (afterPipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (afterPipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h afterPipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		_ = next(ctx, cmds) // each command has its own error
		return h.after(cmds)
	}
}

// What comes along with a completion is for its slot: nothing does while the completion
// may not free one.
func TestNothingIsFetchedAlongWithWhatIsNotCompleted(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"Redis does not know the script": false, "the reply was lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			server := redistest.Start(t)
			s, other := queueIn(t, server.Client(t)), server.Client(t)
			c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 2, Retention: time.Hour})
			defer c.CloseGate(ctx)
			if lost {
				s.pending("first")
				asDone(c, s.queue, asDequeue(t, c))
			}
			s.pending("a", "b", "c", "d", "e")
			a := asDequeue(t, c)
			asDequeue(t, c)
			s.rdb.AddHook(afterPipelines{func(cmds []redis.Cmder) error {
				if n := other.LLen(ctx, store.ActiveKey(s.queue)).Val(); n > 2 {
					t.Errorf("%d jobs are active, with 2 slots", n)
				}
				if !lost {
					return nil
				}
				lost = false
				for _, cmd := range cmds {
					cmd.SetErr(errGone)
				}
				return errGone
			}})
			asDone(c, s.queue, a)
			if lost {
				t.Error("nothing was fetched along with the completion")
			}
			if got := asDequeue(t, c); got != "c" {
				t.Errorf("fetched %q next, want c", got)
			}
		})
	}
}

// While jobs are plenty, completing and fetching share a round trip; more than
// were completed are not fetched.
func TestFetchesAlongWithCompletions(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 2, Retention: time.Hour})
	defer c.CloseGate(context.Background())
	c.completes[s.queue] = true
	completeJobs(s, 60, "none") // Redis knows the script then
	s.pending("a", "b", "c", "d")
	a, b := asDequeue(t, c), asDequeue(t, c)
	asDone(c, s.queue, a)
	want := map[string]string{
		"completed": "a", "active": "b c", "lease": "b c", "pending": "d",
		"a": "completed", "b": "active", "c": "active", "d": "pending",
	}
	if diff := cmp.Diff(want, s.look()); diff != "" {
		t.Errorf("after one was completed (-want +got):\n%s", diff)
	}
	if got := asDequeue(t, c); got != "c" || b != "b" {
		t.Errorf("fetched %s, then %s; want b, then c", b, got)
	}
	// Once the gate is closed nothing is fetched any more.
	s.must(c.CloseGate(context.Background()))
	asDone(c, s.queue, b)
	if got := s.look()["pending"]; got != "d" {
		t.Errorf("the queue is %q after the gate was closed, want d", got)
	}
}

// A gate that is not open for all keeps completions from fetching.
func TestNothingIsFetchedAlongAGateThatIsNotFlowing(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := &fakeGate{}
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 2, Retention: time.Hour, Gate: g})
	defer c.CloseGate(context.Background())
	s.pending("a", "b", "c")
	a := asDequeue(t, c)
	asDequeue(t, c)
	g.dammed.Store(true)
	asDone(c, s.queue, a)
	if got := s.look()["pending"]; got != "c" {
		t.Errorf("the queue is %q, want c: the gate has closed", got)
	}
}

// What was fetched but not handed out goes back to the head, in its order.
func TestCloseGatePutsBackInOrder(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := &fakeGate{}
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 4, Gate: g})
	s.pending("a", "b", "c", "d", "e", "f")
	if got := asDequeue(t, c); got != "a" {
		t.Fatalf("fetched %s", got)
	}
	for range 2 { // the second time does nothing
		s.must(c.CloseGate(context.Background()))
		want := map[string]string{
			"active": "a", "lease": "a", "pending": "b c d e f",
			"a": "active", "b": "pending", "c": "pending", "d": "pending", "e": "pending", "f": "pending",
		}
		if diff := cmp.Diff(want, s.look()); diff != "" {
			t.Errorf("after the gate was closed (-want +got):\n%s", diff)
		}
	}
	if c.CountInFlight() != 1 {
		t.Errorf("%d in hand, want the one that was handed out", c.CountInFlight())
	}
	if got := asDequeue(t, c); got != "" {
		t.Errorf("%s was fetched through a closed gate", got)
	}
	if got := g.told(); got != "close close" {
		t.Errorf("the gate was told %q", got)
	}
}

// What Redis does not take back is said; it comes back when its lease ends.
func TestCloseGateWithoutRedis(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	w := &wire{UniversalClient: s.rdb}
	c := New(w, Options{Queues: []string{s.queue}, Concurrency: 3})
	s.pending("a", "b", "c")
	asDequeue(t, c)
	w.answer = func(call) *redis.Cmd { return redis.NewCmdResult(nil, errGone) }
	err := c.CloseGate(context.Background())
	if err == nil || !strings.Contains(err.Error(), "job b") || !strings.Contains(err.Error(), "job c") {
		t.Errorf("error %v, want both jobs named", err)
	}
}

// A permit whose job was fetched but not handed out goes back to the gate, which
// then gives it back for good.
func TestCloseGateReturnsThePermitOfABufferedJob(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	w := &wire{UniversalClient: s.rdb}
	g := &fakeGate{grant: Grant{Max: 1, Permit: "the probe"}}
	c := New(w, Options{Queues: []string{s.queue}, Concurrency: 1, Gate: g})
	s.pending("a")
	w.answer = func(under call) *redis.Cmd {
		if under.script() == "fetch" {
			c.cancel() // the shutdown begins while the fetch is under way
		}
		return nil
	}
	if got := asDequeue(t, c); got != "" {
		t.Fatalf("%s was handed out after the shutdown had begun", got)
	}
	s.must(c.CloseGate(context.Background()))
	if got := g.told(); got != "unused(the probe) close" {
		t.Errorf("the gate was told %q", got)
	}
	if diff := cmp.Diff(map[string]string{"pending": "a", "a": "pending"}, s.look()); diff != "" {
		t.Errorf("the queue (-want +got):\n%s", diff)
	}
}

// A grant without a job is given back each time.
func TestUnusedGrants(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := &fakeGate{grant: Grant{Max: 1, Permit: "p"}}
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1, Gate: g, PollMin: time.Millisecond, PollMax: time.Millisecond})
	ended := make(chan string)
	go func() { ended <- asDequeue(t, c) }()
	redistest.Eventually(t, "the permit was given back twice", func() bool { return strings.HasPrefix(g.told(), "unused(p) unused(p)") })
	s.pending("a")
	if got := <-ended; got != "a" {
		t.Fatalf("fetched %q", got)
	}
	before := g.told()
	s.must(c.CloseGate(context.Background()))
	if got := g.told(); got != before+" close" {
		t.Errorf("the gate was told %q after %q: the permit went with the job", got, before)
	}
}

// A job that waited too long in this process for a slot is given to whoever is
// ready, in its order: asynq extends its lease only from when it is handed out.
func TestStaleJobsAreNotRun(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 4, PollMin: time.Millisecond})
	s.pending("a", "b", "c", "d", "e")
	asDequeue(t, c)
	for _, d := range c.buffer {
		d.fetched = d.fetched.Add(-staleAfter)
	}
	// Another worker is quicker.
	back := make(chan struct{})
	w := &wire{UniversalClient: s.rdb, answer: func(under call) *redis.Cmd {
		if under.script() == "fetch" {
			select {
			case <-back:
			default:
				close(back)
				if diff := cmp.Diff("b c d e", s.look()["pending"]); diff != "" {
					t.Errorf("the queue after the stale jobs were put back (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"b", "c"}, fetchIDs(s, 2)); diff != "" {
					t.Errorf("what another worker gets (-want +got):\n%s", diff)
				}
			}
		}
		return nil
	}}
	c.rdb = w
	if got := asDequeue(t, c); got != "d" {
		t.Errorf("fetched %s, want d: b and c are in other hands", got)
	}
	if c.CountInFlight() != 3 { // a, d, e
		t.Errorf("%d in hand, want a, d and e", c.CountInFlight())
	}
	s.must(c.CloseGate(context.Background()))
}

// A job that comes back while its handler still runs is put off, not run twice.
func TestJobInFlightIsNotRunTwice(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	ctx := context.Background()
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 3, Worker: "host:1", Retention: time.Hour})
	s.pending("a")
	asDequeue(t, c)
	first := c.Delivery("a")
	// Its lease was lost, it was recovered and is in the queue again.
	s.must(s.rdb.LRem(ctx, store.ActiveKey(s.queue), 1, "a").Err())
	s.must(s.rdb.ZRem(ctx, store.LeaseKey(s.queue), "a").Err())
	s.pending("a", "b")
	before := s.now()
	if got := asDequeue(t, c); got != "b" {
		t.Fatalf("fetched %s, want b: a is still run", got)
	}
	want := map[string]string{"active": "b", "lease": "b", "b": "active", "scheduled": "a", "a": "scheduled"}
	if diff := cmp.Diff(want, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	s.millis("a", store.FieldAvailableAt, before.Add(staleAfter-100*time.Millisecond), s.now().Add(staleAfter+100*time.Millisecond))
	got := s.fields("a")
	if got[store.FieldReason] != "still_running host:1" || got[store.FieldReschedules] != "" || got[store.FieldAttempt] != "" {
		t.Errorf("record %v; it should say why it waits and count nothing", got)
	}
	if c.Delivery("a") != first || c.CountInFlight() != 2 {
		t.Errorf("%d in hand; a must be the delivery that is run", c.CountInFlight())
	}
	// The handler that outlived its lease ends well.
	first.Decide(store.Outcome{Kind: store.KindComplete}, nil)
	settleDecided(c)
	want = map[string]string{"active": "b", "lease": "b", "b": "active", "completed": "a", "a": "completed"}
	if diff := cmp.Diff(want, s.look()); diff != "" {
		t.Errorf("after its handler ended (-want +got):\n%s", diff)
	}
	s.must(c.CloseGate(ctx))
}

// Trouble with one job of a reply keeps no other of it from being run.
func TestOneBadJobDoesNotLoseTheOthers(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	w := &wire{UniversalClient: s.rdb, answer: func(under call) *redis.Cmd {
		if under.script() == "apply" {
			return redis.NewCmdResult(nil, errGone)
		}
		return nil
	}}
	c := New(w, Options{Queues: []string{s.queue}, Concurrency: 4, PollMin: time.Millisecond})
	defer c.cancel()
	c.flight.add(&Delivery{ID: "a"})
	s.pending("a", "b", "c")
	for _, want := range []string{"b", "c"} {
		if got := asDequeue(t, c); got != want {
			t.Errorf("fetched %s, want %s", got, want)
		}
	}
}

// The most urgent queue comes first, the second one at each eighth fetch, the third
// one at each sixteenth; what was found empty is passed over for a moment.
func TestOrderOfQueues(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := New(nil, Options{Queues: []string{"high", "default", "low"}})
	defer c.cancel()
	for n := 1; n <= 64; n++ {
		want := "high default low"
		switch {
		case n%16 == 0:
			want = "low high default"
		case n%8 == 0:
			want = "default high low"
		}
		if got := strings.Join(c.order(now), " "); got != want {
			t.Errorf("fetch %d looks at %s, want %s", n, got, want)
		}
	}
	c.foundEmpty("high", now)
	if got := strings.Join(c.order(now.Add(emptyFor-1)), " "); got != "default low" {
		t.Errorf("right after high was found empty: %s", got)
	}
	if got := strings.Join(c.order(now.Add(emptyFor)), " "); got != "high default low" {
		t.Errorf("a while after high was found empty: %s", got)
	}
	one := New(nil, Options{Queues: []string{"only"}})
	defer one.cancel()
	for range 16 {
		if diff := cmp.Diff([]string{"only"}, one.order(now)); diff != "" {
			t.Errorf("one queue (-want +got):\n%s", diff)
		}
	}
}

// A full urgent queue does not starve the others.
func TestLowPriorityIsNotStarved(t *testing.T) {
	t.Parallel()
	const n = 400
	high := realQueue(t)
	def, low := *high, *high
	def.queue, low.queue = high.queue+":b", high.queue+":c"
	c := New(high.rdb, Options{Queues: []string{high.queue, def.queue, low.queue}, Concurrency: 1, Retention: time.Hour})
	defer c.CloseGate(context.Background())
	for i, s := range []*testQueue{high, &def, &low} {
		ids := numbered(n)
		for k := range ids {
			ids[k] = fmt.Sprint("hdl"[i:i+1], ids[k])
		}
		s.pending(ids...)
	}
	got, firstLow := map[byte]int{}, 0
	for i := range n {
		id := asDequeue(t, c)
		got[id[0]]++
		if id[0] == 'l' && firstLow == 0 {
			firstLow = i + 1
		}
		c.flight.remove(c.Delivery(id)) // its slot is free again
	}
	// One fetch each: exact.
	if want := map[byte]int{'h': 350, 'd': 25, 'l': 25}; !maps.Equal(got, want) {
		t.Errorf("jobs by queue: %v, want %v", got, want)
	}
	if firstLow != 16 {
		t.Errorf("the first job of low priority was the %dth, want the 16th", firstLow)
	}
}

// Without Redis, or with a Redis that refuses, the looks become rare.
func TestFetchErrorsBackOff(t *testing.T) {
	t.Parallel()
	for _, problem := range []error{errGone, refusal("OOM command not allowed"), refusal("NOPERM this user")} {
		t.Run(problem.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &wire{answer: func(call) *redis.Cmd { return redis.NewCmdResult(nil, problem) }}
				c := New(w, Options{Queues: []string{"a", "b", "c"}, Concurrency: 10})
				ended := make(chan string)
				go func() { ended <- asDequeue(t, c) }()
				<-time.After(2 * time.Second)
				synctest.Wait()
				// At 0, 100, 300, 700 and 1500 ms.
				if n := len(w.sent("fetch")); n != 5 {
					t.Errorf("%d calls in 2 s, want 5", n)
				}
				if err := c.CloseGate(context.Background()); err != nil {
					t.Error(err)
				}
				if got := <-ended; got != "" {
					t.Errorf("fetched %s", got)
				}
			})
		})
	}
}

// A gate that cannot be asked is not asked without end either.
func TestGateErrorsBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGate{problem: errGone}
		c := New(nil, Options{Queues: []string{"a"}, Concurrency: 1, Gate: g})
		ended := make(chan string)
		go func() { ended <- asDequeue(t, c) }()
		<-time.After(2 * time.Second)
		synctest.Wait()
		if n := g.asked.Load(); n != 5 {
			t.Errorf("the gate was asked %d times in 2 s, want 5", n)
		}
		if err := c.CloseGate(context.Background()); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// A job enqueued while the Server waits for its gate is fetched as soon as it
// opens, and so is what became due meanwhile.
func TestGateHoldsAndReleases(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := &fakeGate{held: make(chan struct{}), grant: Grant{Opened: true}}
	w := &wire{UniversalClient: s.rdb}
	c := New(w, Options{Queues: []string{s.queue}, Concurrency: 1, Gate: g})
	defer c.CloseGate(context.Background())
	ended := make(chan string)
	go func() { ended <- asDequeue(t, c) }()
	redistest.Eventually(t, "it waits", func() bool { return g.asked.Load() > 0 })
	s.at(store.ScheduledKey(s.queue), "due", store.StateScheduled, time.Unix(1, 0))
	if n := len(w.sent("fetch")); n != 0 {
		t.Errorf("%d calls through a closed gate", n)
	}
	close(g.held)
	select {
	case got := <-ended:
		if got != "due" {
			t.Errorf("fetched %s", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing was fetched when the gate opened")
	}
}

// What a gate is told about the backlog: whether there is anything to fetch,
// after what is due was moved there.
func TestBacklog(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue + ":high", s.queue}, Concurrency: 1})
	defer c.CloseGate(context.Background())
	backlog := func() bool {
		t.Helper()
		more, err := c.backlog(context.Background())
		s.must(err)
		return more > 0
	}
	if backlog() {
		t.Error("a backlog in empty queues")
	}
	s.at(store.ScheduledKey(s.queue), "held", store.StateScheduled, time.Now().Add(time.Hour), store.FieldReason, "breaker_open d")
	if backlog() {
		t.Error("a job of the future is no backlog")
	}
	c.ReleaseDeferred("d")
	redistest.Eventually(t, "what was deferred and is released is a backlog", backlog)
	if got := s.look()["pending"]; got != "held" {
		t.Errorf("the queue is %q", got)
	}
	fetchIDs(s, 1)
	s.at(store.RetryKey(s.queue), "due", store.StateRetry, time.Unix(1, 0))
	if !backlog() {
		t.Error("a retry that is due is a backlog")
	}
}

// A release that meets an outage goes on where it was, and another worker does no harm.
func TestReleaseSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	const n = 250
	s := realQueue(t)
	for i := range n {
		s.at(store.ScheduledKey(s.queue), fmt.Sprintf("%03d", i), store.StateScheduled, time.Now().Add(time.Hour), store.FieldReason, "breaker_open d")
	}
	var gone atomic.Bool
	w := &wire{UniversalClient: s.rdb}
	w.answer = func(c call) *redis.Cmd {
		if c.script() == "release" && len(w.sent("release")) > 1 {
			gone.Store(true) // after the first portion
		}
		if gone.Load() {
			return redis.NewCmdResult(nil, errGone)
		}
		return nil
	}
	c := New(w, Options{Queues: []string{s.queue}, Concurrency: 1})
	defer c.Finish()
	c.ReleaseDeferred("d")
	forward := func() {
		workerOf(c).Maintain()
	}
	redistest.Eventually(t, "it has met the outage", func() bool { return len(w.sent("release")) > 1 })
	forward()
	if got := s.rdb.LLen(context.Background(), store.PendingKey(s.queue)).Val(); got != 100 {
		t.Fatalf("%d are back before the outage, want one portion of 100", got)
	}
	w.mu.Lock()
	w.answer = nil
	w.mu.Unlock()
	other := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1})
	defer other.Finish()
	other.ReleaseDeferred("d")
	redistest.Eventually(t, "all are back", func() bool {
		forward()
		return s.rdb.LLen(context.Background(), store.PendingKey(s.queue)).Val() == n
	})
	look := s.look()
	if look["scheduled"] != "" || look["deferred"] != "" {
		t.Errorf("afterwards scheduled are %q, deferred %q", look["scheduled"], look["deferred"])
	}
}

// Servers that stop in the middle of their work leave nothing in anybody's
// hands and lose nothing.
func TestStoppingUnderLoad(t *testing.T) {
	t.Parallel()
	const n, rounds, slots = 300, 6, 5
	s := realQueue(t)
	s.pending(numbered(n)...)
	var mu sync.Mutex
	runs := map[string]int{}
	for round := range rounds {
		c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: slots, Retention: time.Hour})
		reached := make(chan struct{})
		var here atomic.Int64
		stop := runServer(t, c, completing(func(id string) {
			mu.Lock()
			runs[id]++
			mu.Unlock()
			if here.Add(1) == n/rounds/2 {
				close(reached)
			}
		}))
		<-reached
		stop()
		look := s.look()
		if look["active"] != "" || look["lease"] != "" || c.CountInFlight() != 0 {
			t.Fatalf("round %d: active %q, lease %q, %d in hand", round, look["active"], look["lease"], c.CountInFlight())
		}
		// Two fetches of one Server can overtake each other, by no more than it
		// has slots.
		pending := strings.Fields(look["pending"])
		for i, id := range slices.Sorted(slices.Values(pending)) {
			if at := slices.Index(pending, id); at-i > slots || i-at > slots {
				t.Errorf("round %d: %s is %dth in the queue, should be %dth", round, id, at, i)
			}
		}
		if completed := len(strings.Fields(look["completed"])); completed+len(pending) != n {
			t.Fatalf("round %d: %d completed and %d pending of %d", round, completed, len(pending), n)
		}
	}
	for id, times := range runs {
		if times != 1 {
			t.Errorf("%s was run %d times", id, times)
		}
	}
}

// fakeGate returns the same grant at each Wait, once it is open, and logs the calls of its other methods.
type fakeGate struct {
	grant   Grant
	problem error
	held    chan struct{} // closed: open; nil: always open
	asked   atomic.Int64
	dammed  atomic.Bool
	admit   func(key string, permit any) Admission // nil: lets everything pass

	mu  sync.Mutex
	log []string
}

func (g *fakeGate) Admit(_ context.Context, _, key string, _ int, _ string, permit any) Admission {
	if g.admit == nil {
		return Admission{Permit: permit}
	}
	return g.admit(key, permit)
}

func (g *fakeGate) Wait(ctx context.Context, _ func(context.Context) (int, error)) (Grant, error) {
	g.asked.Add(1)
	if g.held != nil {
		select {
		case <-g.held:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return Grant{}, err
	}
	return g.grant, g.problem
}

func (g *fakeGate) Flowing() bool {
	return !g.dammed.Load() && g.grant.Max == 0 && g.grant.Permit == nil && !g.grant.Opened
}

func (g *fakeGate) Forwards() bool { return g.Flowing() }

func (g *fakeGate) Unused(_ context.Context, r Grant) {
	if r.Permit != nil {
		g.tell(fmt.Sprintf("unused(%v)", r.Permit))
	}
	for _, p := range r.More {
		g.tell(fmt.Sprintf("unused(%v)", p))
	}
}

func (g *fakeGate) Close(context.Context) error {
	g.tell("close")
	return nil
}

func (g *fakeGate) tell(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log = append(g.log, what)
}

func (g *fakeGate) told() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.log, " ")
}

// asynq sets the end of a job's lease before it asks for the job, so it is never
// kept waiting for long: it is told that there is none, and asks again.
func TestDequeueDoesNotOutliveItsLease(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]Gate{"no jobs": openGate{}, "gate closed": closedGate{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1, Gate: g, PollMin: time.Millisecond})
			defer c.CloseGate(context.Background())
			if fetchPatience > leaseDuration/4 {
				t.Fatalf("asynq may wait for %s, and leases last %s", fetchPatience, leaseDuration)
			}
			patience.Store(c, 50*time.Millisecond)
			begin := time.Now()
			for range 3 {
				if got := asDequeue(t, c); got != "" {
					t.Fatalf("fetched %s", got)
				}
			}
			if took := time.Since(begin); took < 150*time.Millisecond {
				t.Errorf("three times in %s, want 50 ms each", took)
			}
			if closed := name == "gate closed"; c.waiting.Load() != closed {
				t.Errorf("between two calls at the gate: %t, want %t", c.waiting.Load(), closed)
			}
		})
	}
}

// closedGate lets nothing pass.
type closedGate struct{ openGate }

func (closedGate) Wait(ctx context.Context, _ func(context.Context) (int, error)) (Grant, error) {
	<-ctx.Done()
	return Grant{}, ctx.Err()
}
func (closedGate) Flowing() bool  { return false }
func (closedGate) Forwards() bool { return false }

// A node of a Cluster that does not answer holds up its own queues only: it is not asked again
// before a look at one of them is answered.
func TestQueuesOfAnotherNodeGoOn(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	high := &testQueue{t: t, rdb: s.rdb, queue: s.queue + ":high"}
	hangs := true
	w := &wire{UniversalClient: s.rdb}
	w.answer = func(c call) *redis.Cmd {
		if hangs && c.script() == "fetch" && strings.Contains(c.keys[0], high.queue) {
			return redis.NewCmdResult(nil, errGone)
		}
		return nil
	}
	c := New(w, Options{Queues: []string{high.queue, s.queue}, Concurrency: 10, PollMin: time.Millisecond, PollMax: time.Millisecond})
	defer c.Finish()
	c.node = func(queue string) string { return queue }
	next := func(want string) {
		t.Helper()
		c.forget() // tests write without messages
		if d, err := c.Next(5 * time.Second); err != nil || d.ID != want {
			t.Fatalf("next is %+v, %v; want %s", d, err, want)
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		s.pending(id)
		next(id)
	}
	asked := 0
	for _, call := range w.sent("fetch") {
		if strings.Contains(call.keys[0], high.queue) {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("the node that does not answer was asked %d times, want once", asked)
	}
	if since, _ := c.Trouble(); since.IsZero() {
		t.Error("the outage of the node is not noticed")
	}
	hangs = false
	high.pending("d")
	if _, err := c.beat(t.Context(), high.queue); err != nil {
		t.Fatal(err)
	}
	next("d")
	if since, err := c.Trouble(); !since.IsZero() {
		t.Errorf("the outage goes on: %v", err)
	}
}
