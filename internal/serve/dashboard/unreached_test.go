package dashboard_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// serveUnreached makes workers of shop known; down:… do not reach it.
func (s *site) serveUnreached(names ...string) {
	s.t.Helper()
	now := time.Now()
	for _, name := range names {
		w := store.Worker{StartedAt: now.UnixMilli(), SeenAt: now.UnixMilli(), Destinations: []string{"shop", "stock"}}
		if strings.HasPrefix(name, "down") {
			w.Unreachable = map[string]store.Unreachable{"shop": {Since: now.Add(-5 * time.Minute).UnixMilli(), Problem: "no such <host>"}}
		}
		text, err := json.Marshal(w)
		if err == nil {
			err = s.rdb.HSet(s.t.Context(), store.DefaultNamespace.WorkersKey(), name, text).Err()
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// Jobs that the API refuses alone are shown with their number and the last of them.
func TestRefusedAlone(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.get("/destinations/shop").hides(t, "refuses some jobs")
	if err := store.DefaultNamespace.CountRefusedAlone(t.Context(), s.rdb, "shop", "post-1", "refused 4 times while 812 other calls were accepted", time.Now(), true, false); err != nil {
		t.Fatal(err)
	}
	s.age()
	s.get("/destinations/shop").shows(t, http.StatusOK, "The API refuses some jobs, not others. 1 job since ", "the last one, post-1, was refused 4 times")
}

// A destination that no worker reaches is the worst of all, not "Closed".
func TestUnreachedDestination(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop", "stock")
	s.serveUnreached("down:1", "down:2")
	s.fill("shop", "a", 3)
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), s.rdb, "stock", breaker.TripOptions{For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	p := s.get("/")
	p.shows(t, http.StatusOK, "shop is unreachable: no worker reaches it since ", "no such <host>; 3 jobs wait", "shop Unreachable")
	p.hides(t, "All destinations are running.", `data-say="shop: Closed"`)
	if notice := strings.Index(p.body, `class="notice `); notice < 0 || !strings.HasPrefix(p.body[notice:], `class="notice gone" id="notice--1-shop"`) {
		t.Errorf("the first notice is not shop's:\n%s", p.text)
	}
	if shop, stock := strings.Index(p.body, `id="b-shop"`), strings.Index(p.body, `id="b-stock"`); shop > stock {
		t.Error("shop is listed after stock")
	}
	for _, path := range []string{"/destinations", "/destinations/shop"} {
		p := s.get(path)
		p.shows(t, http.StatusOK, "Unreachable")
		p.hides(t, `data-say="shop: Closed"`)
	}
	s.get("/destinations/shop").shows(t, http.StatusOK, "No worker reaches it since ", "3 jobs wait")

	s.serveUnreached("up:3")
	s.age()
	p = s.get("/")
	p.shows(t, http.StatusOK, "shop is not reached by 2 workers of 3", "shop Closed")
	p.hides(t, "Unreachable")
}

// A breaker is called what its cause says: not each is rate limited.
func TestCausesOnTheOverview(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop", "stock", "posts", "keys")
	for name, outcomes := range map[string]map[string]breaker.Outcome{
		"shop":  {"": breaker.NoAnswer().WithJob("a")},
		"stock": {"": breaker.Unauthorized()},
		"posts": {"": breaker.RateLimited(time.Minute)},
		"keys":  {"k1": breaker.RateLimited(time.Minute), "k2": breaker.Unauthorized()},
	} {
		b, err := breaker.New(t.Context(), s.rdb, breaker.Options{Destination: name, OutageThreshold: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		for key, o := range outcomes {
			permit, err := b.Key(key).Allow(t.Context())
			if err == nil {
				_, err = permit.Report(t.Context(), o)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	p := s.get("/")
	p.shows(t, http.StatusOK, "shop is down: its last calls all failed. Tested again in", "stock has no valid token: token refused since ",
		"posts is rate limited: the API said how long to wait", "keys 1 key has no valid token, 1 key is rate limited; other keys run")
}
