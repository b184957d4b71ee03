package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// keyGate is a gate that is open, and lets nothing through for some keys.
type keyGate struct {
	fakeGate
	kmu     sync.Mutex
	blocked map[string]time.Time // until when it says so; zero: nobody knows
	permits map[string]any       // by key: the permit that Admit returns
	asks    []ask
}

type ask struct {
	key    string
	permit any
	at     time.Time
}

func newKeyGate(blocked ...string) *keyGate {
	g := &keyGate{blocked: map[string]time.Time{}, permits: map[string]any{}}
	for _, key := range blocked {
		g.blocked[key] = time.Time{}
	}
	return g
}

func (g *keyGate) Admit(_ context.Context, _, key string, _ int, _ string, permit any) Admission {
	g.kmu.Lock()
	defer g.kmu.Unlock()
	g.asks = append(g.asks, ask{key, permit, time.Now()})
	if until, no := g.blocked[key]; no {
		return Admission{Verdict: KeyRefused, Until: until}
	}
	if own := g.permits[key]; own != nil {
		return Admission{Permit: fmt.Sprint(own, permit)}
	}
	return Admission{Permit: permit}
}

func (g *keyGate) block(key string, until time.Time) {
	g.kmu.Lock()
	defer g.kmu.Unlock()
	g.blocked[key] = until
}

func (g *keyGate) open(key string) {
	g.kmu.Lock()
	defer g.kmu.Unlock()
	delete(g.blocked, key)
}

func (g *keyGate) asked(key string) []ask {
	g.kmu.Lock()
	defer g.kmu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.asks), func(a ask) bool { return a.key != key })
}

func (s *testQueue) clientOf(t *testing.T, g Gate, slots int) *Engine {
	t.Helper()
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: slots, Retention: time.Hour, Gate: g, Worker: "host:1"})
	t.Cleanup(func() {
		if err := c.CloseGate(context.Background()); err != nil {
			t.Errorf("close the gate: %v", err)
		}
		c.Finish()
	})
	return c
}

// asDequeues fetches until n jobs are there.
func asDequeues(t *testing.T, c *Engine, queue string, n int) []string {
	t.Helper()
	var ids []string
	for len(ids) < n {
		id := asDequeue(t, c)
		if id == "" {
			t.Fatalf("no more jobs after %v", ids)
		}
		ids = append(ids, id)
	}
	return ids
}

// What the gate does not admit is held, in its order, and the others go on; a key that
// was refused once is not asked for again within a fetch.
func TestRefusedKeysAreHeld(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := newKeyGate()
	until := time.Now().Add(time.Hour)
	g.block("k", until)
	c := s.clientOf(t, g, 10)
	s.keyed("k", "k1", "k2")
	s.keyed("f", "f1")
	s.keyed("k", "k3")
	s.pending("p1")
	if got := asDequeues(t, c, s.queue, 2); fmt.Sprint(got) != "[f1 p1]" {
		t.Errorf("fetched %v", got)
	}
	s.wantHeld("k", "k1", "k2", "k3")
	if n := len(g.asked("k")); n != 1 {
		t.Errorf("the gate was asked %d times for k", n)
	}
	if len(g.asked("")) != 0 {
		t.Error("the gate was asked for a job without a key")
	}
	if d := c.Delivery("f1"); d == nil || d.Key != "f" || c.CountInFlight() != 2 {
		t.Errorf("in hand %d, delivery %+v", c.CountInFlight(), d)
	}
	at := s.rdb.ZScore(context.Background(), store.HeldIndexKey(s.queue), "k").Val()
	if off := time.UnixMilli(int64(at)).Sub(until); off < -time.Second || off > 30*time.Second {
		t.Errorf("the key may be asked for %s off the time that the gate has said", off)
	}
}

// Unkeyed jobs need no word of the gate, and one that knows nothing of keys costs
// nothing.
func TestUnkeyedJobsAreNotAskedFor(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := newKeyGate()
	c := s.clientOf(t, g, 10)
	s.pending(numbered(5)...)
	asDequeues(t, c, s.queue, 5)
	if len(g.asks) != 0 {
		t.Errorf("asked %v", g.asks)
	}
}

