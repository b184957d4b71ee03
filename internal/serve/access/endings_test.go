package access_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// signOut signs out with cookies.
func (s *site) signOut(cookies ...string) *access.RefusedError {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/logout", http.NoBody)
	for _, c := range cookies {
		r.Header.Add("Cookie", strings.TrimPrefix(c, "Cookie: "))
	}
	return s.SignOut(httptest.NewRecorder(), r)
}

// identity is who asks with the header.
func (s *site) identity(header string) access.Identity {
	s.t.Helper()
	var id access.Identity
	ask(s.Pages(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { id, _ = access.From(r.Context()) })), "GET", "/", header)
	return id
}

// What goes on for long, such as a stream, ends with the session that began it, wherever
// that ended.
func TestIdentityEndsWithItsSession(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	server := redistest.Start(t)
	rdb := server.Client(t)
	s, other := newSite(t, rdb, "", a), newSite(t, rdb, "", a)
	cookie, second := s.signIn(text), s.signIn(text)
	here, elsewhere, another, byToken := s.identity(cookie), other.identity(cookie), s.identity(second), s.identity("Authorization: Bearer "+text)
	server.ResetStats(t)
	for what, id := range map[string]access.Identity{"here": here, "elsewhere": elsewhere, "another": another, "by token": byToken} {
		if id.Name != "alice" || !id.Valid() || !id.Valid() {
			t.Errorf("%s: %q is valid: %t", what, id.Name, id.Valid())
		}
	}
	if stats := server.CommandStats(t); stats["get"] != 0 {
		t.Errorf("Redis was asked %v", stats)
	}
	if err := s.signOut(cookie); err != nil {
		t.Fatal(err)
	}
	if here.Valid() {
		t.Error("it outlived its session")
	}
	other.now.add(5 * time.Second)
	if elsewhere.Valid() {
		t.Error("it outlived its session, elsewhere")
	}
	if !another.Valid() || !byToken.Valid() {
		t.Errorf("another session: %t, the token: %t", another.Valid(), byToken.Valid())
	}
	s.now.add(7 * 24 * time.Hour)
	if another.Valid() || !byToken.Valid() {
		t.Errorf("after a week a session: %t, the token: %t", another.Valid(), byToken.Valid())
	}
}

// Without tokens there is nothing to sign out of, whatever an earlier server has left in
// the browser and in Redis.
func TestSignOutWithoutTokens(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	rdb := redistest.Shared(t).Client(t)
	cookie := newSite(t, rdb, "", a).signIn(text)
	open := &site{t: t, Guard: newGuard(t, access.GuardOptions{Redis: rdb})}
	if err := open.signOut(cookie); err != nil {
		t.Error(err)
	}
}

// What a proxy asks for before it lets somebody pass is not ours: the session counts on
// pages, and it is no wrong token.
func TestBasicOnPages(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	s := newSite(t, redistest.Shared(t).Client(t), "", a)
	cookie := s.signIn(text)
	const basic = "Authorization: Basic YTpi"
	for range 20 {
		ask(s.Pages(whoami), "GET", "/", basic, cookie).want(t, "a page", 200, "alice")
		ask(s.Public(whoami), "GET", "/login", basic, cookie).want(t, "the login", 200, "alice")
		if got := ask(s.Pages(whoami), "GET", "/", basic); got.status != 303 {
			t.Errorf("without a session: %d", got.status)
		}
	}
	ask(s.Pages(whoami), "POST", "/", basic, cookie, "Sec-Fetch-Site: cross-site").want(t, "from another site", 403, foreign)
	ask(s.Pages(whoami), "GET", "/", basic, "Authorization: Bearer "+text).want(t, "beside a token", 200, "alice")
	if got := ask(s.Pages(whoami), "GET", "/", "Authorization: Bearer tg_wrong", cookie); got.status != 303 {
		t.Errorf("a wrong token beside a session: %d", got.status)
	}
	ask(s.API(whoami), "GET", "/v1/jobs", basic, cookie).want(t, "the API", 401, unknown)
}

// Cookies that another server on the same host has set hide no session, at any place.
func TestCookiesOfOthers(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	s := newSite(t, redistest.Shared(t).Client(t), "", a)
	other := func(i int) string { return fmt.Sprintf("tidegate=%043d", i) }
	cookie := strings.TrimPrefix(s.signIn(text), "Cookie: ")
	for _, cookies := range []string{
		other(1) + "; " + cookie,
		cookie + "; " + other(1),
		"tidegate=x; " + other(1) + "; " + other(2) + "; " + cookie + "; tidegate=",
	} {
		s.wantWho(cookies, "Cookie: "+cookies, "alice")
	}
	got := ask(s.Pages(whoami), "GET", "/", "Cookie: "+other(1)+"; "+cookie)
	if len(got.cookies) != 0 {
		t.Errorf("a session was taken back: %v", got.cookies)
	}
	var many []string
	for i := range 8 {
		many = append(many, other(i))
	}
	s.wantWho("behind more than are looked at", "Cookie: "+strings.Join(many, "; ")+"; "+cookie, "/login")
	if err := s.signOut(other(1) + "; " + cookie); err != nil {
		t.Fatal(err)
	}
	s.wantWho("after signing out", "Cookie: "+cookie, "/login")
}

// When Redis is full people want to look, and can.
func TestSignInWhenRedisIsFull(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	server := redistest.Start(t, redistest.WithArgs("--maxmemory", "1", "--maxmemory-policy", "noeviction"))
	s := newSite(t, server.Client(t), "", a)
	if err := s.redis.Set(t.Context(), "tidegate:x", "1", 0).Err(); err == nil {
		t.Fatal("Redis is not full")
	}
	s.wantWho("with a session", s.signIn(text), "alice")
	left, err := s.redis.PTTL(t.Context(), s.redis.Keys(t.Context(), "tidegate:session:*").Val()[0]).Result()
	if err != nil || left > 12*time.Hour || left < 12*time.Hour-time.Minute {
		t.Errorf("it lives for %v, %v", left, err)
	}
}
