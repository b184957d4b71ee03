package callbacks

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// hangUp is a receiver that cannot be reached.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// A receiver is unreachable, then fails, then works: it gets a callback for every event, with
// the same id in each try.
func TestUnreachableReceiverRecovers(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	e := listen(t, hangUp, secretOne, secretTwo)
	b.start(worker{receivers: []Receiver{e.receiver("shop")}, change: quickRetries(t)})
	ids := b.many("shop", 40)
	state := func() breaker.State { return b.breaker("shop") }
	b.eventually("that its breaker is open", func() bool { return state() != breaker.Closed })
	b.eventually("that the others wait untouched", func() bool {
		waiting := 0
		for _, j := range b.callbacks() {
			if j.Status == jobs.Pending && j.AvailableAt.After(time.Now().Add(-time.Minute)) {
				waiting++
			}
			if j.Attempt != 0 {
				t.Errorf("%s: that nobody listens has cost a retry", j.ID)
			}
		}
		return waiting == len(ids)
	})
	ids = append(ids, b.many("shop", 10)...)
	e.awaitWithin(10*time.Second, "some probes", func() bool { return len(e.all()) >= 6 })
	if n := len(e.all()); n > 40 {
		t.Errorf("%d calls to a receiver that cannot be reached", n)
	}
	e.answers(status(500))
	e.await("some errors", func() bool {
		n := 0
		for _, h := range e.all() {
			if h.status == 500 {
				n++
			}
		}
		return n >= 3
	})
	e.answers(nil)
	b.awaitAll(e, ids...)
	b.eventually("that the breaker is closed", func() bool { return state() == breaker.Closed })
	for _, line := range []string{
		`level=WARN msg="a receiver takes no callbacks; they wait and are tried again" destination=shop why="the receiver cannot be reached: EOF"`,
		`level=INFO msg="a receiver takes callbacks again" destination=shop`,
	} {
		if n := strings.Count(b.log.String(), line); n != 1 {
			t.Errorf("logged %d times, want once: %s", n, line)
		}
	}
	byJob, again := map[string]map[string]bool{}, 0
	for _, h := range e.all() {
		if byJob[h.key] == nil {
			byJob[h.key] = map[string]bool{}
		} else {
			again++
		}
		byJob[h.key][h.id] = true
	}
	for key, ids := range byJob {
		if len(ids) != 1 {
			t.Errorf("the end of %s was told under the ids %v", key, ids)
		}
	}
	if again == 0 {
		t.Error("nothing was tried twice")
	}
	b.eventually("that all callbacks are completed", func() bool {
		for _, j := range b.callbacks() {
			if j.Status != jobs.Completed {
				return false
			}
		}
		return true
	})
}

// The breaker holds the callbacks of a receiver that answers 500 to everything, as if the receiver
// were unreachable. They are delivered when it works again.
func TestFailingReceiver(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newHarness(t)
	e := listen(t, status(500))
	b.start(worker{receivers: []Receiver{e.receiver("shop")}, change: quickRetries(t)})
	ids := b.many("shop", 500)
	b.eventually("that it is held, or was called for each", func() bool {
		return len(b.callbacks()) == len(ids) && (b.breaker("shop") == breaker.Open || len(e.all()) >= len(ids))
	})
	e.await("some probes", func() bool { return len(e.all()) >= 2*mostPerReceiver })
	t.Logf("%d calls to a receiver that answers 500, for %d ends", len(e.all()), len(ids))
	if n := len(e.all()); n > 50 {
		t.Errorf("%d calls to a receiver that answers 500, for %d ends", n, len(ids))
	}
	e.answers(nil)
	b.awaitAll(e, ids...)
}