// The permit of a grant goes to the gate with each job, is handed out with what the
// gate makes of it, and stays for the next job if a key is refused.
func TestPermitOfARefusedKey(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := newKeyGate("k")
	g.grant = Grant{Max: 1, Permit: "probe"}
	g.permits["f"] = "f+"
	c := s.clientOf(t, g, 3)
	s.keyed("k", "k1", "k2")
	s.keyed("f", "f1")
	if got := asDequeue(t, c); got != "f1" {
		t.Fatalf("fetched %q", got)
	}
	if d := c.Delivery("f1"); d.Permit != "f+probe" {
		t.Errorf("permit %v", d.Permit)
	}
	for _, a := range g.asks {
		if a.permit != "probe" {
			t.Errorf("asked with %v", a)
		}
	}
	if told := g.told(); told != "" {
		t.Errorf("the gate was told %q", told)
	}
	s.wantHeld("k", "k1", "k2")
}

// A key that opens is drained from the held jobs, in order, and what is enqueued
// meanwhile comes after them.
func TestOpenedKeyIsDrainedInOrder(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := newKeyGate()
	g.block("k", time.Now().Add(time.Hour))
	c := s.clientOf(t, g, 100)
	want := numbered(35)
	s.keyed("k", want[:20]...)
	s.pending("p")
	if got := asDequeue(t, c); got != "p" {
		t.Fatalf("fetched %s", got)
	}
	s.keyed("k", want[20:]...)
	g.open("k")
	c.KeyOpened("k")
	if got := asDequeues(t, c, s.queue, 35); !slices.Equal(got, want) {
		t.Errorf("fetched %v, want them in order", got)
	}
	if look := s.look(); look["held"] != "" || look["held_keys"] != "" {
		t.Errorf("still held: %s of %s", look["held"], look["held_keys"])
	}
}

// With a permit one held job is fetched, without one up to ten.
func TestHeldJobsComeInPortions(t *testing.T) {
	t.Parallel()
	for _, permit := range []any{nil, "one"} {
		t.Run(fmt.Sprint("permit ", permit), func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			g := newKeyGate()
			g.permits["k"] = permit
			c := s.clientOf(t, g, 100)
			s.holding("k", time.Now().Add(-time.Second), numbered(30)...)
			asDequeue(t, c)
			want := 10
			if permit != nil {
				want = 1
			}
			if c.CountInFlight() != want {
				t.Errorf("%d in hand, want %d", c.CountInFlight(), want)
			}
			if d := c.Delivery("j0000"); permit != nil && d.Permit != "one<nil>" {
				t.Errorf("permit %v", d.Permit)
			}
		})
	}
}

// What the gate gave for held jobs that are not there any more is given back, together
// with the grant that became part of it, once.
func TestUnusedPermitOfAKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		grant any
		want  string
	}{
		"of the key alone": {nil, "unused(k+<nil>)"},
		"of both":          {"probe", "unused(k+probe)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			g := newKeyGate()
			g.permits["k"] = "k+"
			g.grant.Permit = tc.grant
			c := s.clientOf(t, g, 1)
			c.noteDue(s.queue, store.HeldKeys{Any: true, Due: []string{"k"}}) // another worker has taken the jobs of k since
			c.served(fetch{queue: s.queue})
			l := newGranted(g.grant)
			n, _, err := c.take(l)
			if n != 0 || err != nil || l.spent != (tc.grant != nil) {
				t.Errorf("took %d, %v, spent %t", n, err, l.spent)
			}
			if told := g.told(); told != tc.want {
				t.Errorf("the gate was told %q, want %q", told, tc.want)
			}
		})
	}
}

// Held jobs of keys that are due and pending ones are served in turn, and so are the
// keys.
func TestHeldAndPendingTakeTurns(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := newKeyGate()
	for _, key := range []string{"a", "b", "c"} {
		g.permits[key] = "one"
		var ids []string
		for i := range 20 {
			ids = append(ids, fmt.Sprint(key, i))
		}
		s.holding(key, time.Now().Add(-time.Second), ids...)
	}
	s.pending(numbered(200)...)
	c := s.clientOf(t, g, 1)
	counts := map[byte]int{}
	for range 40 {
		id := asDequeue(t, c)
		counts[id[0]]++
		asDone(c, s.queue, id)
	}
	for _, source := range []byte("abc") {
		if n := counts[source]; n < 6 || n > 7 {
			t.Errorf("%d of key %c among 40, want a sixth", n, source)
		}
	}
	if n := counts['j']; n < 18 || n > 22 {
		t.Errorf("%d from the queue among 40, want half", n)
	}
}

