package dashboard_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// whatIf is a form of the page with changes: name and value in turn.
func whatIf(changes ...string) url.Values {
	form := url.Values{
		"cooldown": {"4m0s"}, "threshold": {"3"}, "rate": {"off"}, "workers": {"1"}, "concurrency": {"5"},
		"api": {"window:20/10m"}, "jobs": {"60"}, "expire": {"never"},
	}
	for i := 0; i < len(changes); i += 2 {
		form.Set(changes[i], changes[i+1])
	}
	return form
}

// The page is filled with the settings of today, and draws a simulation of others beside one of them.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	s := open(t, access.ScopeOperate, "shop", "idle")
	s.fill("shop", "a", 30)
	s.get("/destinations/shop").shows(t, http.StatusOK, "What if")
	p := s.get("/destinations/shop/whatif")
	p.shows(t, http.StatusOK, "What if shop had other settings?", "such as window:60/1h, bucket:60/1h:10")
	for _, field := range []string{
		`name="cooldown" value="4m0s"`, `name="threshold" value="3"`, `name="rate" value="off"`, `name="workers" value="1"`, `name="concurrency" value="5"`, `name="jobs" value="30"`,
	} {
		if !strings.Contains(p.body, field) {
			t.Errorf("the form does not have %s:\n%s", field, between(p.body, "<form", "</form>"))
		}
	}
	s.paced("shop") // which declares a limit, and counts jobs
	p = s.get("/destinations/shop/whatif")
	p.shows(t, http.StatusOK, "as declared; such as", "of the last 24 hours")
	if !strings.Contains(p.body, `name="api" value="sliding:60/1h"`) || !strings.Contains(p.body, `name="jobs" value="recorded"`) || !strings.Contains(p.body, `name="workers" value="2"`) {
		t.Errorf("what is known is not in the form:\n%s", between(p.body, "<form", "</form>"))
	}

	const page = "/destinations/shop/whatif"
	p = s.post(page, whatIf("rate", "20/10m", "expire", "25m"))
	p.shows(t, http.StatusOK, "Today Changed Drained in 24m4s in 25m Jobs 60 60 Completed 60 50", "Expired 0 10 Calls 88 50 Refused by the limit 28 0")
	if strings.Count(p.body, `<svg class="chart"`) != 4 {
		t.Errorf("it is not drawn:\n%s", p.text)
	}
	if !strings.Contains(p.body, `name="rate" value="20/10m"`) {
		t.Error("what was given is lost")
	}
	drawn := between(p.body, `aria-label="Changed"`, "</section>")
	if strings.Contains(drawn, "data-t") || !strings.Contains(drawn, "0 refused</title>") || len(p.body) > 150_000 {
		t.Errorf("the picture has times of a clock, or the page %d bytes", len(p.body))
	}
	s.post(page, whatIf("workers", "2")).shows(t, http.StatusOK, "Calls 88 88", "Wait, longest 24m4s 24m4s")
	s.post(page, whatIf("jobs", "recorded", "workers", "2", "rate", "60/1h", "api", "window:60/1h")).shows(t, http.StatusOK, "Today Changed")

	for field, values := range map[string]map[string]string{
		"cooldown": {"": "give a time such as 90s", "25h": "up to 24h", "-1s": "give a time"}, "threshold": {"0": "give a number from 1 to 1,000", "x": "give a number"},
		"rate": {"60": "Rate: "}, "workers": {"1001": "Workers: give"}, "concurrency": {"": "Calls at a time: give"}, "expire": {"soon": "expire: give a time"},
		"api":  {"": "Give the limits of the API", "leaky:1/1s": "the kind is not known", hostile: "Limits of the API: ", strings.Repeat("x", 8193): "more than 8192 bytes"},
		"jobs": {"20001": "give a number from 1 to 20,000", "": "Jobs: give"},
	} {
		for value, text := range values {
			p := s.post(page, whatIf(field, value))
			p.shows(t, http.StatusBadRequest, text)
			p.hides(t, "<script>alert", "Today</th>")
		}
	}
	s.get("/destinations/none/whatif").shows(t, http.StatusNotFound, "There is no such destination")
	s.get("/destinations/idle/whatif").shows(t, http.StatusNotFound, "no configuration of idle", "tidegate simulate")
	s.get("/destinations/idle").hides(t, "What if")
}

// One simulation of a process runs at a time, and ends when its viewer leaves.
func TestWhatIfRunsAlone(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for ctx.Err() == nil { // another may have been first
			r := s.form("/destinations/shop/whatif", whatIf("jobs", "20000", "api", "concurrency:5"), s.server.URL)
			if resp, err := s.http.Do(r.WithContext(ctx)); err == nil {
				resp.Body.Close()
			}
		}
	}()
	redistest.Eventually(t, "a second one is refused", func() bool {
		p := s.post("/destinations/shop/whatif", whatIf("jobs", "1"))
		return p.status == http.StatusTooManyRequests && strings.Contains(p.text, "A simulation runs in this process.")
	})
	leave()
	<-gone
	redistest.Eventually(t, "the next one runs", func() bool {
		return s.post("/destinations/shop/whatif", whatIf("jobs", "1")).status == http.StatusOK
	})
}
