package engine

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// What was decided while Redis is away is recorded when Redis is back.
func TestOutcomeIsKeptUntilItIsOnRecord(t *testing.T) {
	t.Parallel()
	for kind, state := range map[store.Kind]string{
		store.KindComplete: "completed", store.KindRetry: "retry", store.KindReschedule: "scheduled", store.KindFail: "failed", store.KindCancel: "cancelled", store.KindRequeue: "pending",
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			var gone atomic.Bool
			tried := make(chan struct{}, 100)
			c := New(&wire{UniversalClient: s.rdb, answer: func(call) *redis.Cmd {
				if gone.Load() {
					tried <- struct{}{}
					return redis.NewCmdResult(nil, errGone)
				}
				return nil
			}}, Options{Queues: []string{s.queue}, Concurrency: 1, Retention: time.Hour, Gate: &fakeGate{grant: Grant{Max: 1}}})
			defer c.Finish()
			s.pending("a")
			asDequeue(t, c)
			var settled []store.Kind
			c.Delivery("a").Decide(store.Outcome{Kind: kind, At: time.Now().Add(time.Hour)}, func(s store.Applied) { settled = append(settled, s.Kind) })
			gone.Store(true)
			ended := make(chan struct{})
			go func() { settleDecided(c); close(ended) }()
			<-tried
			<-tried
			if c.CountInFlight() != 1 {
				t.Error("it is out of flight without Redis")
			}
			gone.Store(false)
			<-ended
			if got := s.fields("a")[store.FieldState]; got != state || c.CountInFlight() != 0 {
				t.Errorf("it is %s with %d in hand, want %s and none", got, c.CountInFlight(), state)
			}
			if diff := cmp.Diff([]store.Kind{kind}, settled); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}

// Outcomes that are decided while Redis is away for longer than a lease, and until it
// would be recovered, stand: nothing runs twice, and no crash is counted.
func TestOutcomesOutliveOutages(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const outages = 2
	server := redistest.Start(t)
	s := queueIn(t, server.Client(t))
	s.recovering()
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 2, Lease: shortLease, Retention: time.Hour, MaxCrashes: 2})
	inCall, goOn := make(chan struct{}, 10), make(chan struct{})
	var runs atomic.Int32
	s.pending("a")
	runServer(t, c, func(d *Delivery) {
		n := runs.Add(1)
		inCall <- struct{}{}
		<-goOn
		o := store.Outcome{Kind: store.KindRetry, At: time.Now()}
		if n >= outages {
			o = store.Outcome{Kind: store.KindFail, Error: "no"}
		}
		d.Decide(o, nil)
	})
	for range outages {
		select {
		case <-inCall:
		case <-time.After(time.Minute):
			t.Fatalf("it does not run again: %v", s.fields("a"))
		}
		server.Pause()
		goOn <- struct{}{}
		<-time.After(2 * shortLease) // the outage itself
		server.Resume()
	}
	redistest.Eventually(t, "it has failed", func() bool { return s.look()["failed"] == "a" })
	f := s.fields("a")
	got := map[string]string{
		"attempt": f[store.FieldAttempt], "last_error": f[store.FieldLastError], "crash_run": f["crash_run"],
	}
	if diff := cmp.Diff(map[string]string{"attempt": strconv.Itoa(outages - 1), "last_error": "no", "crash_run": ""}, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if crashes := f[store.FieldCrashes]; (crashes != "" && crashes != "0") || runs.Load() != outages {
		t.Errorf("%d runs, crashes %q; want %d and none", runs.Load(), crashes, outages)
	}
}

// onceGate lets one fetch pass and is closed from then on; keys are refused.
type onceGate struct {
	openGate
	passed atomic.Bool
}

func (g *onceGate) Wait(ctx context.Context, _ func(context.Context) (int, error)) (Grant, error) {
	if g.passed.CompareAndSwap(false, true) {
		return Grant{}, nil
	}
	<-ctx.Done()
	return Grant{}, ctx.Err()
}

