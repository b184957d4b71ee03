package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

// all are the pages of a site with destination shop, job post-1 and a tripped breaker.
var all = []string{
	"/", "/?range=6h", "/?range=24h", "/jobs", "/jobs?status=pending&destination=shop&key=alice&batch=b1", "/jobs/post-1", "/incidents",
	"/destinations", "/destinations/shop", "/breakers/shop", "/breakers/shop/alice", "/jobs/none", "/search?q=none", "/nowhere",
}

// hostile is a text of an API or a person that would like to be more than text.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>'` + "\u202e"

// furnished is a site with something on each page, all of it hostile.
func furnished(t testing.TB, scope access.Scope) *site {
	t.Helper()
	s := open(t, scope, "shop")
	s.enqueue("shop", map[string]string{"text": hostile}, jobs.ID("post-1"), jobs.Key("alice"), jobs.Batch("b1"),
		jobs.Header("X-A", strings.TrimSuffix(hostile, "\u202e")), jobs.Query("a="+url.QueryEscape(hostile)))
	s.enqueue("shop", "x", jobs.ID("post-2"), jobs.After("post-1"))
	if err := s.client.Pause(t.Context(), "post-1", jobs.By(hostile), jobs.Because(hostile)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shop", "shop/alice"} {
		if _, err := breaker.DefaultNamespace.Trip(t.Context(), s.rdb, name, breaker.TripOptions{For: time.Hour, By: hostile, Reason: hostile}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Whatever APIs and people have said is text on every page, and nothing on them needs
// more than the Content-Security-Policy allows.
func TestEscaping(t *testing.T) {
	t.Parallel()
	s := furnished(t, "")
	inline := regexp.MustCompile(`(?i)<[a-z][^>"]*(?:"[^"]*"[^>"]*)*\s(?:style|on[a-z]+)\s*=|<style|javascript:|<script(?: [^>]*)?>[^<]`)
	elsewhere := regexp.MustCompile(`(?:src|href|action)="(?:https?:)?//`)
	for _, path := range append(all, "/search?q="+url.QueryEscape(hostile), "/jobs/"+url.PathEscape(hostile), "/breakers/"+url.PathEscape(hostile), "/login") {
		p := s.get(path)
		p.hides(t, "<script>alert", "<img", "\u202e")
		if found := inline.FindString(p.body); found != "" {
			t.Errorf("%s has %q, which the Content-Security-Policy does not allow", path, found)
		}
		if found := elsewhere.FindString(p.body); found != "" {
			t.Errorf("%s leads elsewhere: %q", path, found)
		}
		if csp := p.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; style-src 'self';") {
			t.Errorf("%s: Content-Security-Policy %q", path, csp)
		}
		if kept := p.header.Get("Cache-Control"); kept != "no-store" {
			t.Errorf("%s: Cache-Control %q", path, kept)
		}
	}
	s.get("/jobs/post-1").shows(t, http.StatusOK, "<script>alert(1)</script>", "It waits: Paused by", "until it is resumed.")
	s.get("/breakers/shop").shows(t, http.StatusOK, "Opened by hand", "<img src=x onerror=alert(1)>")
}

// A newcomer is told on every page what to type.
func TestEmpty(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	for _, path := range []string{"/", "/jobs", "/destinations", "/incidents"} {
		s.get(path).shows(t, http.StatusOK, "Connect your first API", "tidegate worker", "tidegate enqueue --destination shop")
	}
}

// What is not there is said in words, with the right status.
func TestAbsent(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	for path, text := range map[string]string{
		"/jobs/none":                 "There is no such job",
		"/destinations/none":         "There is no such destination",
		"/destinations/No..%2f..":    "There is no such destination",
		"/breakers/none":             "There is no such destination",
		"/breakers/shop/a/b":         "There is no such breaker",
		"/breakers/shop/%20":         "There is no such breaker",
		"/incidents/shop-1":          "There is no such incident",
		"/incidents/none":            "There is no such incident",
		"/incidents/a/b/c-1":         "There is no such incident",
		"/nowhere":                   "There is no such page",
		"/search?q=none":             "Nothing found for “none”",
		"/incidents?destination=wat": "There is no such destination",
	} {
		s.get(path).shows(t, http.StatusNotFound, text)
	}
	for path, text := range map[string]string{
		"/jobs?status=odd":                 "There is no status “odd”",
		"/jobs?destination=A":              "is not a valid name of a destination",
		"/jobs?key=%20%2F":                 "is not a valid key",
		"/jobs?batch=%00":                  "is not a valid batch",
		"/jobs?cursor=nonsense":            "Go back to the newest jobs",
		"/jobs?cursor=" + tooLong(100_000): "Go back to the newest jobs",
	} {
		s.get(path).shows(t, http.StatusBadRequest, text)
	}
}

func tooLong(n int) string { return strings.Repeat("x", n) }

// Each page shows what is known of a destination with jobs.
func TestPages(t *testing.T) {
	t.Parallel()
	s := furnished(t, "")
	s.get("/").shows(t, http.StatusOK, "was opened by hand by", "Tested again in ", "2 jobs wait", "shop has 2 jobs and no worker tidegate worker", "Show 1 key")
	s.get("/jobs?destination=shop").shows(t, http.StatusOK, "All 2", "Paused 1", "Waiting 1", "post-1", "Waiting for 1 parent", "All jobs of shop")
	s.get("/jobs?batch=b1").shows(t, http.StatusOK, "Batch b1", "0 % of 1 job finished")
	s.fill("shop", "c", 3)
	s.get("/jobs/c-000002").shows(t, http.StatusOK, "It waits:", "At least 2 jobs are ahead of it.", "Breaker shop")
	p := s.get("/jobs/post-1")
	p.shows(t, http.StatusOK, "alice", "Paused", "Created", "X-A", "Dependencies", "post-2")
	if !strings.Contains(p.body, `<a href="/jobs/post-2"><g class="node wait">`) {
		t.Errorf("the graph does not lead to the child:\n%s", p.body)
	}
	parent := store.TaskKey(store.DefaultNamespace.Queue("shop", store.Priority("default")), "post-1")
	if err := s.rdb.HSet(t.Context(), parent, store.FieldState, store.StateRetry, store.FieldAttempt, 2, store.FieldAvailableAt, time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC).UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	s.get("/jobs/post-2").shows(t, http.StatusOK, "Retry 2, Jan 2 03:04:05 UTC")
	s.get("/destinations").shows(t, http.StatusOK, "shop", "Open by hand", "never")
	s.get("/destinations/shop").shows(t, http.StatusOK, "No worker serves it", "Paused 1", "Backlog 5", "Over time")
	s.get("/breakers/shop").shows(t, http.StatusOK, "Open by hand", "Wasted calls 0", "Transitions", "shop/alice")
	s.get("/breakers/shop/alice").shows(t, http.StatusOK, "The breaker of the whole destination is Open by hand", "Jobs held")
	s.get("/incidents").shows(t, http.StatusOK, "ongoing", "shop/alice")

	b, err := breaker.DefaultNamespace.Get(t.Context(), s.rdb, "shop/alice")
	if err != nil {
		t.Fatal(err)
	}
	s.get("/incidents/"+b.Incident).shows(t, http.StatusOK, "shop/alice", "Ongoing", "Transitions", "Opened")
	if _, err := breaker.DefaultNamespace.Reset(t.Context(), s.rdb, "shop/alice", "me"); err != nil {
		t.Fatal(err)
	}
	s.age()
	s.get("/incidents").shows(t, http.StatusOK, "UTC shop/alice ", "shop ongoing")
	s.get("/incidents/"+b.Incident).shows(t, http.StatusOK, "Over", "It ended", "closed by hand", "Instances")
}

// Search leads to the one thing of that name.
func TestSearch(t *testing.T) {
	t.Parallel()
	s := furnished(t, "")
	incident, err := breaker.DefaultNamespace.Get(t.Context(), s.rdb, "shop")
	if err != nil {
		t.Fatal(err)
	}
	for q, want := range map[string]string{
		"post-1": "/jobs/post-1", " post-1 ": "/jobs/post-1", "shop": "/destinations/shop", "shop/alice": "/breakers/shop/alice",
		"b1": "/jobs?batch=b1", incident.Incident: "/incidents/" + incident.Incident, "": "/jobs",
	} {
		if p := s.get("/search?q=" + url.QueryEscape(q)); p.path != want || p.status != http.StatusOK {
			t.Errorf("%q leads to %s (%d), want %s", q, p.path, p.status, want)
		}
	}
}

// Files are fetched once for each version, and the script is small.
func TestStatic(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	found := regexp.MustCompile(`/static/[a-z]+\.[0-9a-f]{12}\.(css|js|svg)`).FindAllString(s.get("/").body, -1)
	if len(found) != 3 {
		t.Fatalf("files of the page: %v, want icon, style and script", found)
	}
	for _, path := range found {
		p := s.get(path)
		if p.status != http.StatusOK || p.header.Get("Cache-Control") != "public, max-age=31536000, immutable" || p.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, %v", path, p.status, p.header)
		}
		if strings.HasSuffix(path, ".js") && len(p.body) > 6<<10 {
			t.Errorf("the script has %d bytes, more than 6 KiB", len(p.body))
		}
		if strings.Contains(p.body, "http://") && !strings.Contains(p.body, "http://www.w3.org/2000/svg") || strings.Contains(p.body, "https://") {
			t.Errorf("%s names another site", path)
		}
	}
	if p := s.get("/static/app.0123456789ab.js"); p.status != http.StatusNotFound {
		t.Errorf("an unknown version: %d, want 404", p.status)
	}
}

// The colours are remembered.
func TestTheme(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	if p := s.get("/"); !strings.Contains(p.body, `data-theme="auto"`) {
		t.Error("the system does not decide at first")
	}
	if p := s.post("/theme", url.Values{"theme": {"dark"}, "back": {"/jobs?status=failed"}}); p.path != "/jobs?status=failed" || !strings.Contains(p.body, `data-theme="dark"`) {
		t.Errorf("%s, %s", p.path, p.body)
	}
	if p := s.post("/theme", url.Values{"theme": {"light"}, "back": {"//evil.example/"}}); p.path != "/" {
		t.Errorf("sent to %s", p.path)
	}
	s.post("/theme", url.Values{"theme": {"pink"}}).shows(t, http.StatusBadRequest, "There is no theme of that name")
}

// serve says in Redis that a worker serves a destination now.
func (s *site) serve(destination string) {
	s.t.Helper()
	worker := fmt.Sprintf(`{"seen_at":%d,"destinations":[%q]}`, time.Now().UnixMilli(), destination)
	if err := s.rdb.HSet(s.t.Context(), store.DefaultNamespace.WorkersKey(), "host:1", worker).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// While a rate holds jobs back not all is flowing: the overview names the rate and says how
// long the backlog takes, the page of a job when its turn comes.
func TestPacedDestination(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.serve("shop")
	b, err := breaker.New(t.Context(), s.rdb, breaker.Options{Destination: "shop", Rate: breaker.Rates{{Calls: 60, Per: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if _, err := b.Allow(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.get("/").shows(t, http.StatusOK, "All destinations are running.")
	s.fill("shop", "a", 30)
	s.age()
	p := s.get("/")
	p.shows(t, http.StatusOK, "shop is paced: RATE allows 60 calls an hour, and 30 jobs wait for a turn; the last one is due in ", "RATE allows 60 calls an hour.")
	p.hides(t, "All destinations are running.")
	s.get("/jobs/a-000002").shows(t, http.StatusOK, "It waits: RATE allows 60 calls an hour; 2 jobs are ahead, its turn is due in ")
	s.get("/breakers/shop").shows(t, http.StatusOK, "RATE allows 60 calls an hour")
}

// Jobs that failed of late are on the first page.
func TestOverviewShowsRecentFailures(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.serve("shop")
	now := time.Now()
	err := s.rdb.ZAdd(t.Context(), store.FailedKey(store.DefaultNamespace.Queue("shop", store.Default)),
		redis.Z{Score: float64(now.Add(-time.Hour).UnixMilli()), Member: "long-ago"},
		redis.Z{Score: float64(now.UnixMilli()), Member: "a"}, redis.Z{Score: float64(now.UnixMilli()), Member: "b"}).Err()
	if err != nil {
		t.Fatal(err)
	}
	p := s.get("/")
	p.shows(t, http.StatusOK, "shop 2 jobs have failed in the last 15 minutes")
	p.hides(t, "All destinations are running.")
}
