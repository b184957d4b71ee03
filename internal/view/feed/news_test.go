package feed

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// rarely runs a hub that polls at its start only, until the test ends.
func rarely(t *testing.T, rdb redis.UniversalClient, client *jobs.Client) *Hub {
	t.Helper()
	hub := New(rdb, client, Options{Every: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return hub
}

// An event reaches subscribers by its message, without a poll: each kind, also right after
// another one, of a key's breaker, and after the connection was lost.
func TestEventsWake(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) redis.UniversalClient{
		"redis":     func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
		"cluster":   func(t *testing.T) redis.UniversalClient { return redistest.StartCluster(t).Client(t) },
		"miniredis": func(t *testing.T) redis.UniversalClient { return redistest.Embedded(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			client, err := jobs.NewClient(rdb, jobs.WithDestinations("deviantart", "mastodon"))
			if err != nil {
				t.Fatal(err)
			}
			s := &fixture{T: t, rdb: rdb, client: client, hub: rarely(t, rdb, client)}
			sub := s.subscribe(s.hub, SubscribeOptions{})
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			var took []time.Duration
			for i := range 30 {
				began := time.Now()
				s.end(fmt.Sprint("j", i))
				if e := s.next(sub); e.Type != "job.cancelled" || idOf(t, e) != fmt.Sprint("j", i) {
					t.Fatalf("event %s %s, want the end of j%d", e.Type, e.Data, i)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			t.Logf("from the enqueue to the event: median %v, longest %v", took[15], took[29])
			for _, priority := range []jobs.Priority{jobs.PriorityHigh, jobs.PriorityLow} {
				_, err := client.Enqueue(t.Context(), jobs.New("mastodon", 1, jobs.Prioritize(priority), jobs.TTL(0)))
				check(err)
				if e := s.next(sub); e.Type != "job.expired" || e.Destination != "mastodon" {
					t.Errorf("event %s %s, want an expired job", e.Type, e.Data)
				}
			}
			_, err = breaker.DefaultNamespace.Trip(t.Context(), rdb, "deviantart/alice", breaker.TripOptions{})
			check(err)
			if e := s.next(sub); e.Type != Breaker || s.nameOf(e) != "deviantart/alice" {
				t.Errorf("event %s %s, want alice's breaker", e.Type, e.Data)
			}
			for _, act := range []func() (bool, error){
				func() (bool, error) { return client.PauseDestination(t.Context(), "mastodon") },
				func() (bool, error) { return client.ResumeDestination(t.Context(), "mastodon") },
			} {
				_, err := act()
				check(err)
				if e := s.next(sub); e.Type != Destination || e.Destination != "mastodon" {
					t.Errorf("event %s %s, want a pause and its end", e.Type, e.Data)
				}
			}
		})
	}
}

// The events of a time without a subscription come with the next one.
func TestEventsAfterALostSubscription(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	sub := s.subscribe(rarely(t, s.rdb, s.client), SubscribeOptions{})
	for i := range 3 {
		if err := s.rdb.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
		s.end(fmt.Sprint("j", i))
		if e := s.next(sub); idOf(t, e) != fmt.Sprint("j", i) {
			t.Errorf("event %s %s, want the end of j%d", e.Type, e.Data, i)
		}
	}
}

// Subscribers cost Redis little where nothing happens, however many destinations there are, and
// an event only the read of its queue.
func TestCostOfAThousandDestinations(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint("d", i)
	}
	client, err := jobs.NewClient(rdb, jobs.WithDestinations(names...))
	if err != nil {
		t.Fatal(err)
	}
	s := &fixture{T: t, server: server, rdb: rdb, client: client}
	w := newPoller(rdb, client)
	s.poll(w)
	if _, n := s.poll(w); n > 1100 {
		t.Errorf("a poll of 1,000 destinations took %d commands, want at most 1,100", n)
	}
	server.ResetStats(t)
	if _, _, err := w.look(t.Context(), []string{"tidegate:d7", "tidegate:d8"}, []string{"d9"}); err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for name, calls := range server.CommandStats(t) {
		if !strings.HasPrefix(name, "config") && name != "info" {
			n += calls
		}
	}
	if n > 3 {
		t.Errorf("a read of two queues and a breaker took %d commands, want 3", n)
	}
}
