package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/jobs"
)

// No page is wider than a narrow screen, however much is on it.
func TestNarrow(t *testing.T) {
	t.Parallel()
	const width = 360
	s := serve(t)
	b := s.open("/")
	b.do(chromedp.EmulateViewport(width, 800))
	fits := func(path, text string) {
		t.Helper()
		b.visit(path)
		b.reads(text)
		if wide := value[int](b, "document.documentElement.scrollWidth"); wide > width {
			t.Errorf("%s is %d wide on a screen of %d", path, wide, width)
		}
	}
	fits("/", "Connect your first API")

	rules := breaker.Options{Cooldown: 5 * time.Minute}
	stop := s.work(fakeapi.Options{}, rules, "shop")
	for i := range 3 {
		s.limit("shop", fmt.Sprintf("tenant-%d", i), rules, time.Hour)
	}
	tripped, err := breaker.DefaultNamespace.Trip(t.Context(), s.rdb, "shop", breaker.TripOptions{By: "token:ops", Reason: "their status page says maintenance until noon"})
	if err != nil {
		t.Fatal(err)
	}
	s.fill(60, func(i int) *jobs.Spec {
		return jobs.New("shop", map[string]any{"sku": i}, jobs.Batch("autumn-catalogue"), jobs.Key(fmt.Sprintf("tenant-%d", i%3)), jobs.TTL(time.Hour))
	})
	s.enqueue(jobs.New("shop", "catalogue", jobs.ID("build-catalogue"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 3})))
	for i := range 4 {
		s.enqueue(jobs.New("shop", i, jobs.ID(fmt.Sprintf("newsletter-%d", i)), jobs.After("build-catalogue")))
	}
	b.refuses(404)
	for path, text := range map[string]string{
		"/": "maintenance until noon", "/jobs": "build-catalogue", "/jobs?batch=autumn-catalogue": "finished", "/jobs/build-catalogue": "Dependencies",
		"/destinations": "Workers alive", "/destinations/shop": "Limited keys", "/breakers/shop": "Manual control", "/breakers/shop/tenant-1": "Tested again",
		"/incidents": "ongoing", "/incidents/" + tripped.Incident: "Transitions", "/search?q=nonesuch": "Nothing found for",
	} {
		fits(path, text)
	}
	stop() // the worker would complain, too
	b.refuses(503)
	s.redis.Kill()
	fits("/jobs/never-seen", "Redis cannot be reached")
	b.quiet()
}
