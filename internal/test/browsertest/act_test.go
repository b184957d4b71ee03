package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/jobs"
)

// counts are the jobs of a batch by their status.
func (s *site) counts(batch string) map[jobs.Status]int {
	s.t.Helper()
	b, err := s.client.Batch(s.t.Context(), batch)
	if err != nil {
		s.t.Fatal(err)
	}
	return b.Counts
}

// held is a site with a worker that holds all jobs, because the breaker was tripped.
func held(t *testing.T) *site {
	t.Helper()
	s := serve(t)
	s.work(fakeapi.Options{}, breaker.Options{}, "shop")
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), s.rdb, "shop", breaker.TripOptions{By: "test"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// Jobs are filtered, ticked and paused, and all of a filter cancelled, each after a page
// that says how many.
func TestFilterAndAct(t *testing.T) {
	t.Parallel()
	s := held(t)
	s.fill(12, func(i int) *jobs.Spec {
		return jobs.New("shop", i, jobs.ID(fmt.Sprintf("old-%02d", i)), jobs.Batch("monday"))
	})
	s.fill(3, func(i int) *jobs.Spec {
		return jobs.New("shop", i, jobs.ID(fmt.Sprintf("new-%02d", i)), jobs.Batch("tuesday"))
	})
	b := s.open("/jobs")
	b.sees(`document.querySelectorAll("tbody tr").length === 15`)
	b.typeIn(".filter [name=batch]", "monday")
	b.follow(".filter button")
	b.sees(`document.querySelectorAll("tbody tr").length === 12 && location.search === "?destination=&key=&batch=monday&label=&error="`)

	b.click("#j-old-03 .pick")
	b.click("#j-old-05 .pick")
	b.reads("2 selected jobs")
	b.reads("Not updated while jobs are selected")
	b.follow("button[value=pause]")
	b.reads("Pause 2 selected jobs?")
	if c := s.counts("monday"); c[jobs.Paused] != 0 {
		t.Fatalf("paused before it was confirmed: %v", c)
	}
	b.follow("main button.primary")
	b.reads("Paused 2 jobs.")
	if c := s.counts("monday"); c[jobs.Paused] != 2 || c[jobs.Pending] != 10 {
		t.Errorf("batch: %v, want 2 paused and 10 pending", c)
	}

	b.visit("/jobs?batch=monday&status=pending")
	b.click("[name=scope][value=all]")
	now := value[string](b, `document.getElementById("main").dataset.now`)
	b.do(chromedp.Evaluate[chromedp.Void](`document.dispatchEvent(new Event("visibilitychange"))`)) // it looks again
	b.sees(`document.getElementById("main").dataset.now !== "` + now + `"`)
	if !value[bool](b, `document.querySelector("[name=scope][value=all]").checked`) {
		t.Fatal("what was chosen is lost when the page is brought up to date")
	}
	b.follow("button[value=cancel]")
	b.reads("Cancel 10 jobs?")
	b.typeIn("[name=reason]", "wrong file")
	b.follow("main button.danger")
	b.reads("Cancelled 10 jobs.")
	if c := s.counts("monday"); c[jobs.Cancelled] != 10 || c[jobs.Paused] != 2 {
		t.Errorf("batch: %v, want 10 cancelled and 2 paused", c)
	}
	if c := s.counts("tuesday"); c[jobs.Pending] != 3 {
		t.Errorf("the other batch: %v, want 3 pending", c)
	}
	history, err := s.client.History(t.Context(), "old-00")
	if err != nil {
		t.Fatal(err)
	}
	if last := history[len(history)-1]; last.By != "local" || last.Detail != "wrong file" {
		t.Errorf("history: %+v, want by local because of the wrong file", last)
	}
	b.quiet()
}

// The page of a job that waits follows it to its end, and what is in it stays text.
func TestJobPage(t *testing.T) {
	t.Parallel()
	s := held(t)
	const nasty = `</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">`
	s.enqueue(jobs.New("shop", map[string]string{"text": nasty}, jobs.ID("post-1"), jobs.Header("X-A", nasty),
		jobs.Method("PUT"), jobs.Encode(jobs.EncodingForm), jobs.CallTimeout(5*time.Second)))
	s.enqueue(jobs.New("shop", "after", jobs.ID("post-2"), jobs.After("post-1")))
	b := s.open("/jobs/post-1")
	b.reads("stays open until it is reset")
	b.reads("<img src=x onerror=")
	for _, fact := range []string{"Method PUT", "Encoding form", "Timeout of the call 5 s"} {
		b.sees(fmt.Sprintf(`[...document.querySelectorAll("#h-request ~ dl > div")].some((e) => e.innerText.split(/\s+/).join(" ") === %q)`, fact))
	}
	b.sees(`document.querySelector("svg.graph a[href='/jobs/post-2']")`)
	b.do(chromedp.Evaluate[chromedp.Void](`window.same = true`))
	if _, err := breaker.DefaultNamespace.Reset(t.Context(), s.rdb, "shop", "test"); err != nil {
		t.Fatal(err)
	}
	b.reads("Completed")
	b.reads("Status 201")
	b.sees(`[...document.querySelectorAll(".timeline strong")].some((e) => e.textContent === "Completed")`)
	if !value[bool](b, "window.same === true && window.hacked === undefined") {
		t.Error("it was loaded again, or a script ran that came with the job")
	}
	b.quiet()
}

// slash presses that key, as one event, which a page can keep from being typed.
var slash = chromedp.Func(func(ctx contextT, target *chromedp.Target) error {
	for _, p := range []input.DispatchKeyEventParams{
		{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/"},
		{Type: input.DispatchKeyEventTypeKeyUp, Key: "/", Code: "Slash"},
	} {
		if _, err := cdp.Call(ctx, target, input.DispatchKeyEvent, p); err != nil {
			return err
		}
	}
	return nil
})

// The keyboard is enough: a slash leads to the search, which finds a job; a link skips the
// navigation; what has the focus shows it.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := held(t)
	s.enqueue(jobs.New("shop", 1, jobs.ID("post-1")))
	b := s.open("/")
	b.do(chromedp.KeyEvent(kb.Tab))
	b.sees(`document.activeElement.className === "skip" && document.activeElement.getBoundingClientRect().left >= 0`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.sees(`document.activeElement.id === "main"`)
	b.do(slash)
	b.sees(`document.activeElement.id === "q" && document.activeElement.value === ""`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.sees(`document.activeElement.id !== "q"`)
	b.do(slash, chromedp.KeyEvent("post-1"), chromedp.KeyEvent(kb.Enter))
	b.sees(`location.pathname === "/jobs/post-1" && ` + arrived)
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab))
	b.sees(`getComputedStyle(document.activeElement).outlineStyle === "solid"`)
	b.quiet()
}

// Without script pages are read and jobs cancelled all the same; colours are switched.
func TestWithoutScript(t *testing.T) {
	t.Parallel()
	s := held(t)
	s.enqueue(jobs.New("shop", 1, jobs.ID("post-1")))
	b := s.open("/jobs")
	b.do(chromedp.Func(func(ctx contextT, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	b.visit("/jobs")
	b.do(chromedp.Click("#j-post-1 .pick"))
	b.do(chromedp.Click("button[value=cancel]"), chromedp.WaitVisible(".confirm"), chromedp.Click(".confirm button.danger"), chromedp.WaitVisible(".flash"))
	s.await("post-1", jobs.Cancelled)
	b.do(chromedp.Click(`form[action="/theme"] button`), chromedp.WaitVisible(`html[data-theme=light] main`))
	b.do(chromedp.Click(`form[action="/theme"] button`), chromedp.WaitVisible(`html[data-theme=dark] main`))
	b.quiet()
}