// One callback that its receiver always answers with 500 spends its own retries; the
// others are not held because of it.
func TestFailingCallback(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newHarness(t)
	var bad atomic.Value
	e := listen(t, func(w http.ResponseWriter, r *http.Request) {
		if bad.CompareAndSwap(nil, r.Header.Get("webhook-id")); bad.Load() == r.Header.Get("webhook-id") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	b.start(worker{receivers: []Receiver{e.receiver("shop")}, change: quickRetries(t)})
	first := b.enqueue("shop")
	e.await("four calls for it", func() bool { return len(e.all()) >= 4 })
	if state := b.breaker("shop"); state != breaker.Closed {
		t.Errorf("the breaker is %s because of one callback", state)
	}
	b.awaitAll(e, b.many("shop", 20)...)
	for _, j := range b.callbacks() {
		if of := e.all()[0]; j.ID == of.id && (j.Attempt < 3 || of.key != first) {
			t.Errorf("%s of %s: %d retries after four calls", j.ID, of.key, j.Attempt)
		}
	}
}

// breaker is the state of a receiver's breaker.
func (b *harness) breaker(destination string) breaker.State {
	b.t.Helper()
	read, err := breaker.DefaultNamespace.ReadOne(b.t.Context(), b.rdb, breaker.Query{Keys: true}, Destination)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, one := range read.Keys {
		if one.Name == Destination+"/"+destination {
			return one.State
		}
	}
	return breaker.Closed
}

// quickRetries shortens the first retries for the test; these are whole seconds.
func quickRetries(t *testing.T) func(*Callbacks) {
	t.Helper()
	return func(c *Callbacks) { c.retries.InitialDelay, c.retries.MaxDelay = time.Second, 2*time.Second }
}

// A receiver that asks for a pause gets no call until its end, from any worker.
func TestReceiverAsksForAPause(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	e := listen(t, status(429, "Retry-After", "2"))
	for range 2 {
		b.start(worker{receivers: []Receiver{e.receiver("shop")}, breaker: func(o *breaker.Options) { o.MaxCooldown = time.Minute }})
	}
	ids := b.many("shop", 100)
	b.eventually("that its breaker is open and no call is under way", func() bool {
		v, err := breaker.DefaultNamespace.Get(t.Context(), b.rdb, Destination+"/shop")
		if err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		return v.State == breaker.Open && e.open == 0
	})
	refused := e.all() // by what the workers had in hand at the first one
	if len(refused) > 2*(mostPerReceiver+spare) {
		t.Errorf("%d calls to a receiver that asks for a pause", len(refused))
	}
	e.answers(nil)
	b.awaitAll(e, ids...)
	// Those that were on their way when the other worker received of it still come.
	last, early := refused[len(refused)-1].at, 0
	for _, h := range e.all()[len(refused):] {
		if h.at.Sub(last) < 1500*time.Millisecond {
			early++
		}
	}
	if early > mostPerReceiver+spare {
		t.Errorf("it was called %d times within 1.5 s after it had asked for 2 s", early)
	}
}

// One receiver is slow, another one never answers, and a third one gets its callbacks in
// time.
func TestSlowReceiversStarveNoOther(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newHarness(t)
	const takes = 400 * time.Millisecond
	over := make(chan struct{})
	slow := listen(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(takes):
		case <-over:
		}
		w.WriteHeader(http.StatusOK)
	})
	dead := listen(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	quick := listen(t, nil)
	b.start(worker{
		receivers: []Receiver{slow.receiver("slow"), dead.receiver("dead"), quick.receiver("quick")},
		change:    func(c *Callbacks) { c.receivers["dead"].timeout = time.Second },
	})
	client, err := jobs.NewClient(b.rdb, jobs.WithDestinations("slow", "dead", "quick"))
	if err != nil {
		t.Fatal(err)
	}
	b.client = client
	b.many("dead", 150)
	ofSlow := b.many("slow", 150)
	slow.await("that it is busy", func() bool { return len(slow.all()) > 0 })
	began := time.Now()
	var ofQuick []string
	for range 10 {
		ofQuick = append(ofQuick, b.many("quick", 20)...)
	}
	b.awaitAll(quick, ofQuick...)
	took := time.Since(began)
	done := len(slow.taken())
	if done == len(ofSlow) {
		t.Errorf("the quick one had received all after %s, when the slow one had received %d of %d", took, done, len(ofSlow))
	}
	t.Logf("the quick one had received all after %s, when the slow one had received %d of %d", took, done, len(ofSlow))
	if a, b := slow.mostAtOnce(), dead.mostAtOnce(); a > mostPerReceiver || b > mostPerReceiver {
		t.Errorf("%d and %d calls at once, want at most %d", a, b, mostPerReceiver)
	}
	for _, h := range quick.all() {
		if late := h.at.Sub(h.body.Timestamp); late > 40*time.Second {
			t.Errorf("%s came %s after the end", h.id, late)
			break
		}
	}
	// The slow one hears of all its ends, too, at its pace.
	slow.awaitWithin(60*time.Second, "the rest", func() bool { return len(slow.taken()) == len(ofSlow) })
	moved := 0
	for _, j := range b.callbacks() {
		if j.Key == "slow" {
			moved += j.RescheduleCount
		}
	}
	if moved > 5*len(ofSlow) {
		t.Errorf("%d callbacks were rescheduled %d times", len(ofSlow), moved)
	}
	t.Logf("%d callbacks of the slow one were rescheduled %d times", len(ofSlow), moved)
	close(over)
}

// Refused and expired callbacks are logged once for each receiver; failed ones can be retried.
func TestGivenUpCallbacksAreLogged(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	ctx := t.Context()
	e := listen(t, status(410))
	b.start(worker{receivers: []Receiver{e.receiver("shop"), e.receiver("blog")}})
	b.eventually("a first look", func() bool { return b.rdb.Exists(ctx, "tidegate:{tidegate-callbacks}:watched").Val() == 1 })
	id := b.enqueue("shop")
	b.many("shop", 4)
	b.eventually("a line", func() bool { return strings.Contains(b.log.String(), "callbacks were given up") })
	e.await("five calls", func() bool { return len(e.all()) == 5 })
	var failed *jobs.Job
	b.eventually("that all have failed", func() bool {
		n := 0
		for _, j := range b.callbacks() {
			if j.Status == jobs.Failed {
				n++
				failed = j
			}
		}
		return n == 5
	})
	if want := "the receiver answered 410 Gone: it wants no more of these callbacks"; failed.LastError != want {
		t.Errorf("last error %q, want %q", failed.LastError, want)
	}
	old := jobs.New(Destination, 1, jobs.ID("blog:default:1763762400000-0"), jobs.Key("blog"), jobs.TTL(0))
	if _, err := b.own.Enqueue(store.AsSystem(ctx), old); err != nil {
		t.Fatal(err)
	}
	failures, expirations := 0, 0
	given := regexp.MustCompile(`level=WARN msg="callbacks were given up; [^"]*" failed=(\d) expired=(\d) look="tidegate list --destination tidegate-callbacks --status failed,expired"`)
	b.eventually("lines about all of them", func() bool {
		failures, expirations = 0, 0
		for _, m := range given.FindAllStringSubmatch(b.log.String(), -1) {
			failures += int(m[1][0] - '0')
			expirations += int(m[2][0] - '0')
		}
		return failures >= 5 && expirations >= 1
	})
	if failures != 5 || expirations != 1 {
		t.Errorf("%d failed and %d expired ones were logged, want 5 and 1", failures, expirations)
	}
	e.answers(nil)
	for cid, j := range b.callbacks() {
		if j.Status == jobs.Failed {
			if err := b.own.Retry(ctx, cid); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.awaitAll(e, id)
	e.await("all of them", func() bool { return len(e.taken()) == 5 })
}

// A worker that is stopped with calls in flight leaves them to others, and nothing is
// lost.
func TestWorkerStopsDuringCalls(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newHarness(t)
	release := make(chan struct{})
	e := listen(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done():
		}
	})
	_, stop := b.start(worker{receivers: []Receiver{e.receiver("shop")}})
	ids := b.many("shop", 30)
	b.eventually("calls", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.open == mostPerReceiver })
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped: // it cuts the calls when its time to shut down is over
	case <-time.After(time.Minute):
		t.Fatal("it has not stopped within a minute")
	}
	close(release)
	b.start(worker{receivers: []Receiver{e.receiver("shop")}})
	e.await("all ends", func() bool { return len(e.taken()) == len(ids) })
}

