package browsertest

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/jobs"
)

// stateOf is the script that reads the state of a breaker on the first page.
func stateOf(name string) string {
	return `document.querySelector("#b-` + name + ` [data-k='state-` + name + `']").textContent`
}

// A page that is open shows the breaker's opening and closing without being loaded again,
// says so to those who listen, counts down, and leaves alone what its reader has opened
// and where they are.
func TestLive(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var limited atomic.Bool
	rules := breaker.Options{FailureThreshold: 3, Cooldown: time.Second}
	s.work(fakeapi.Options{Script: func(int, *fakeRequest) *fakeapi.Answer {
		if limited.Load() {
			return &fakeapi.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"4"}}}
		}
		return nil
	}}, rules, "shop")
	s.limit("shop", "alice", rules, time.Hour)
	b := s.open("/")
	b.sees(stateOf("shop") + ` === "Closed"`)
	b.sees(`document.getElementById("live").textContent === "Live"`)
	b.do(chromedp.Evaluate[chromedp.Void](`window.same = true`))
	b.click("#keys-shop summary")
	b.typeIn("#q", "typed")

	limited.Store(true)
	s.enqueue(jobs.New("shop", 1))
	b.sees(stateOf("shop") + ` === "Open"`)
	b.sees(`document.getElementById("say").textContent === "shop: Open"`)
	b.sees(`document.title === "(1 open) Overview · Tidegate"`)
	b.sees(`/^[1-4]s$/.test(document.querySelector("#b-shop .left").textContent)`)
	before := value[string](b, `document.querySelector("#b-shop .left").textContent`)
	b.sees(`document.querySelector("#b-shop .left")?.textContent !== "` + before + `"`)
	limited.Store(false)
	b.sees(`["Closed", "Recovering"].includes(` + stateOf("shop") + `)`)
	b.sees(`document.title === "Overview · Tidegate"`)
	for what, script := range map[string]string{
		"it was loaded again":          `window.same === true`,
		"what was opened has closed":   `document.getElementById("keys-shop").open`,
		"the focus has moved":          `document.activeElement.id === "q"`,
		"what was typed has gone":      `document.getElementById("q").value === "typed"`,
		"the page is not live anymore": `document.getElementById("live").textContent === "Live"`,
	} {
		if !value[bool](b, script) {
			t.Error(what)
		}
	}
	b.quiet()
}

// The page says so when Redis has gone, with what was known, and is back by itself.
func TestRedisGoneAndBack(t *testing.T) {
	t.Parallel()
	s := serve(t)
	stop := s.work(fakeapi.Options{}, breaker.Options{}, "shop")
	b := s.open("/")
	b.sees(stateOf("shop") + ` === "Closed"`)
	b.do(chromedp.Evaluate[chromedp.Void](`window.same = true`))
	stop() // the worker would complain, too
	b.refuses(503)
	s.redis.Stop()
	b.reads("Redis cannot be reached. This is what was known")
	b.sees(stateOf("shop") + ` === "Closed"`)
	b.sees(`document.getElementById("live").textContent === "Redis is away; trying again"`)
	s.redis.Restart()
	b.sees(`!document.querySelector(".banner") && document.getElementById("live").textContent !== "Redis is away; trying again"`)
	if !value[bool](b, "window.same === true") {
		t.Error("it was loaded again")
	}
	b.quiet()
}
