package breaker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// swapOf are swap.lua's arguments for an event of a key that has not been used.
func swapOf(t *testing.T, parent map[string]string, e policy.Event, o policy.Options) []any {
	t.Helper()
	d := decision{key: "k", options: o, parse: parseRecord, reply: reply{now: time.Now().UnixMicro(), more: " 0 0 0 "}}
	d.add(&happened{Event: e})
	own, _, err := d.next(e.Permit)
	if err != nil {
		t.Fatal(err)
	}
	return append(own, "step", parent["step"], "generation", parent["generation"])
}

// tripAll trips n keys of a destination in one go.
func tripAll(t *testing.T, rdb redis.UniversalClient, d string, n int) {
	t.Helper()
	if err := swapScript.Load(t.Context(), rdb).Err(); err != nil {
		t.Fatal(err)
	}
	pipe, parent := rdb.Pipeline(), rdb.HGetAll(t.Context(), placeOf(d, "").keys[0]).Val()
	for i := range n {
		p := placeOf(d, fmt.Sprintf("k%04d", i))
		own := swapOf(t, parent, policy.Event{Kind: policy.Tripped, Reason: "all"}, policy.Options{Caller: "ann"})
		pipe.EvalSha(t.Context(), swapScript.Hash(), p.keys, p.args(caller{who: "ann"}, own)...)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// openKeys is how many keys an instance takes for OPEN.
func openKeys(b *Breaker) int {
	n := 0
	for _, v := range b.keys.all() {
		if v.state == Open {
			n++
		}
	}
	return n
}

func TestMoreKeysChangeThanOneReadBrings(t *testing.T) {
	t.Parallel()
	const keys = 5*snapshotPage + 1
	s := redistest.Shared(t)
	d := redistest.Name(t, "pages")
	rdb := s.Client(t)
	var heard recorder
	b := start(t, deaf{s.Client(t)}, Options{Destination: d, RefreshInterval: time.Hour, OnEvent: heard.add})
	tripAll(t, rdb, d, 1)
	tripAll(t, rdb, d, keys-1)
	b.wake(taskRefresh)
	redistest.Eventually(t, "all keys OPEN", func() bool { return openKeys(b) == keys-1 })
	listed, err := breakersOf(t.Context(), rdb, d)
	if err != nil || len(listed) != keys {
		t.Fatalf("%d breakers are listed, %v; want the destination's and %d keys'", len(listed), err, keys-1)
	}
	if listed[0].Name != d || !slices.IsSortedFunc(listed[1:], func(a, b Status) int { return cmpNames(a.Name, b.Name) }) {
		t.Error("the list is not in order")
	}
	late := start(t, s.Client(t), Options{Destination: d, RefreshInterval: time.Hour})
	if n := openKeys(late); n != keys-1 {
		t.Errorf("a new instance knows %d OPEN keys after New, want %d", n, keys-1)
	}
	// The history has 1,000 transitions; what is older cannot be told any more.
	events := heard.await(t, 1000)
	if diff := cmp.Diff(allTransitions(t, rdb, d), events[len(events)-1000:]); diff != "" {
		t.Errorf("events (-history +told):\n%s", diff)
	}
}

// failingPage fails a read of a page, the one after so many.
type failingPage struct {
	redis.UniversalClient
	after int
}

func (f *failingPage) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if sha == snapshotScript.Hash() {
		if f.after--; f.after == 0 {
			cmd := redis.NewCmd(ctx)
			cmd.SetErr(errors.New("connection reset"))
			return cmd
		}
	}
	return f.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// What is known of the first page counts, although a later one fails: a call that starts then
// began after the reset of which that page told.
func TestAnswersCountAfterAPageHasFailed(t *testing.T) {
	t.Parallel()
	rdb := &failingPage{UniversalClient: redistest.Shared(t).Client(t)}
	h := newHarness(t, rdb, alone())
	trip(0)(h)
	h.byHand(policy.Reset, "ann", 0, "")
	tripAll(t, rdb, h.place.name, snapshotPage)
	rdb.after = 2
	if err := h.b.readSnapshot(t.Context()); err == nil {
		t.Fatal("the second page did not fail")
	}
	if got := ask("call")(h); got != "permit" {
		t.Fatal(got)
	}
	if got, want := tell("call", RateLimited(0))(h), "CLOSED failures=1"; got != want {
		t.Errorf("after a 429: %q, want %q", got, want)
	}
}

func cmpNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// allTransitions are those of a destination and its keys, oldest first.
func allTransitions(t *testing.T, rdb redis.UniversalClient, d string) []Event {
	t.Helper()
	history, err := readHistory(t.Context(), rdb, d, placeOf(d, "").events, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	for _, h := range slices.Backward(history) {
		events = append(events, h.event())
	}
	return events
}

func TestEventsOfKeysReachEveryInstanceOnceAndInOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	const d = "events"
	o := Options{Destination: d, FailureThreshold: 1, Cooldown: time.Millisecond, RefreshInterval: 20 * time.Millisecond, MaxInFlight: 1}
	instances := make([]recorder, 3)
	var acting *Breaker
	for i := range instances {
		o.OnEvent = instances[i].add
		client := s.Client(t)
		if i == 1 {
			client = deaf{client}
		}
		acting = start(t, client, o)
	}
	const rounds = 20
	for i := range rounds {
		b := acting.Key([]string{"", "a", "b", "c"}[i%4])
		report(t, b, RateLimited(0))
		if i%5 == 0 { // messages are missed
			if err := rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
				t.Fatal(err)
			}
		}
		awaitProbe(t, b, Success())
		if _, err := DefaultNamespace.Reset(t.Context(), rdb, b.Name(), "ann"); err != nil { // ends the slow start, if any
			t.Fatal(err)
		}
		awaitView(t, b, "CLOSED", func(v View) bool { return v.Free })
	}
	want := allTransitions(t, rdb, d)
	for i := range instances {
		if diff := cmp.Diff(want, instances[i].await(t, len(want))); diff != "" {
			t.Errorf("instance %d (-history +events):\n%s", i, diff)
		}
	}
}

func TestFlushAllWithAThousandOpenKeys(t *testing.T) {
	t.Parallel()
	const keys = 1000
	s := redistest.Start(t)
	rdb := s.Client(t)
	const d = "flushed"
	var heard recorder
	o := Options{Destination: d, RefreshInterval: 50 * time.Millisecond, OnEvent: heard.add, MaxInFlight: 1}
	hearing := start(t, s.Client(t), o)
	o.OnEvent = nil
	notHearing := start(t, deaf{s.Client(t)}, o)
	tripAll(t, rdb, d, keys)
	if _, err := DefaultNamespace.Trip(t.Context(), rdb, d, TripOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*Breaker{hearing, notHearing} {
		awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
		redistest.Eventually(t, "all keys OPEN", func() bool { return openKeys(b) == keys })
	}
	heard.await(t, keys+1)
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*Breaker{hearing, notHearing} {
		awaitView(t, b, "CLOSED", func(v View) bool { return v.State == Closed })
		redistest.Eventually(t, "nothing known of keys", func() bool { return b.keys.n.Load() == 0 })
		report(t, b.Key("k0001"), Success())
	}
	// Each incident has ended, once.
	open := map[string]int{}
	for _, e := range heard.await(t, 2*(keys+1)) {
		switch {
		case e.To == Open:
			open[e.Incident]++
		case e.To == Closed && e.Cause == CauseLost:
			open[e.Incident]--
		default:
			t.Fatalf("unexpected event %+v", e)
		}
	}
	for incident, n := range open {
		if n != 0 {
			t.Errorf("incident %s: %d openings without an end", incident, n)
		}
	}
	// And all works as ever.
	if s := report(t, notHearing.Key("k0001"), RateLimited(time.Minute)); s.State != Open {
		t.Errorf("after the loss: %+v", s)
	}
	awaitView(t, hearing.Key("k0001"), "OPEN", func(v View) bool { return v.State == Open })
}

// forget takes from Redis what a failover to a replica that lags would lose: the last
// changes, of these keys.
func forget(t *testing.T, rdb redis.UniversalClient, destination string, keys ...string) {
	t.Helper()
	p := placeOf(destination, "")
	for _, key := range keys {
		of := placeOf(destination, key)
		_, err := rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			pipe.Del(t.Context(), of.keys[len(p.keys):]...)
			pipe.HDel(t.Context(), p.keys[1], destination+"/"+key)
			pipe.ZRem(t.Context(), p.keys[4], destination+"/"+key)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Any of a breaker's Redis keys may be deleted alone, whatever goes on: within the
// times that are configured, calls are made again.
func TestNoDeletedKeyWedges(t *testing.T) {
	t.Parallel()
	situations := map[string]action{
		"failures":        call(RateLimited(0)),
		"open":            call(RateLimited(minute)),
		"probing":         both(call(RateLimited(minute)), both(pass(minute), try("held"))),
		"after a probe":   both(call(RateLimited(minute)), both(pass(minute), call(Failure()))),
		"slow start":      both(call(RateLimited(minute)), both(pass(minute), both(call(Success()), try("held")))),
		"little left":     both(live, both(on("worker-2", live), both(call(told(3, minute, 100)), try("held")))),
		"a small limit":   both(live, both(on("worker-2", live), both(call(told(3, minute, 3)), try("held")))),
		"a rolled window": both(live, both(call(told(3, minute, 3)), both(pass(minute), both(live, try("held"))))),
		"nothing left":    both(live, call(told(0, minute, 3))),
	}
	for name, situation := range situations {
		for _, key := range []string{"", "k"} {
			t.Run(name+"/"+key, func(t *testing.T) {
				t.Parallel()
				rdb := redistest.Shared(t).Client(t)
				for i := range placeOf("d", key).keys {
					h := newHarness(t, rdb, Options{MaxInFlight: 2, Cooldown: minute, ProbeTimeout: 30 * second})
					of(key, situation)(h)
					of(key, lose(i))(h)
					goesOn(t, h, key, fmt.Sprintf("without %s", placeOf("d", key).keys[i]))
				}
				h := newHarness(t, rdb, Options{MaxInFlight: 2, Cooldown: minute, ProbeTimeout: 30 * second})
				of(key, situation)(h)
				of(key, lose())(h)
				goesOn(t, h, key, "without anything")
			})
		}
	}
}

// pass lets time go by.
func pass(d time.Duration) action {
	return func(h *harness) string {
		h.clock.advance(d, d)
		return ""
	}
}

// goesOn lets the instances do what they do by themselves, until calls are made as
// on the first day.
func goesOn(t *testing.T, h *harness, key, what string) {
	t.Helper()
	const patience = 5 * 60 // seconds
	for i := range patience {
		h.clock.advance(second, second)
		for _, b := range []*Breaker{h.b, h.instance("worker-2")} {
			if _, err := b.readChanges(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			if i%10 == 0 {
				if err := b.register(t.Context(), validFor*registerEvery); err != nil {
					t.Fatal(err)
				}
			}
			b.sendJoins(t.Context())
			if err := b.healSome(t.Context(), uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		// A hint teaches: then calls are counted, and several may be in flight once some were accepted.
		got, beside := of(key, try("next"))(h), of(key, try("beside"))(h)
		if got == "permit" || strings.HasSuffix(got, "counted") && strings.HasSuffix(beside, "counted") {
			return
		}
		for _, name := range []string{"next", "beside"} {
			if p := h.permits[name]; p.c != nil {
				if _, err := p.Report(t.Context(), Success()); err != nil {
					t.Fatal(err)
				}
				h.permits[name] = Permit{}
			}
		}
	}
	t.Errorf("%s: calls are held up for ever: %s", what, of(key, get)(h))
}

// switching dials whatever address it is told to.
type switching struct{ addr atomic.Pointer[string] }

func (s *switching) client(t *testing.T) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: "failover", ContextTimeoutEnabled: true, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", *s.addr.Load())
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// The replica that takes over has not heard of the last changes: what it knows is
// the truth from then on, and incidents that it does not know of end.
func TestFailoverToAReplicaThatWasBehind(t *testing.T) {
	t.Parallel()
	first := redistest.Start(t, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
	second := redistest.Start(t)
	main, replica := first.Client(t), second.Client(t)
	const d = "failover"
	var heard recorder
	var to switching
	addr := first.Addr()
	to.addr.Store(&addr)
	b := start(t, to.client(t), Options{Destination: d, RefreshInterval: 50 * time.Millisecond, OnEvent: heard.add, MaxInFlight: 1})
	trip := func(rdb redis.UniversalClient, key string) {
		t.Helper()
		if _, err := DefaultNamespace.Trip(t.Context(), rdb, d+"/"+key, TripOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	trip(main, "both")
	trip(main, "reset-later")
	host, port, err := net.SplitHostPort(first.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.SlaveOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the replica to know", func() bool {
		list, err := breakersOf(t.Context(), main, d)
		if err != nil || len(list) != 3 {
			t.Fatal(list, err)
		}
		n, err := replica.ZCard(t.Context(), placeOf(d, "").keys[4]).Result()
		return err == nil && n == 2
	})
	if err := replica.SlaveOf(t.Context(), "NO", "ONE").Err(); err != nil { // it hears no more
		t.Fatal(err)
	}
	trip(main, "opened-later")
	for range 2 {
		if _, err := DefaultNamespace.Reset(t.Context(), main, d+"/reset-later", "ann"); err != nil {
			t.Fatal(err)
		}
	}
	heard.await(t, 4)
	addr2 := second.Addr()
	to.addr.Store(&addr2)
	first.Kill()

	want := map[string]State{"both": Open, "reset-later": Open, "opened-later": Closed}
	for key, state := range want {
		awaitView(t, b.Key(key), key+" to be "+state.String(), func(v View) bool { return v.State == state })
	}
	var ended []string
	for _, e := range heard.await(t, 5) {
		if e.Cause == CauseLost {
			ended = append(ended, e.Key)
		}
	}
	if !slices.Equal(ended, []string{"opened-later"}) {
		t.Errorf("incidents that ended because they were lost: %v", ended)
	}
	// What comes after is newer than all that was.
	redistest.Eventually(t, "the subscription to the new main", func() bool {
		n, err := replica.PubSubNumSub(t.Context(), placeOf(d, "").channel).Result()
		return err == nil && n[placeOf(d, "").channel] > 0
	})
	for _, key := range []string{"both", "reset-later"} {
		for range 2 {
			if _, err := DefaultNamespace.Reset(t.Context(), replica, d+"/"+key, "ann"); err != nil {
				t.Fatal(err)
			}
		}
		awaitView(t, b.Key(key), key+" to be CLOSED", func(v View) bool { return v.State == Closed && v.Free })
	}
	redistest.Eventually(t, "a call under each key", func() bool {
		for key := range want {
			if _, err := b.Key(key).Allow(t.Context()); err != nil {
				if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOpen) {
					t.Fatal(err)
				}
				return false
			}
		}
		return true
	})
}
