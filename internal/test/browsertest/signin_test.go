package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

// signIn fills the form of the login and sends it.
func (b *tab) signIn(token string) {
	b.t.Helper()
	b.typeIn("[name=token]", token)
	b.follow("main button")
}

// A viewer that signs in comes to the requested page, sees what its token allows, and is out after
// signing out.
func TestSignIn(t *testing.T) {
	t.Parallel()
	s := serve(t, access.ScopeRead, access.ScopeOperate)
	client, err := jobs.NewClient(s.rdb, jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	s.enqueue(jobs.New("shop", "secret payload", jobs.ID("post-1")))

	b := s.open("/jobs/post-1")
	b.sees("location.pathname === '/login'")
	b.refuses(401)
	b.signIn("tg_wrong")
	b.reads("This token is not known, or has expired.")
	b.signIn(s.tokens[access.ScopeRead])
	b.sees("location.pathname === '/jobs/post-1'")
	b.reads("sign in with a token with the scope “payloads”")
	if page := b.seen(); strings.Contains(page, "secret payload") {
		t.Errorf("a token with the scope read sees the payload:\n%s", page)
	}
	if n := value[int](b, `document.querySelectorAll("main button").length`); n != 0 {
		t.Errorf("%d buttons are offered to who may only read", n)
	}
	b.follow(`form[action="/logout"] button`)
	b.sees("location.pathname === '/login'")
	b.visit("/")
	b.sees("location.pathname === '/login'")

	b.signIn(s.tokens[access.ScopeOperate])
	b.visit("/jobs/post-1")
	b.sees(`document.querySelector("button[value=cancel]")`)
	b.quiet()
}

// A session that ended elsewhere sends the page to the login by itself.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	s := serve(t, access.ScopeRead)
	b := s.open("/incidents")
	b.signIn(s.tokens[access.ScopeRead])
	b.sees("location.pathname === '/incidents'")
	b.refuses(401)
	b.do(chromedp.Func(clearCookies))
	b.do(chromedp.Evaluate[chromedp.Void](`document.dispatchEvent(new Event("visibilitychange"))`)) // it looks at once
	b.sees("location.pathname === '/login' && location.search === '?next=%2Fincidents'")
	b.quiet()
}

var clearCookies = func(ctx contextT, target *chromedp.Target) error {
	_, err := cdp.Call(ctx, target, network.ClearBrowserCookies, cdp.Empty{})
	return err
}
