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

// The forecast of a destination is drawn within its card on wide and narrow screens, in both themes: the past left of
// now, the expected backlog and what expires right of it.
func TestForecastPicture(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.work(fakeapi.Options{}, breaker.Options{Rate: breaker.Rates{{Calls: 60, Per: time.Hour}}}, "shop")
	s.fill(60, func(i int) *jobs.Spec {
		if i >= 50 {
			return jobs.New("shop", i, jobs.TTL(20*time.Minute), jobs.Prioritize(jobs.PriorityLow))
		}
		return jobs.New("shop", i)
	})
	b := s.open("/destinations/shop")
	for _, width := range []int64{1280, 360} {
		b.do(chromedp.EmulateViewport(width, 900))
		b.visit("/destinations/shop")
		b.reads("60 calls an hour would still hold the jobs")
		b.reads("expire before they can start")
		b.sees("document.querySelectorAll('.late').length > 5")
		b.fits(width)
		for _, theme := range []string{"light", "dark"} {
			b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.documentElement.dataset.theme = %q", theme)))
			if problem := value[string](b, `(() => {
				const box = (sel) => document.querySelector("section[aria-labelledby=h-ahead] " + sel).getBoundingClientRect();
				const svg = box("svg"), now = box(".now").left, likely = box(".likely"), ahead = box(".line.ahead");
				if (svg.width < 250 || svg.height < 90) return "it is small: " + svg.width + " by " + svg.height;
				for (const r of [likely, ahead, box(".late")]) {
					if (r.left < now - 6 || r.right > svg.right || r.top < svg.top || r.bottom > svg.bottom) return "something lies outside";
				}
				if (likely.right <= ahead.right || ahead.width < 50) return "the range does not hold the line";
				const seen = (sel, what) => getComputedStyle(document.querySelector(sel))[what];
				return [seen(".line.ahead", "stroke"), seen(".late", "fill"), seen(".now", "stroke")].includes("none") ? "it has no colours" : "";
			})()`); problem != "" {
				t.Errorf("%d wide, %s: %s", width, theme, problem)
			}
		}
	}
	b.quiet()
}

// fits fails the test if the page is wider than the screen.
func (b *tab) fits(width int64) {
	b.t.Helper()
	if wide := value[int64](b, "document.documentElement.scrollWidth"); wide > width {
		b.t.Errorf("the page is %d wide on a screen of %d", wide, width)
	}
}