// The turn of held jobs comes in a busy Server too, which fetches along with its
// completions, and in each queue that it serves, though it was found empty a moment ago.
func TestHeldJobsOfABusyServer(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	low := &testQueue{t: t, rdb: s.rdb, queue: s.queue + ":low"}
	g := newKeyGate()
	g.block("k", time.Now())
	c := New(s.rdb, Options{Queues: []string{s.queue, low.queue}, Concurrency: 4, Retention: time.Hour, Gate: g, PollMax: time.Hour})
	s.pending(numbered(5000)...)
	low.holding("k", time.Now().Add(time.Hour), "l1", "l2", "l3")
	s.holding("k", time.Now().Add(time.Hour), "h1", "h2", "h3")
	var before atomic.Int64
	var opened atomic.Uint64 // how often jobs had been fetched when the key opened
	type run struct {
		id      string
		fetches uint64 // from then on
	}
	held := make(chan run, 10)
	stop := runServer(t, c, completing(func(id string) {
		if id[0] == 'j' {
			if before.Add(1) == 200 {
				g.open("k")
				opened.Store(c.runs.Load())
				c.KeyOpened("k")
			}
			return
		}
		_, n, _ := strings.Cut(c.Delivery(id).run, "-")
		fetch, err := strconv.ParseUint(n, 36, 64)
		if err != nil {
			t.Error(err)
		}
		held <- run{id, fetch - opened.Load()}
	}))
	var got []string
	for range 6 {
		select {
		case r := <-held:
			got = append(got, r.id)
			// The held jobs may come one by one. The first queue hands one out in every second of its turns;
			// the second queue has every eighth turn, and hands one out in every second of these.
			most := uint64(3*2 + 2*turnEvery)
			if r.id[0] == 'l' {
				most = (3 + 1) * 2 * turnEvery
			}
			if r.fetches > most {
				t.Errorf("%s came with fetch %d after its key had opened, want at most %d", r.id, r.fetches, most)
			}
		case <-time.After(time.Minute):
			t.Fatalf("of the held jobs %v were run", got)
		}
	}
	stop()
	c.Finish()
	slices.Sort(got)
	if fmt.Sprint(got) != "[h1 h2 h3 l1 l2 l3]" {
		t.Errorf("run: %v", got)
	}
}

// A key is asked for when it is due, while the queue is idle and hardly looked at.
func TestKeyIsAskedForInTime(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := newKeyGate()
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1, Gate: g, PollMin: time.Hour, PollMax: time.Hour})
	c.opening.take() // no worker has just started
	due := s.now().Add(700 * time.Millisecond)
	g.block("k", time.Now().Add(700*time.Millisecond))
	s.keyed("k", "a")
	ended := make(chan string)
	go func() { ended <- asDequeue(t, c) }()
	redistest.Eventually(t, "it was asked for once", func() bool { return len(g.asked("k")) == 1 })
	g.open("k")
	if got := <-ended; got != "a" {
		t.Errorf("fetched %q", got)
	}
	asks := g.asked("k")
	if late := asks[1].at.Sub(due); len(asks) != 2 || late < -time.Millisecond || late > 10*time.Second {
		t.Errorf("asked %d times, the second time %s after it was due", len(asks), late)
	}
	s.must(c.CloseGate(context.Background()))
}

// Held keys do not wait for as long as Redis's clock goes back.
func TestHeldKeysWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	ctx := t.Context()
	g := newKeyGate()
	g.block("k", time.Now().Add(time.Hour))
	c := s.clientOf(t, g, 1)
	beat := func() {
		t.Helper()
		_, err := c.beat(ctx, s.queue)
		s.must(err)
	}
	s.keyed("k", "a")
	patience.Store(c, 50*time.Millisecond)
	if got := asDequeue(t, c); got != "" {
		t.Fatalf("fetched %q", got)
	}
	s.wantHeld("k", "a")
	beat()
	key := store.HeldIndexKey(s.queue)
	before := s.rdb.ZScore(ctx, key, "k").Val()
	beat()
	if after := s.rdb.ZScore(ctx, key, "k").Val(); after != before {
		t.Errorf("a beat has moved the key from %f to %f", before, after)
	}
	// All that Redis knows of the time is two hours ahead.
	const back = 2 * time.Hour
	s.must(s.rdb.ZIncrBy(ctx, key, float64(back.Milliseconds()), "k").Err())
	clock := "tidegate:{" + s.queue + "}:clock"
	if s.rdb.Exists(ctx, clock).Val() == 1 {
		s.must(s.rdb.IncrBy(ctx, clock, back.Milliseconds()).Err())
	}
	g.open("k")
	beat()
	patience.Store(c, 5*time.Second)
	if got := asDequeue(t, c); got != "a" {
		at := time.UnixMilli(int64(s.rdb.ZScore(ctx, key, "k").Val()))
		t.Errorf("fetched %q; the key is asked for in %s", got, at.Sub(s.now()).Round(time.Second))
	}
}

