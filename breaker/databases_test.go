package breaker

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// database returns a client of one of a server's databases.
func database(t *testing.T, s *redistest.Server, db int) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), DB: db})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Channels are common to all databases of a server: what happens to a breaker in one
// changes nothing in another that has a breaker of the same name.
func TestDatabasesOfOneServerAreApart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	production, staging := database(t, s, 0), database(t, s, 1)
	const d = "api"
	var heard recorder
	o := Options{Destination: d, RefreshInterval: time.Hour, FailureThreshold: 1, MaxInFlight: 4, OnEvent: heard.add}
	b := start(t, production, o)
	o.OnEvent = nil
	other := start(t, staging, o)
	awaitSubscribers(t, production, d, 2)

	// settled waits until b has taken all messages so far: they come in order.
	markers := 0
	settled := func() {
		markers++
		name := []string{"first", "second", "third"}[markers-1]
		if _, err := DefaultNamespace.Trip(t.Context(), production, d+"/"+name, TripOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitView(t, b.Key(name), "marker OPEN", func(v View) bool { return v.State == Open })
	}
	operate := func(_ Status, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	// A 429 and an opening in staging do not stall production.
	report(t, other.Key("alice"), RateLimited(time.Hour))
	report(t, other, RateLimited(time.Hour))
	settled()
	if v := b.View(); v.State != Closed || !v.Free {
		t.Errorf("production after a 429 in staging: %+v", v)
	}
	if v := b.Key("alice").View(); v.State != Closed {
		t.Errorf("key of production after a 429 in staging: %+v", v)
	}

	// A trip and two resets in staging let nothing through in production.
	operate(DefaultNamespace.Trip(t.Context(), production, d, TripOptions{For: time.Hour}))
	awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
	operate(DefaultNamespace.Trip(t.Context(), staging, d, TripOptions{For: time.Minute}))
	operate(DefaultNamespace.Reset(t.Context(), staging, d, ""))
	operate(DefaultNamespace.Reset(t.Context(), staging, d, ""))
	settled()
	if v := b.View(); v.State != Open || time.Until(v.OpenUntil) < 50*time.Minute {
		t.Errorf("production after a trip and two resets in staging: %+v", v)
	}
	if _, err := b.Allow(t.Context()); !errors.Is(err, ErrOpen) {
		t.Errorf("a call of production: %v, want %v", err, ErrOpen)
	}
	// Staging has its own.
	awaitView(t, other, "CLOSED", func(v View) bool { return v.State == Closed })

	// No event is published of it: the markers and the trip are all.
	settled()
	for _, e := range heard.await(t, 4) {
		if e.Cause != CauseManual || e.To != Open {
			t.Errorf("production got the event %+v", e)
		}
	}
}

// An instance that starts in an empty database hears of the first change at once, and
// goes on hearing after the database has lost all that it had.
func TestMessagesAfterALoss(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	const d = "api"
	b := start(t, s.Client(t), Options{Destination: d, RefreshInterval: time.Hour})
	awaitSubscribers(t, rdb, d, 1)
	for round := range 3 {
		if _, err := DefaultNamespace.Trip(t.Context(), rdb, d+"/lost", TripOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitView(t, b.Key("lost"), "OPEN", func(v View) bool { return v.State == Open })
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := DefaultNamespace.Trip(t.Context(), rdb, d, TripOptions{}); err != nil {
				t.Fatal(err)
			}
			awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
			for range 2 { // the second one ends the slow start
				if _, err := DefaultNamespace.Reset(t.Context(), rdb, d, ""); err != nil {
					t.Fatal(err)
				}
			}
			awaitView(t, b, "CLOSED", func(v View) bool { return v.State == Closed && v.Free })
		}
		// What was lost is known to be, although others wrote at once.
		awaitView(t, b.Key("lost"), "CLOSED", func(v View) bool { return v.State == Closed })
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}
