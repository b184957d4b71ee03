package dashboard_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Keys that met a limit once and can be called are counted, not listed, and a recovery without jobs is
// not shown.
func TestKeysThatMetALimitOnce(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	for i := range 8 {
		name := fmt.Sprintf("shop/k%d", i)
		if _, err := breaker.DefaultNamespace.Trip(t.Context(), s.rdb, name, breaker.TripOptions{For: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if i == 7 {
			break
		}
		if _, err := breaker.DefaultNamespace.Reset(t.Context(), s.rdb, name, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), s.rdb, "shop", breaker.TripOptions{For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := breaker.DefaultNamespace.Reset(t.Context(), s.rdb, "shop", "ann"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/destinations/shop", "/breakers/shop"} {
		p := s.get(path)
		p.shows(t, http.StatusOK, "shop/k7", "7 other keys have met a limit and can be called.", "Closed")
		p.hides(t, "shop/k0", "shop/k6", "Recovering")
	}
	s.fill("shop", "a", 1)
	s.age()
	s.get("/").shows(t, http.StatusOK, "Recovering")
}

// The lists of workers say what a worker does not reach, and why; the page of a destination has that
// destination's errors only.
func TestWorkersThatDoNotReachADestination(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop", "stock")
	s.serveUnreached("down:1")
	for _, path := range []string{"/destinations", "/destinations/shop"} {
		p := s.get(path)
		p.shows(t, http.StatusOK, "Calls to shop have not left it for", "no such <host>")
		p.hides(t, "Calls to stock")
	}
	s.get("/destinations/stock").hides(t, "Calls to shop have not left it")
}

// While a breaker is probed its page says who makes the call.
func TestProbing(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	b, err := breaker.New(t.Context(), s.rdb, breaker.Options{Destination: "shop", Instance: "pub-2:7", ProbeTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	permit, err := b.Allow(t.Context())
	if err == nil {
		_, err = permit.Report(t.Context(), breaker.RateLimited(50*time.Millisecond))
	}
	if err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the probe is permitted", func() bool {
		_, err := b.Allow(t.Context())
		return err == nil
	})
	s.get("/").shows(t, http.StatusOK, "Probing", "is being probed")
	s.get("/breakers/shop").shows(t, http.StatusOK, "Probing", "One call is under way, by pub-2:7")
}

// The number of jobs that the breaker of a key holds leads to those jobs, also if the key is a value of KEY_BY,
// which no job has as its key.
func TestHeldJobsAreListed(t *testing.T) {
	t.Parallel()
	s := open(t, access.ScopeOperate, "shop")
	queue := store.DefaultNamespace.Queue("shop", store.Default)
	for i, key := range []string{"alice", "bob", "alice"} {
		if _, err := s.client.Enqueue(t.Context(), jobs.New("shop", i, jobs.ID(fmt.Sprint("post-", i)), jobs.Key(key))); err != nil {
			t.Fatal(err)
		}
	}
	for i, held := range []struct{ key, by string }{{"alice", "v1:full"}, {"bob", "v1:full"}} { // as hold.lua does
		id := fmt.Sprint("post-", i)
		_, err := s.rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			pipe.LRem(t.Context(), store.PendingKey(queue), 1, id)
			pipe.HSet(t.Context(), store.TaskKey(queue, id), store.FieldState, store.StateHeld, store.FieldKey, held.by, store.FieldJobKey, held.key)
			pipe.ZAdd(t.Context(), store.HeldKey(queue), redis.Z{Score: float64(i), Member: id})
			pipe.ZAdd(t.Context(), store.HeldJobsKey(queue, held.by), redis.Z{Score: float64(i), Member: id})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	status, err := breaker.DefaultNamespace.Trip(t.Context(), s.rdb, "shop/v1:full", breaker.TripOptions{For: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`href="(/jobs\?[^"]*status=pending[^"]*)"`)
	for _, path := range []string{"/breakers/shop/v1:full", "/incidents/" + status.Incident} {
		found := link.FindStringSubmatch(s.get(path).body)
		if found == nil {
			t.Fatalf("%s has no link to the jobs", path)
		}
		p := s.get(html.UnescapeString(found[1]))
		p.shows(t, http.StatusOK, "post-0", "post-1", "Only jobs that shop/v1:full holds")
		p.hides(t, "post-2", "All pending jobs")
	}
	for _, path := range []string{"/jobs?held=v1:full", "/jobs?destination=shop&held=a%20b"} {
		s.get(path).shows(t, http.StatusBadRequest, "does not name a key of a destination")
	}
}