// The waits for a slot follow the receiver's pace.
func TestSlots(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	after := func(d time.Duration) time.Time { return now.Add(d) }
	slots := newCallSlots(2)
	slots.took = time.Second
	for i, tc := range []struct {
		at   time.Duration
		call time.Duration // how long one has been in flight, 0 for none
		want time.Duration // a long one may be a quarter more
	}{
		{0, 0, 500 * time.Millisecond},
		{0, 0, time.Second},
		{0, 0, 1500 * time.Millisecond},
		{time.Second, 0, time.Second}, // two have come back
		{time.Second, 0, 1500 * time.Millisecond},
		{time.Second, 8 * time.Second, 16 * time.Second},  // it has become slower
		{time.Minute, 0, 500 * time.Millisecond},          // those waits are over
		{time.Minute, 20 * time.Minute, 10 * time.Minute}, // half of it
		{time.Minute, 20 * time.Minute, 15 * time.Minute},
		{time.Minute, 0, 2 * time.Second}, // it is well again
	} {
		delete(slots.started, 1)
		if tc.call > 0 {
			slots.started[1] = after(tc.at - tc.call)
		}
		most := tc.want
		if tc.want > longWait {
			most += tc.want / 4
		}
		if got := slots.wait(after(tc.at)); got < tc.want || got > most {
			t.Errorf("turn %d, at %s: in %s, want %s", i, tc.at, got, tc.want)
		}
	}
}

// Callbacks wait for the next free slot of a quick receiver: ten callbacks at the same time
// reschedule none.
func TestWaitForAQuickReceiver(t *testing.T) {
	t.Parallel()
	slots := newCallSlots(1)
	end, _ := slots.acquire(t.Context())
	if again, later := slots.acquire(t.Context()); again != nil || later > time.Second {
		t.Fatalf("a slot that is taken: %v, in %s", again != nil, later)
	}
	end()
	end, _ = slots.acquire(t.Context())
	waiting := make(chan bool)
	go func() {
		next, _ := slots.acquire(context.WithoutCancel(t.Context()))
		waiting <- next != nil
	}()
	end()
	if !<-waiting {
		t.Error("the next slot was not waited for")
	}
}

func TestSlotsForAllReceivers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][2]int{0: {8, 12}, 1: {8, 12}, 3: {8, 28}, 8: {8, 68}, 9: {7, 67}, 64: {1, 68}, 200: {1, 204}} {
		c := &Callbacks{receivers: map[string]*receiver{}}
		for i := range n {
			c.receivers[fmt.Sprint(i)] = nil
		}
		if got := [2]int{perReceiver(n), c.Concurrency()}; got != want {
			t.Errorf("%d receivers: %v calls to each, of all, want %v", n, got, want)
		}
	}
}