func (*onceGate) Flowing() bool  { return false }
func (*onceGate) Forwards() bool { return false }

func (*onceGate) Admit(context.Context, string, string, int, string, any) Admission {
	return Admission{Verdict: KeyRefused, Until: time.Now().Add(time.Hour)}
}

// What a fetch took whose reply was lost, and what could not be held, is put back while
// the gate is closed too: no crash is counted.
func TestLostRepliesBehindAClosedGate(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]map[string]string{
		"fetch": {"pending": "a", "a": "pending"},
		"hold":  {"held": "a", "held_keys": "k", "a": "held"},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			s.recovering()
			s.pending("a")
			if script == "hold" {
				s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, "a"), store.FieldKey, "k").Err())
			}
			lost := make(chan struct{})
			var once atomic.Bool
			w := &wire{UniversalClient: s.rdb}
			w.answer = func(c call) *redis.Cmd {
				if c.script() != script || !once.CompareAndSwap(false, true) {
					return nil
				}
				if script == "fetch" {
					s.must(s.rdb.EvalSha(context.Background(), c.sha, c.keys, c.args...).Err())
				}
				close(lost)
				return redis.NewCmdResult(nil, context.DeadlineExceeded)
			}
			c := New(w, Options{Queues: []string{s.queue}, Concurrency: 1, Gate: &onceGate{}, Lease: shortLease})
			runServer(t, c, func(*Delivery) { t.Error("it was run") })
			<-lost
			<-time.After(2 * shortLease) // until it would have been recovered
			if diff := cmp.Diff(want, s.look()); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
			if got := s.fields("a")[store.FieldCrashes]; got != "" && got != "0" {
				t.Errorf("%s crashes", got)
			}
		})
	}
}

// A job whose call was answered while Redis refused the completion, and that comes back after a recovery
// before this is on record, is not run again by the worker that knows the answer.
func TestAnsweredJobIsNotRunAgain(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	var gone atomic.Bool
	tried := make(chan struct{}, 100)
	c := New(&wire{UniversalClient: s.rdb, answer: func(under call) *redis.Cmd {
		if gone.Load() && under.script() == "complete" {
			tried <- struct{}{}
			return redis.NewCmdResult(nil, errGone)
		}
		return nil
	}}, Options{Queues: []string{s.queue}, Concurrency: 2, Retention: time.Hour, Gate: &fakeGate{grant: Grant{Max: 1}}})
	patience.Store(c, 300*time.Millisecond)
	s.pending("a")
	asDequeue(t, c)
	c.Delivery("a").Decide(store.Outcome{Kind: store.KindComplete, Response: &store.Response{Status: 201}}, nil)
	gone.Store(true)
	ended := make(chan struct{})
	go func() { settleDecided(c); close(ended) }()
	<-tried
	<-tried

	// Another worker recovers it.
	other := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1})
	defer other.Finish()
	s.must(s.rdb.ZAdd(context.Background(), store.LeaseKey(s.queue), zAt("a", 1)).Err())
	if _, err := other.applyOutcome(context.Background(), s.queue, "a", "", store.Outcome{Kind: store.KindRecover}); err != nil {
		t.Fatal(err)
	}
	_, err := store.Forward(context.Background(), s.rdb, store.ForwardArgs{Queue: s.queue, Move: true})
	s.must(err)
	if got := s.fields("a")[store.FieldState]; got != store.StatePending {
		t.Fatalf("it is %s, want it back", got)
	}
	if id := asDequeue(t, c); id != "" {
		t.Errorf("%s runs again", id)
	}
	gone.Store(false)
	<-ended
	c.Finish()
	f := s.fields("a")
	if f[store.FieldState] != store.StateCompleted || f["response_status"] != "201" || c.CountInFlight() != 0 {
		t.Errorf("it is %v with %d in hand, want it completed", f, c.CountInFlight())
	}
	s.look()
}
