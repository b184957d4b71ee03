package dashboard_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// paced has a worker make at most 60 calls an hour, and counts a backlog for the last half hour.
func (s *site) paced(destination string) {
	s.t.Helper()
	s.serve(destination)
	b, err := breaker.New(s.t.Context(), s.rdb, breaker.Options{Destination: destination, Rate: breaker.Rates{{Calls: 60, Per: time.Hour}}, MaxInFlight: 10})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = b.Close() })
	redistest.Eventually(s.t, "the rate is known", func() bool {
		o, err := breaker.DefaultNamespace.ReadOne(s.t.Context(), s.rdb, breaker.Query{Limits: true}, destination)
		return err == nil && len(o.Limits.Declared) == 1
	})
	for i := range 30 {
		at := time.Now().Add(time.Duration(-i) * time.Minute)
		key := store.DefaultNamespace.MinutesKey(destination, at.Unix()/3600)
		if err := s.rdb.HSet(s.t.Context(), key, fmt.Sprintf("%d:backlog", at.Minute()), 40+i).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// The page of a destination draws its backlog until it is empty, with what expires before it can start; without a
// forecast it says why.
func TestOutlook(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop", "idle")
	s.paced("shop")
	s.get("/destinations/idle").shows(t, http.StatusOK, "Forecast No job waits for a start.")
	s.fill("shop", "a", 30)
	s.enqueue("shop", 1, jobs.ID("late"), jobs.TTL(5*time.Minute), jobs.Prioritize(jobs.PriorityLow))
	var p page
	redistest.Eventually(t, "the job that expires is in the forecast", func() bool {
		s.age()
		p = s.get("/destinations/shop")
		return strings.Contains(p.text, "first late")
	})
	p.shows(t, http.StatusOK, "The backlog is empty in about ", "Held by 60 calls an hour", "1 more worker nothing: 60 calls an hour would still hold the jobs",
		"1 job expires before it can start ; first late", "few jobs have shown how good forecasts are")
	drawn := between(p.body, `id="h-ahead"`, "</section>")
	for _, want := range []string{
		`aria-label="Backlog: 40 jobs in the backlog now, at most 69, empty at `, ", 1 job expires before it can start\"", `<path class="likely" d="M`,
		`<path class="line ahead" d="M`, `<line class="now"`, "UTC: late expires before it can start</title>", " UTC: 30 to start</title>",
	} {
		if !strings.Contains(drawn, want) {
			t.Errorf("the picture does not have %q:\n%.6000s", want, drawn)
		}
	}
	for _, x := range regexp.MustCompile(`[ML](-?[0-9.]+) (-?[0-9.]+)`).FindAllStringSubmatch(drawn, -1) {
		var at, level float64
		if _, err := fmt.Sscan(x[1], &at); err != nil || at < 34 || at > 396 {
			t.Errorf("%s lies outside of the picture", x[0])
		}
		if _, err := fmt.Sscan(x[2], &level); err != nil || level < 8 || level > 128 {
			t.Errorf("%s lies outside of the picture", x[0])
		}
	}
	if _, err := s.client.PauseDestination(t.Context(), "shop", jobs.By("ann")); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the pause is in the forecast", func() bool {
		s.age()
		return strings.Contains(s.get("/destinations/shop").text, "It cannot be said when the backlog is empty: shop is paused by ann.")
	})
	s.get("/destinations/shop").hides(t, `class="line ahead"`)
}