// The engine asks the gate again about a refused key within a second if the key has no time, and after a
// short pause if the time has passed.
func TestKeyIsAskedForAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tc := range map[string]struct {
		at       time.Time
		from, to time.Duration
	}{
		"unknown": {time.Time{}, 100 * time.Millisecond, time.Second},
		"past":    {now.Add(-time.Hour), 0, 20 * time.Millisecond},
		"later":   {now.Add(time.Hour), 59 * time.Minute, time.Hour},
	} {
		if d := time.Until(askAgainAt(tc.at)); d < tc.from || d > tc.to {
			t.Errorf("%s: asked again in %s, want %s to %s", name, d, tc.from, tc.to)
		}
	}
}

// A worker that starts asks for all keys: they may have opened while there was none.
func TestNewWorkerAsksForAllKeys(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.holding("open", time.Now().Add(time.Hour), "a")
	s.holding("blocked", time.Now().Add(time.Hour), "b")
	g := newKeyGate()
	g.block("blocked", time.Now().Add(time.Hour))
	c := s.clientOf(t, g, 1)
	if got := asDequeue(t, c); got != "a" {
		t.Errorf("fetched %q", got)
	}
	patience.Store(c, 50*time.Millisecond)
	if got := asDequeue(t, c); got != "" {
		t.Errorf("fetched %q", got)
	}
	if n := len(g.asked("blocked")); n != 1 {
		t.Errorf("asked %d times for the key that lets nothing through", n)
	}
}

// Keys that opened while Redis was away are not forgotten, nor is one that opens while
// its job is on its way to the held ones.
func TestOpeningIsNotMissed(t *testing.T) {
	t.Parallel()
	t.Run("outage", func(t *testing.T) {
		t.Parallel()
		s := realQueue(t)
		var down atomic.Bool
		w := &wire{UniversalClient: s.rdb, answer: func(under call) *redis.Cmd {
			if down.Load() && under.script() == "held_keys" {
				return redis.NewCmdResult(nil, errGone)
			}
			return nil
		}}
		c := New(w, Options{Queues: []string{s.queue}, Concurrency: 1, Gate: newKeyGate()})
		defer c.CloseGate(context.Background())
		c.openKeys()
		s.holding("k", time.Now().Add(time.Hour), "a")
		down.Store(true)
		c.KeyOpened("k")
		c.openKeys()
		down.Store(false)
		if got := asDequeue(t, c); got != "a" {
			t.Errorf("fetched %q", got)
		}
	})
	t.Run("race", func(t *testing.T) {
		t.Parallel()
		s := realQueue(t)
		g := newKeyGate()
		g.block("k", time.Now().Add(time.Hour))
		var c *Engine
		w := &wire{UniversalClient: s.rdb, answer: func(under call) *redis.Cmd {
			if under.script() == "hold" {
				g.open("k")
				c.KeyOpened("k") // before there is anything to make due
				c.openKeys()
			}
			return nil
		}}
		c = New(w, Options{Queues: []string{s.queue}, Concurrency: 1, Gate: g})
		defer c.CloseGate(context.Background())
		s.keyed("k", "a")
		if got := asDequeue(t, c); got != "a" {
			t.Errorf("fetched %q", got)
		}
	})
}

