package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
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

// An operator simulates another rate from the page of the destination: the results are drawn beside each other, below
// each other on a narrow screen, and what is wrong is said beside the form.
func TestWhatIfPage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.work(fakeapi.Options{}, breaker.Options{}, "shop")
	b := s.open("/destinations/shop")
	b.follow(`a[href="/destinations/shop/whatif"]`)
	fill := func(name, text string) {
		t.Helper()
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector('#whatif [name=%s]').value = ''", name)))
		b.typeIn("#whatif [name="+name+"]", text)
	}
	fill("api", "window:20/10m")
	fill("jobs", "60")
	fill("rate", "20/10m")
	b.follow("#whatif button")
	b.sees(`document.querySelectorAll(".two svg.chart").length === 4 && document.querySelector(".two svg .bar.bad")`)
	b.sees(`[...document.querySelectorAll("tr")].some((e) => e.innerText.split(/\s+/).join(" ") === "Refused by the limit 28 0")`)
	b.fits(1280)
	if value[float64](b, `Math.abs(document.querySelectorAll(".two section")[0].getBoundingClientRect().top - document.querySelectorAll(".two section")[1].getBoundingClientRect().top)`) > 1 {
		t.Error("the results are not beside each other")
	}
	b.do(chromedp.EmulateViewport(360, 800))
	b.fits(360)
	b.refuses(400)
	fill("api", "leaky:60/1h")
	b.follow("#whatif button")
	b.reads("the kind is not known: want window:60/1h")
	b.fits(360)
	b.quiet()
}
