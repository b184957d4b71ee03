package dashboard_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func total(stats map[string]int64) int64 {
	var n int64
	for _, v := range stats {
		n += v
	}
	return n
}

// A list of 25,000 jobs costs Redis what a short one costs, and paging misses none of a page.
func TestManyJobs(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	s := open(t, "", "shop")
	s.fill("shop", "many", 25_000)
	for _, path := range []string{"/", "/jobs", "/jobs?status=pending", "/jobs?destination=shop", "/destinations/shop"} {
		s.redis.ResetStats(t)
		s.get(path).shows(t, http.StatusOK, "25,000")
		if n := total(s.redis.CommandStats(t)); n > 2000 {
			t.Errorf("%s cost %d commands", path, n)
		}
	}
	seen := map[string]bool{}
	next := "/jobs?destination=shop"
	for range 4 {
		p := s.get(next)
		rows := strings.Count(p.body, `class="mono id"`)
		if rows != 50 {
			t.Fatalf("%s has %d jobs, want 50", next, rows)
		}
		for part := range strings.SplitSeq(p.body, `<tr id="j-`) {
			if id, _, ok := strings.Cut(part, `"`); ok && strings.HasPrefix(id, "many-") {
				seen[id] = true
			}
		}
		next = strings.ReplaceAll(between(p.body, `<nav class="pager"`, `rel="next"`), "&amp;", "&")
		_, next, _ = strings.Cut(next[strings.LastIndex(next, "href="):], `"`)
		next, _, _ = strings.Cut(next, `"`)
	}
	if len(seen) != 200 {
		t.Errorf("four pages have %d different jobs, want 200", len(seen))
	}

	// To count a batch each of its jobs is looked at: one of this size is shown uncounted.
	s.redis.ResetStats(t)
	p := s.get("/jobs?batch=many")
	p.shows(t, http.StatusOK, "many-024999")
	p.hides(t, "jobs finished")
	if p := s.get("/search?q=many"); p.path != "/jobs?batch=many" {
		t.Errorf("the search leads to %s", p.path)
	}
	if n := total(s.redis.CommandStats(t)); n > 2000 {
		t.Errorf("the batch of 25,000 jobs cost %d commands", n)
	}
}

// While Redis is away pages that were seen show what was known and say so; others say that
// Redis is away. Both come back with it, and actions say that nothing is known of them.
func TestRedisGone(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.enqueue("shop", 1)
	s.get("/").shows(t, http.StatusOK, "1 job waits")
	s.redis.Kill()
	s.age()
	p := s.get("/")
	p.shows(t, http.StatusOK, "Redis cannot be reached. This is what was known", "1 job waits")
	if !strings.Contains(p.body, " data-stale") || !strings.Contains(p.body, " data-live") {
		t.Error("the page does not try again by itself")
	}
	p = s.get("/jobs")
	p.shows(t, http.StatusServiceUnavailable, "Redis cannot be reached", "connection refused")
	if p.header.Get("Retry-After") != "2" || !strings.Contains(p.body, " data-live") {
		t.Error("the page does not try again by itself")
	}
	p = s.post("/breakers/shop", map[string][]string{"action": {"reset"}, "confirm": {"1"}})
	p.shows(t, http.StatusServiceUnavailable, "it is not known whether all of this was done")
	s.redis.Restart()
	redistest.Eventually(t, "the page shows what Redis says", func() bool {
		s.age()
		return !strings.Contains(s.get("/").body, "This is what was known")
	})
	s.get("/jobs").shows(t, http.StatusOK, "Jobs")
}

// A viewer is told when something happens, and streams end with the viewer.
func TestLive(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan string, 64)
	var streams sync.WaitGroup
	for range 3 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream; charset=utf-8" {
			t.Fatalf("Content-Type %q", kind)
		}
		streams.Go(func() {
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
					told <- name
				}
			}
		})
	}
	await := func(want string, n int) {
		t.Helper()
		deadline := time.After(time.Minute)
		for n > 0 {
			select {
			case got := <-told:
				if got == want {
					n--
				}
			case <-deadline:
				t.Fatalf("%d more of %s", n, want)
			}
		}
	}
	await("ready", 3)
	// The hub begins to listen when the first viewer comes: until it does it hears nothing.
	trip := time.NewTicker(200 * time.Millisecond)
	defer trip.Stop()
	deadline := time.After(time.Minute)
	for heard := 0; heard < 3; {
		select {
		case <-told:
			heard++
		case <-trip.C:
			if _, err := breaker.DefaultNamespace.Trip(ctx, s.rdb, "shop", breaker.TripOptions{For: time.Hour}); err != nil {
				t.Fatal(err)
			}
		case <-deadline:
			t.Fatalf("%d of 3 were told", heard)
		}
	}
	cancel()
	streams.Wait()
}
