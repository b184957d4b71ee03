package browsertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/jobs"
)

// looks are how each page is drawn.
var looks = []struct {
	name, scheme string
	width        int64
}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"narrow", "light", 360}, {"narrow-dark", "dark", 360}}

// draw writes pictures of a page in each look, and fails where it would be scrolled
// sideways.
func (b *tab) draw(name, path string, ready string) {
	b.t.Helper()
	for i, look := range looks {
		if *pictures == "" && i != 0 && i != len(looks)-1 {
			continue // these two are as wide as others
		}
		b.do(chromedp.EmulateViewport(look.width, 800), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}},
			})
			return err
		}))
		if path != "" {
			b.visit(path)
		}
		if ready != "" {
			b.reads(ready)
		}
		if wide := value[int](b, "document.documentElement.scrollWidth"); int64(wide) > look.width {
			b.t.Errorf("%s is %d wide on a screen of %d", name, wide, look.width)
		}
		if *pictures != "" {
			file := filepath.Join(*pictures, fmt.Sprintf("%s-%s.png", name, look.name))
			if err := os.WriteFile(file, b.picture(), 0o600); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// All states, in both themes and on a narrow screen: nothing is wider than the screen,
// and the browser has nothing to complain of.
func TestPictures(t *testing.T) {
	s := serve(t)
	b := s.open("/")
	b.draw("empty-overview", "/", "Nothing has happened yet")
	b.draw("empty-jobs", "/jobs", "Nothing has happened yet")

	rules := breaker.Options{FailureThreshold: 3, Cooldown: 5 * time.Minute, ProbeTimeout: time.Minute}
	s.past("shop", 60, map[time.Duration]time.Duration{20 * time.Hour: 12 * time.Minute, 5 * time.Hour: 40 * time.Minute, 2 * time.Hour: 25 * time.Minute})
	s.past("mailer", 24, map[time.Duration]time.Duration{11 * time.Hour: 90 * time.Minute})
	s.past("search-index", 12, nil)
	s.work(fakeapi.Options{Script: func(_ int, r *fakeRequest) *fakeapi.Answer {
		if r.URL.Path == "/fail" {
			return &fakeapi.Answer{Status: 500, Body: `{"error":"<script>alert(1)</script> disk full"}`}
		}
		return nil
	}}, rules, "shop", "mailer", "search-index")
	s.fill(40, func(i int) *jobs.Spec { return jobs.New("search-index", map[string]int{"document": i}) })
	s.enqueue(jobs.New("mailer", map[string]string{"to": "a@example.com"}, jobs.ID("welcome-1"), jobs.Path("/fail"), jobs.Header("X-Campaign", "<b>autumn</b>"),
		jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 240 * time.Second, MaxDelay: 600 * time.Second})))
	s.enqueue(jobs.New("mailer", map[string]string{"to": "b@example.com"}, jobs.ID("welcome-2"), jobs.Path("/fail")))
	s.await("welcome-2", jobs.Failed)
	s.await("welcome-1", jobs.RetryPending)
	b.draw("quiet-overview", "/", "1 job has failed in the last 15 minutes")
	b.draw("quiet-destinations", "/destinations", "search-index")
	b.draw("quiet-breaker", "/breakers/search-index", "Calls go out")
	b.draw("job-retry", "/jobs/welcome-1", "Retry 1 of 3")
	b.draw("job-failed", "/jobs/welcome-2", "disk full")

	s.limit("shop", "", rules, 8*time.Minute)
	for i := range 3 {
		s.limit("mailer", fmt.Sprintf("tenant-%d", i), rules, time.Duration(i+2)*time.Minute)
	}
	s.fill(1200, func(i int) *jobs.Spec {
		opts := []jobs.Option{jobs.Batch("autumn-catalogue")}
		if i%20 == 0 {
			opts = append(opts, jobs.TTL(40*time.Minute))
		}
		return jobs.New("shop", map[string]any{"sku": i, "price": "12.90"}, opts...)
	})
	s.fill(60, func(i int) *jobs.Spec {
		return jobs.New("mailer", i, jobs.Key(fmt.Sprintf("tenant-%d", i%3)))
	})
	s.enqueue(jobs.New("shop", "catalogue", jobs.ID("build-catalogue")))
	s.enqueue(jobs.New("shop", "images", jobs.ID("render-images")))
	s.enqueue(jobs.New("mailer", "publish", jobs.ID("announce-catalogue"), jobs.After("build-catalogue", "render-images"), jobs.Batch("autumn-catalogue"), jobs.Key("tenant-9")))
	s.enqueue(jobs.New("search-index", "index", jobs.ID("index-catalogue"), jobs.After("build-catalogue")))
	for i := range 4 {
		s.enqueue(jobs.New("mailer", i, jobs.ID(fmt.Sprintf("newsletter-%d", i)), jobs.After("announce-catalogue")))
	}
	b.draw("open-overview", "/", "is rate limited")
	if *pictures != "" {
		b.drawForReadme()
	}
	b.draw("open-breaker", "/breakers/shop", "Tested again")
	b.draw("open-key", "/breakers/mailer/tenant-1", "Tested again")
	b.draw("open-destination", "/destinations/shop", "Over time")
	b.draw("open-jobs", "/jobs?destination=shop&status=pending", "Rate limit of shop reached")
	b.draw("open-batch", "/jobs?batch=autumn-catalogue", "finished")
	b.draw("open-job", "/jobs/announce-catalogue", "Dependencies")
	b.draw("open-incidents", "/incidents", "ongoing")
	b.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("td a")].find((a) => a.href.includes("/incidents/shop-")).click()`))
	b.reads("Transitions")
	incident := value[string](b, "location.pathname")
	b.draw("open-incident", incident, "Transitions")
	past := value[string](b, `fetch("/incidents?destination=shop").then((r) => r.text()).then((t) => new DOMParser().parseFromString(t, "text/html").querySelector("tbody tr:last-child a").getAttribute("href"))`, chromedp.EvalAwaitPromise)
	b.draw("past-incident", past, "Transitions")

	if _, err := s.client.PauseDestination(t.Context(), "search-index"); err != nil {
		t.Fatal(err)
	}
	if _, err := breaker.Trip(t.Context(), s.rdb, "mailer", breaker.TripOptions{By: "token:ops", Reason: "their status page says maintenance until noon"}); err != nil {
		t.Fatal(err)
	}
	b.draw("tripped-overview", "/", "maintenance")
	b.draw("paused-destination", "/destinations/search-index", "Its jobs wait until it is resumed")
	b.do(chromedp.EmulateViewport(1280, 800))
	b.visit("/jobs?destination=shop&status=pending")
	b.click(`[name=scope][value=all]`)
	b.follow(`button[value=cancel]`)
	b.draw("confirm", "", "?")

	s.fill(100_000, func(i int) *jobs.Spec { return jobs.New("shop", i) })
	began := time.Now()
	b.draw("many-jobs", "/jobs", "101,2")
	if took := time.Since(began) / time.Duration(len(looks)); took > 20*time.Second {
		t.Errorf("a page of 100,000 jobs took %v", took)
	}
	b.draw("many-overview", "/", "101,2")
	b.refuses(404)
	b.draw("nothing-found", "/search?q=nonesuch", "Nothing found for")
	b.visit("/")

	b.refuses(503)
	s.redis.Kill()
	b.draw("gone-overview", "/", "Redis cannot be reached")
	b.draw("gone-job", "/jobs/never-seen", "Redis cannot be reached")
	b.quiet()
}

// drawForReadme is the picture of README.md: an incident, at twice the resolution of
// text that can be read.
func (b *tab) drawForReadme() {
	b.do(chromedp.EmulateViewport(1180, 860), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}})
		return err
	}))
	b.visit("/?range=6h")
	b.reads("is rate limited")
	if err := os.WriteFile(filepath.Join(*pictures, "dashboard.png"), b.picture(), 0o600); err != nil {
		b.t.Fatal(err)
	}
}
