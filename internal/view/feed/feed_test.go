package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// fixture is a hub that polls often, and a client.
type fixture struct {
	*testing.T
	server *redistest.Server
	rdb    redis.UniversalClient
	client *jobs.Client
	hub    *Hub
}

func newFixture(t *testing.T) *fixture {
	server := redistest.Start(t)
	rdb := server.Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("deviantart", "mastodon"))
	if err != nil {
		t.Fatal(err)
	}
	s := &fixture{T: t, server: server, rdb: rdb, client: client}
	s.hub = s.newHub()
	return s
}

// newHub runs a hub until the test ends.
func (s *fixture) newHub() *Hub {
	hub := New(s.rdb, s.client, Options{Every: 20 * time.Millisecond, Linger: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	s.Cleanup(func() { cancel(); running.Wait() })
	return hub
}

func (s *fixture) subscribe(hub *Hub, o SubscribeOptions) *Subscription {
	s.Helper()
	sub, err := hub.Subscribe(s.Context(), o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(sub.Close)
	return sub
}

func (s *fixture) next(sub *Subscription) Event {
	s.Helper()
	select {
	case e, ok := <-sub.C:
		if !ok {
			s.Fatal("the subscription was closed")
		}
		return e
	case <-time.After(time.Minute):
		s.Fatal("no event")
	}
	return Event{}
}

// nextOf skips events of other destinations.
func (s *fixture) nextOf(sub *Subscription, destination string) Event {
	s.Helper()
	for {
		if e := s.next(sub); e.Destination == destination {
			return e
		}
	}
}

func (s *fixture) end(id string) {
	s.Helper()
	if _, err := s.client.Enqueue(s.Context(), jobs.New("deviantart", 1, jobs.ID(id), jobs.Batch("b1"), jobs.Key("alice"))); err != nil {
		s.Fatal(err)
	}
	if err := s.client.Cancel(s.Context(), id, jobs.Because("of the test")); err != nil {
		s.Fatal(err)
	}
}

func TestHubPublishesJobsBreakersAndPauses(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	sub := s.subscribe(s.hub, SubscribeOptions{})

	s.end("a")
	e := s.nextOf(sub, "deviantart")
	var data jobData
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatal(err)
	}
	want := jobData{ID: "a", Destination: "deviantart", Key: "alice", Batch: "b1", Status: "cancelled", At: data.At, LastError: "of the test"}
	if e.Type != "job.cancelled" || data != want || time.Since(e.At).Abs() > time.Minute {
		t.Errorf("event %+v with %+v, want %+v", e, data, want)
	}

	if _, err := breaker.DefaultNamespace.Trip(t.Context(), s.rdb, "deviantart/alice", breaker.TripOptions{By: "ops", Reason: "tea"}); err != nil {
		t.Fatal(err)
	}
	var transition breaker.Event
	e = s.nextOf(sub, "deviantart")
	if err := json.Unmarshal(e.Data, &transition); err != nil {
		t.Fatal(err)
	}
	if e.Type != Breaker || transition.Name != "deviantart/alice" || transition.To != breaker.Open || transition.Reason != "tea" {
		t.Errorf("event %s %+v", e.Type, transition)
	}
	if _, err := breaker.DefaultNamespace.Reset(t.Context(), s.rdb, "deviantart/alice", "ops"); err != nil {
		t.Fatal(err)
	}
	e = s.nextOf(sub, "deviantart")
	if err := json.Unmarshal(e.Data, &transition); err != nil || transition.To != breaker.Closed {
		t.Errorf("event %s %+v, %v; want the key's breaker CLOSED", e.Type, transition, err)
	}

	if _, err := s.client.PauseDestination(t.Context(), "deviantart"); err != nil {
		t.Fatal(err)
	}
	if e = s.nextOf(sub, "deviantart"); e.Type != Destination || string(e.Data[:len(`{"at"`)]) != `{"at"` {
		t.Errorf("event %s %s", e.Type, e.Data)
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.subscribe(s.hub, SubscribeOptions{})
	ofJobs := s.subscribe(s.hub, SubscribeOptions{Types: []string{"job"}})
	expired := s.subscribe(s.hub, SubscribeOptions{Types: []string{"job.expired"}})
	other := s.subscribe(s.hub, SubscribeOptions{Destination: "mastodon"})
	s.end("a")
	if _, err := s.client.Enqueue(t.Context(), jobs.New("deviantart", 1, jobs.ID("b"), jobs.TTL(0))); err != nil {
		t.Fatal(err)
	}
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), s.rdb, "mastodon", breaker.TripOptions{By: "last"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		sub   *Subscription
		types []string
	}{
		{ofJobs, []string{"job.cancelled", "job.expired"}},
		{expired, []string{"job.expired"}},
		{other, []string{"breaker"}},
	} {
		for _, typ := range want.types {
			if e := s.next(want.sub); e.Type != typ {
				t.Errorf("event %s %s, want %s", e.Type, e.Data, typ)
			}
		}
	}
}

// A subscriber that reconnects gets all that it has missed: exactly from the same hub, and
// from any other one with some repeats, which have the same ids.
func TestResume(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	sub := s.subscribe(s.hub, SubscribeOptions{})
	s.end("first")
	first := s.nextOf(sub, "deviantart")
	keep := s.subscribe(s.hub, SubscribeOptions{Types: []string{"job"}}) // so that the hub goes on
	sub.Close()
	if _, ok := <-sub.C; ok {
		t.Error("a closed subscription gives events")
	}
	for i := range 20 {
		s.end(fmt.Sprint("missed", i))
	}
	for range 20 {
		s.next(keep)
	}
	same := s.subscribe(s.hub, SubscribeOptions{After: first.ID, Types: []string{"job"}})
	for i := range 20 {
		if e := s.next(same); e.Type != "job.cancelled" || idOf(t, e) != fmt.Sprint("missed", i) {
			t.Fatalf("event %d is %s of %s, want job.cancelled of missed%d", i, e.Type, idOf(t, e), i)
		}
	}

	other := s.subscribe(s.newHub(), SubscribeOptions{After: first.ID, Types: []string{"job"}})
	s.end("new")
	got := map[string]bool{}
	for !got["new"] {
		e := s.next(other)
		if e.ID == first.ID {
			t.Error("the last received event comes again")
		}
		if got[idOf(t, e)] {
			t.Errorf("%s comes twice after a reconnect", idOf(t, e))
		}
		got[idOf(t, e)] = true
	}
	for i := range 20 {
		if !got[fmt.Sprint("missed", i)] {
			t.Errorf("missed%d is lost", i)
		}
	}
	// Subscribers get a gap for events that are no longer kept.
	everything := s.subscribe(s.newHub(), SubscribeOptions{After: first.ID})
	if e := s.next(everything); e.Type != Gap || string(e.Data) != `{"of":["breaker","destination"]}` || e.ID != first.ID {
		t.Errorf("first event at another hub: %s %s %s", e.ID, e.Type, e.Data)
	}
}

// The only subscriber may leave and reconnect: nothing is missed, and there is no gap.
func TestOnlySubscriberReconnects(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	hub := New(s.rdb, s.client, Options{Every: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	defer running.Wait()
	defer cancel()
	sub := s.subscribe(hub, SubscribeOptions{})
	s.end("first")
	first := s.next(sub)
	sub.Close()
	s.end("missed")
	<-time.After(10 * hub.o.Every)
	back := s.subscribe(hub, SubscribeOptions{After: first.ID})
	if e := s.next(back); e.Type != "job.cancelled" || idOf(t, e) != "missed" {
		t.Errorf("event %s %s, want the end that was missed", e.Type, e.Data)
	}
}

func idOf(t *testing.T, e Event) string {
	t.Helper()
	var d struct{ ID string }
	if err := json.Unmarshal(e.Data, &d); err != nil {
		t.Fatal(err)
	}
	return d.ID
}

func TestBadIDsAndTooMany(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for _, id := range []string{"x", "-1-0:b", "12", "12x-0", "12-0", "99999999999999999999-0:a", "1-0:x\nevent: evil", "1-0:a b"} {
		if _, err := s.hub.Subscribe(t.Context(), SubscribeOptions{After: id}); err != ErrBadID { //nolint:errorlint // returned as it is
			t.Errorf("%q: %v, want ErrBadID", id, err)
		}
	}
	for range MostSubscribers {
		s.subscribe(s.hub, SubscribeOptions{})
	}
	if _, err := s.hub.Subscribe(t.Context(), SubscribeOptions{}); err != ErrTooMany { //nolint:errorlint // returned as it is
		t.Errorf("%v, want ErrTooMany", err)
	}
}

// 200 subscribers cost Redis as much as one, and none cost nothing.
func TestManySubscribersCostAsOne(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	looks := func() int {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		return s.hub.polls
	}
	// count is how many commands ten looks take.
	count := func() float64 {
		s.server.ResetStats(t)
		began := looks()
		for deadline := time.After(time.Minute); looks() < began+10; {
			select {
			case <-deadline:
				t.Fatal("the hub does not look")
			case <-time.After(time.Millisecond):
			}
		}
		n := 0
		for name, calls := range s.server.CommandStats(t) {
			if name != "info" && name != "config" {
				n += int(calls)
			}
		}
		return float64(n) / float64(looks()-began)
	}
	first := s.subscribe(s.hub, SubscribeOptions{})
	one := count()
	subs := []*Subscription{first}
	for range 199 {
		subs = append(subs, s.subscribe(s.hub, SubscribeOptions{}))
	}
	many := count()
	if one == 0 || many > 2*one {
		t.Errorf("a look for one subscriber takes %.0f commands, for 200 %.0f", one, many)
	}
	t.Logf("one %.1f, two hundred %.1f commands a look", one, many)
	for _, sub := range subs {
		sub.Close()
	}
	redistest.Eventually(t, "the hub rests", func() bool {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		return s.hub.ready == nil
	})
	s.server.ResetStats(t)
	before := looks()
	<-time.After(10 * s.hub.o.Every)
	if n := looks() - before; n > 0 {
		t.Errorf("%d polls without a subscriber", n)
	}
}

// A slow reader misses nothing, and delays no other: more has happened than the hub keeps
// when it begins to read.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	slow := s.subscribe(s.hub, SubscribeOptions{Types: []string{"job"}})
	quick := s.subscribe(s.hub, SubscribeOptions{Types: []string{"job"}})
	specs := make([]*jobs.Spec, 2*buffered)
	for i := range specs {
		specs[i] = jobs.New("deviantart", 1, jobs.ID(fmt.Sprint("j", i)), jobs.TTL(0))
	}
	if _, err := s.client.EnqueueMany(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	s.all("quick", quick, len(specs))
	s.all("slow", slow, len(specs))
	// Both are where they were.
	s.end("last")
	for _, sub := range []*Subscription{slow, quick} {
		if e := s.next(sub); idOf(t, e) != "last" {
			t.Errorf("event %s of %s, want last", e.Type, idOf(t, e))
		}
	}
}

// all reads until n different jobs have ended. An event may come again after a catch-up,
// which begins two seconds before the last received event.
func (s *fixture) all(who string, sub *Subscription, n int) {
	s.Helper()
	got := map[string]int{}
	twice := 0
	for len(got) < n {
		e := s.next(sub)
		if e.Type == Gap {
			s.Fatalf("%s: a gap after %d of %d", who, len(got), n)
		}
		id := idOf(s.T, e)
		if got[id]++; got[id] > 1 {
			twice++
		}
	}
	if twice > n {
		s.Errorf("%s: events came %d times again, want at most once each of %d", who, twice, n)
	}
}

// Many subscribers that reconnect at once read in turn, in pages.
func TestManySubscribersReconnect(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	s := newFixture(t)
	sub := s.subscribe(s.hub, SubscribeOptions{})
	s.end("first")
	first := s.nextOf(sub, "deviantart").ID
	const n = 3000
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New("deviantart", 1, jobs.ID(fmt.Sprint("j", i)), jobs.TTL(0))
	}
	if _, err := s.client.EnqueueMany(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	other := s.newHub()
	var back []*Subscription
	for range 20 {
		back = append(back, s.subscribe(other, SubscribeOptions{After: first, Types: []string{"job"}}))
	}
	for i, sub := range back {
		s.all(fmt.Sprint("number ", i), sub, n)
	}
}

// When Redis refuses writes, events are still published.
func TestRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		if _, err := s.client.Enqueue(t.Context(), jobs.New("deviantart", 1, jobs.ID("a"))); err != nil {
			t.Fatal(err)
		}
		if err := s.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
		sub := s.subscribe(s.hub, SubscribeOptions{})
		if err := s.client.Cancel(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if e := s.next(sub); e.Type != "job.cancelled" || idOf(t, e) != "a" {
			t.Errorf("event %s %s", e.Type, e.Data)
		}
	})
	t.Run("one destination", func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		if err := s.rdb.Set(t.Context(), store.EventsKey(store.DefaultNamespace.Queue("mastodon", store.Default)), "no stream", 0).Err(); err != nil {
			t.Fatal(err)
		}
		sub := s.subscribe(s.hub, SubscribeOptions{})
		s.end("a")
		if e := s.next(sub); e.Type != "job.cancelled" || idOf(t, e) != "a" {
			t.Errorf("event %s %s", e.Type, e.Data)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		master := redistest.Start(t)
		if err := s.rdb.Do(t.Context(), "REPLICAOF", "127.0.0.1", strings.TrimPrefix(master.Addr(), "127.0.0.1:")).Err(); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, "it follows", func() bool {
			return strings.Contains(s.rdb.Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
		sub := s.subscribe(s.hub, SubscribeOptions{})
		if _, err := breaker.DefaultNamespace.Trip(t.Context(), master.Client(t), "deviantart", breaker.TripOptions{By: "ops"}); err != nil {
			t.Fatal(err)
		}
		if e := s.next(sub); e.Type != Breaker || e.Destination != "deviantart" {
			t.Errorf("event %s %s", e.Type, e.Data)
		}
	})
}