// What could not be held because Redis was away is in nobody's hands until it is; then
// it waits at its place.
func TestHoldIsRepeated(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	var down atomic.Bool
	w := &wire{UniversalClient: s.rdb, answer: func(under call) *redis.Cmd {
		if down.Load() && under.script() == "hold" {
			return redis.NewCmdResult(nil, errGone)
		}
		return nil
	}}
	g := newKeyGate("k")
	c := New(w, Options{Queues: []string{s.queue}, Concurrency: 4, Gate: g})
	defer c.CloseGate(context.Background())
	s.keyed("k", "a", "b")
	down.Store(true)
	n, err := c.takeAny(fetch{queue: s.queue}, 4)
	if n != 0 || err == nil || !strings.Contains(err.Error(), "hold jobs of "+s.queue) {
		t.Errorf("took %d, %v", n, err)
	}
	c.reclaim()
	if got := s.look()["active"]; got != "a b" || c.CountInFlight() != 0 {
		t.Errorf("active %q, in hand %d", got, c.CountInFlight())
	}
	down.Store(false)
	c.reclaim()
	s.wantHeld("k", "a", "b")
	if got := s.look(); got["active"] != "" || got["lease"] != "" {
		t.Errorf("afterwards %v", got)
	}
}

// A worker that dies with a job that was held loses time and no job.
func TestWorkerDiesWithAHeldJob(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.holding("k", time.Now(), "a", "b")
	dead := s.clientOf(t, newKeyGate(), 1)
	if got := asDequeue(t, dead); got != "a" {
		t.Fatalf("fetched %q", got)
	}
	s.must(s.rdb.ZAdd(context.Background(), store.LeaseKey(s.queue), zAt("a", 1)).Err())
	alive := s.clientOf(t, newKeyGate(), 2)
	o := alive.recoverOutcome()
	o.At = time.Time{}
	settled, err := alive.applyOutcome(context.Background(), s.queue, "a", "", o)
	s.must(err)
	if settled.Kind != store.KindRecover || settled.Count != 1 {
		t.Errorf("settled as %+v", settled)
	}
	_, err = alive.beat(context.Background(), s.queue)
	s.must(err)
	got := asDequeues(t, alive, s.queue, 2)
	slices.Sort(got)
	if fmt.Sprint(got) != "[a b]" {
		t.Errorf("fetched %v", got)
	}
}

// A worker that stops puts its fetched held jobs back in their places, except for the job that is running.
func TestHeldJobsGoBackAtTheEnd(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.holding("k", time.Now(), numbered(15)...)
	c := s.clientOf(t, newKeyGate(), 5)
	asDequeue(t, c)
	s.must(c.CloseGate(context.Background()))
	want := map[string]string{"active": "j0000", "lease": "j0000", "held": strings.Join(numbered(15)[1:], " "), "held_keys": "k"}
	got := s.look()
	for _, id := range numbered(15) {
		delete(got, id)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	s.wantHeld("k", numbered(15)[1:]...)
}

// A held job whose key may be asked for is work for a probe, unless an operator has
// paused the queue.
func TestHeldJobsAreBacklog(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.clientOf(t, newKeyGate(), 1)
	look := func(want int) {
		t.Helper()
		if got, err := c.backlog(context.Background()); got != want || err != nil {
			t.Errorf("backlog %d, %v; want %d", got, err, want)
		}
	}
	s.holding("k", s.now().Add(time.Hour), "a")
	look(0)
	s.holding("k", s.now().Add(-time.Millisecond), "a")
	look(1)
	s.must(s.rdb.Set(context.Background(), store.PausedKey(s.queue), 1, 0).Err())
	look(0)
}

// A job that is cancelled while it is held is never handed out, and its key goes with
// the last one.
func TestCancelledWhileHeld(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := newKeyGate()
	g.block("k", time.Now().Add(time.Hour))
	c := s.clientOf(t, g, 3)
	s.keyed("k", "a", "b")
	s.pending("p")
	asDequeue(t, c)
	s.wantHeld("k", "a", "b")
	_, err := store.Act(context.Background(), s.rdb, s.queue, store.Order{Action: store.Cancel}, []string{"a", "b"})
	s.must(err)
	g.open("k")
	c.KeyOpened("k")
	patience.Store(c, 50*time.Millisecond)
	if got := asDequeue(t, c); got != "" {
		t.Errorf("fetched %q", got)
	}
	want := map[string]string{"active": "p", "lease": "p", "cancelled": "a b", "a": "cancelled", "b": "cancelled", "p": "active"}
	got := s.look()
	got["cancelled"] = "a b"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}
