package browsertest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds what a test waits for. Nothing should come near it.
const patience = 30 * time.Second

// tab is a window of its own, with cookies of its own, whose complaints are noted.
type tab struct {
	t    testing.TB
	ctx  context.Context
	site *site

	mu         sync.Mutex
	complaints []string
	elsewhere  []string // addresses of other hosts
	refused    []string // statuses that are no complaint
}

// open opens a window on a page of the site.
func (s *site) open(path string) *tab {
	s.t.Helper()
	if browser == nil {
		s.t.Skip("no Chromium in PATH: run scripts/ensure-chromium.sh")
	}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	s.t.Cleanup(cancel)
	// The first call makes the tab, which lives as long as that call's context.
	if err := chromedp.Do(ctx); err != nil {
		s.t.Fatal(err)
	}
	b := &tab{t: s.t, ctx: ctx, site: s}
	b.do(chromedp.Func(b.listen))
	b.visit(path)
	return b
}

// listen hears the browser's complaints, and whom it asks, as long as the tab is open.
func (b *tab) listen(ctx context.Context, target *chromedp.Target) error {
	hear(b, target, runtime.ConsoleAPICalled, func(e runtime.EventConsoleAPICalled) {
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.complaints = append(b.complaints, fmt.Sprintf("console: %s", e.Args[0].Value))
		}
	})
	hear(b, target, runtime.ExceptionThrown, func(e runtime.EventExceptionThrown) {
		b.complaints = append(b.complaints, fmt.Sprintf("exception: %s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	})
	hear(b, target, log.EntryAdded, func(e log.EventEntryAdded) {
		if (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) && !b.expected(e.Entry.Text) {
			b.complaints = append(b.complaints, "log: "+e.Entry.Text+" "+e.Entry.URL)
		}
	})
	hear(b, target, network.RequestWillBeSent, func(e network.EventRequestWillBeSent) {
		if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme != "data" && u.Host != b.site.host() {
			b.elsewhere = append(b.elsewhere, e.Request.URL)
		}
	})
	_, err := cdp.Call(ctx, target, network.Enable, network.EnableParams{})
	if err == nil {
		_, err = cdp.Call(ctx, target, log.Enable, cdp.Empty{})
	}
	if err == nil {
		_, err = cdp.Call(ctx, target, runtime.Enable, cdp.Empty{})
	}
	if err == nil {
		// Tabs side by side are all looked at.
		_, err = cdp.Call(ctx, target, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	}
	return err
}

func hear[E any](b *tab, target *chromedp.Target, event cdp.Event[E], f func(E)) {
	events := cdp.Events(b.ctx, target, event)
	go func() {
		for e, err := range events {
			if err != nil {
				return
			}
			b.mu.Lock()
			f(e)
			b.mu.Unlock()
		}
	}()
}

// refuses says that answers with the status are meant, of which Chromium complains.
func (b *tab) refuses(status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = append(b.refused, fmt.Sprintf("status of %d ", status))
}

// expected reports whether a complaint is about an answer that is meant. The stream of
// events is cut by nobody but tests.
func (b *tab) expected(text string) bool {
	return slices.ContainsFunc(b.refused, func(part string) bool { return strings.Contains(text, part) })
}

// contextT is short for tests that need no other name of package context.
type contextT = context.Context

// quiet fails the test if the browser had anything to complain of, such as a breach of
// the Content-Security-Policy, or asked anybody else.
func (b *tab) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.complaints) > 0 {
		b.t.Errorf("the browser complains:\n%s", strings.Join(b.complaints, "\n"))
	}
	if len(b.elsewhere) > 0 {
		b.t.Errorf("requests to other hosts: %v", b.elsewhere)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%v\non the page:\n%s", err, b.seen())
	}
}

// seen is the text of the page, for errors.
func (b *tab) seen() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body ? location.href + "\n" + document.body.innerText : ""`))
	if err != nil {
		return err.Error()
	}
	return text
}

// visit goes to a page and waits until it is there.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.site.url + path))
	b.sees(arrived)
}

// arrived is the script that says whether a page is there, with its style and its script.
const arrived = "document.readyState === 'complete' && document.querySelector('main')"

// click clicks on what the selector finds, wherever it is just now: pages that are kept
// up to date move.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.sees(fmt.Sprintf("document.querySelector(%q)", selector))
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", selector)))
}

// typeIn has the field hold the text, as if it was typed.
func (b *tab) typeIn(selector, text string) {
	b.t.Helper()
	b.sees(fmt.Sprintf("document.querySelector(%q)", selector))
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector(%q).focus()`, selector)), chromedp.KeyEvent(text))
	b.sees(fmt.Sprintf("document.querySelector(%q).value === %q", selector, text))
}

// sees waits until the script's condition holds on the page, also if another page comes
// meanwhile.
func (b *tab) sees(condition string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	again := time.NewTicker(30 * time.Millisecond)
	defer again.Stop()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("(() => { try { return !!("+condition+") } catch { return false } })()"))
		if ok && err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			b.t.Fatalf("never saw %s (%v)\non the page:\n%s", condition, err, b.seen())
		}
	}
}

// reads waits until the page has the text.
func (b *tab) reads(text string) {
	b.t.Helper()
	b.sees(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// follow clicks and waits for the page that comes then.
func (b *tab) follow(selector string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void]("window.old = true"))
	b.click(selector)
	b.sees("!window.old && " + arrived)
}

// value is what a script comes to on the page.
func value[T any](b *tab, script string, opts ...chromedp.EvaluateOption) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, opts...))
	if err != nil {
		b.t.Fatalf("%s: %v\non the page:\n%s", script, err, b.seen())
	}
	return v
}
