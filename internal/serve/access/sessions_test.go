package access_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// signIn signs in and returns the cookie as a request's header.
func (s *site) signIn(token string, headers ...string) string {
	s.t.Helper()
	r := form(token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	if err := s.SignIn(w, r, r.FormValue("token")); err != nil {
		s.t.Fatal(err)
	}
	c := w.Result().Cookies()[len(w.Result().Cookies())-1]
	return "Cookie: " + c.Name + "=" + c.Value
}

// who asks with a cookie and returns the name of who that is, or the location of the
// login, or the status.
func (s *site) who(cookie string, headers ...string) string {
	got := ask(s.Pages(whoami), "GET", "/", append(headers, cookie)...)
	switch got.status {
	case 200:
		return got.body
	case 303:
		return got.location
	}
	return http.StatusText(got.status)
}

func (s *site) wantWho(what, cookie, want string) {
	s.t.Helper()
	if got := s.who(cookie); got != want {
		s.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// The cookie is for this host alone and no script's, and by TLS for nothing else.
func TestCookie(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	rdb := redistest.Shared(t).Client(t)
	plain := &http.Cookie{Name: "tidegate", Path: "/", MaxAge: 604800, HttpOnly: true, SameSite: http.SameSiteLaxMode}
	secure := &http.Cookie{Name: "__Host-tidegate", Path: "/", MaxAge: 604800, HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode}
	for _, row := range []struct {
		name, public string
		header       string
		want         *http.Cookie
	}{
		{"without TLS", "", "", plain},
		{"without TLS, with PUBLIC_URL", "http://tidegate.example.com", "", plain},
		{"behind TLS", "", "https", secure},
		{"behind TLS and more", "", "HTTPS, http", secure},
		{"behind nothing that says so", "https://tidegate.example.com", "", secure},
		{"behind none", "", "http", plain},
	} {
		s := newSite(t, rdb, row.public, a)
		r := form(text)
		if row.header != "" {
			r.Header.Set("X-Forwarded-Proto", row.header)
		}
		w := httptest.NewRecorder()
		if err := s.SignIn(w, r, " "+text+"\n"); err != nil {
			t.Fatal(err)
		}
		c := w.Result().Cookies()[0]
		value := c.Value
		c.Value, c.Raw = "", ""
		if diff := cmp.Diff(row.want, c); diff != "" {
			t.Errorf("%s (-want +got)\n%s", row.name, diff)
		}
		if !regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`).MatchString(value) {
			t.Errorf("%s: value %q", row.name, value)
		}
		// One that came without TLS is not taken behind it.
		var proto []string
		if row.header != "" {
			proto = []string{"X-Forwarded-Proto: " + row.header}
		}
		if got := s.who("Cookie: "+c.Name+"="+value, proto...); got != "alice" {
			t.Errorf("%s: %s", row.name, got)
		}
		if row.want == secure {
			if got := s.who("Cookie: tidegate="+value, proto...); got != "/login" {
				t.Errorf("%s: a planted cookie makes it %s", row.name, got)
			}
		}
	}
}

func TestSignInRefusals(t *testing.T) {
	t.Parallel()
	shop, a := token(t, "shop", access.ScopeEnqueue)
	good, b := token(t, "alice", access.ScopeRead)
	s := newSite(t, redistest.Shared(t).Client(t), "", a, b)
	for _, row := range []struct {
		name, token, site string
		want              access.RefusedError
	}{
		{"nothing", " ", "", access.RefusedError{Status: 400, Message: "give a token"}},
		{"wrong", "tg_wrong", "", access.RefusedError{Status: 401, Message: "this token is not known, or has expired"}},
		{"may not read", shop, "", access.RefusedError{Status: 403, Message: `the token "shop" lacks the scope "read"`}},
		{"another site", good, "cross-site", access.RefusedError{Status: 403, Message: foreign}},
	} {
		r := form(row.token)
		if row.site != "" {
			r.Header.Set("Sec-Fetch-Site", row.site)
		}
		w := httptest.NewRecorder()
		refused := s.SignIn(w, r, row.token)
		if refused == nil || *refused != row.want || len(w.Result().Cookies()) != 0 {
			t.Errorf("%s: %+v, want %+v; cookies %v", row.name, refused, row.want, w.Result().Cookies())
		}
	}
	for range 10 {
		_ = s.SignIn(httptest.NewRecorder(), form(""), "tg_wrong")
	}
	refused := s.SignIn(httptest.NewRecorder(), form(""), "tg_wrong")
	if want := (access.RefusedError{Status: 429, Message: "too many wrong tokens from this address", RetryAfter: 6 * time.Second}); refused == nil || *refused != want {
		t.Errorf("often: %+v, want %+v", refused, want)
	}
	want := []map[string]any{
		{"level": "WARN", "msg": "a wrong token was sent", "address": "192.0.2.1/32"},
		{"level": "INFO", "msg": "audit", "action": "sign in", "name": "shop", "result": "refused: the token lacks the scope read"},
	}
	if diff := cmp.Diff(want, s.log.lines(t)); diff != "" {
		t.Errorf("log (-want +got)\n%s", diff)
	}
}

// A session lives 12 h after it was last used, and a week at most, and Redis holds
// neither the token nor the cookie.
func TestSessionsSlide(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	server := redistest.Start(t)
	s := newSite(t, server.Client(t), "", a)
	cookie := s.signIn(text)
	keys, err := s.redis.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 1 || !regexp.MustCompile(`^tidegate:session:[0-9a-f]{64}$`).MatchString(keys[0]) {
		t.Fatalf("keys %q, %v", keys, err)
	}
	value, err := s.redis.Get(t.Context(), keys[0]).Result()
	if want := a.Hash + " 1795262400"; err != nil || value != want {
		t.Errorf("value %q, %v, want %q", value, err, want)
	}
	left := func() time.Duration {
		t.Helper()
		d, err := s.redis.PTTL(t.Context(), keys[0]).Result()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := left(); d > 12*time.Hour || d < 12*time.Hour-time.Minute {
		t.Errorf("it lives for %v", d)
	}
	if err := s.redis.Expire(t.Context(), keys[0], time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	s.wantWho("soon after", cookie, "alice")
	if d := left(); d > time.Hour {
		t.Errorf("Redis was asked though it had just been: %v", d)
	}
	s.now.add(5 * time.Second)
	s.wantWho("later", cookie, "alice")
	if d := left(); d < 11*time.Hour {
		t.Errorf("its end was not put off: %v", d)
	}
	// Other processes know it too.
	other := newSite(t, s.redis, "", a)
	other.wantWho("elsewhere", cookie, "alice")

	s.now.add(7*24*time.Hour - 6*time.Second)
	s.wantWho("after a week but a second", cookie, "alice")
	s.now.add(time.Second)
	s.wantWho("after a week", cookie, "/login")
	if err := s.redis.Del(t.Context(), keys[0]).Err(); err != nil {
		t.Fatal(err)
	}
	other.now.add(5 * time.Second)
	other.wantWho("when Redis has forgotten it", cookie, "/login")
}

// Of Redis a few commands on its own keys are enough.
func TestSessionsNeedFewRights(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	server := redistest.Start(t)
	server.SetUser(t, "api", "pw", "~tidegate:session:*", "+get", "+set", "+pexpire", "+del", "+eval", "+evalsha", "+hello")
	options, err := redis.ParseURL(redistest.As(server.URL(), "api", "pw"))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	s := newSite(t, rdb, "", a)
	cookie := s.signIn(text)
	s.now.add(5 * time.Second)
	s.wantWho("later", cookie, "alice")
	r := httptest.NewRequest(http.MethodPost, "/logout", http.NoBody)
	r.Header.Set("Cookie", strings.TrimPrefix(cookie, "Cookie: "))
	if err := s.SignOut(httptest.NewRecorder(), r); err != nil {
		t.Error(err)
	}
	s.wantWho("after", cookie, "/login")
}

// What one viewer asks for again and again costs Redis one look each 5 s.
func TestSessionsAreCheap(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	server := redistest.Start(t)
	s := newSite(t, server.Client(t), "", a)
	cookie := s.signIn(text)
	server.ResetStats(t)
	for range 200 {
		s.wantWho("again", cookie, "alice")
	}
	s.now.add(5 * time.Second)
	for range 200 {
		s.wantWho("and again", cookie, "alice")
	}
	if stats := server.CommandStats(t); stats["get"] != 1 || stats["pexpire"] != 1 {
		t.Errorf("Redis was asked %v", stats)
	}
}

func TestSignOut(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	rdb := redistest.Shared(t).Client(t)
	s, other := newSite(t, rdb, "", a), newSite(t, rdb, "", a)
	cookie, second := s.signIn(text), s.signIn(text)
	other.wantWho("elsewhere", cookie, "alice")
	out := func(site string) (*httptest.ResponseRecorder, *access.RefusedError) {
		r := httptest.NewRequest(http.MethodPost, "/logout", http.NoBody)
		r.Header.Set("Cookie", strings.TrimPrefix(cookie, "Cookie: "))
		r.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		return w, s.SignOut(w, r)
	}
	if _, err := out("cross-site"); err == nil || err.Error() != foreign {
		t.Errorf("from another site: %v", err)
	}
	s.wantWho("before", cookie, "alice")
	w, err := out("same-origin")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Header().Get("Set-Cookie"); got != "tidegate=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax" {
		t.Errorf("Set-Cookie %q", got)
	}
	s.wantWho("after", cookie, "/login")
	s.wantWho("another session", second, "alice")
	other.now.add(5 * time.Second)
	other.wantWho("elsewhere, after 5 s", cookie, "/login")

	// Signing in again ends the session before.
	s.signIn(text, second)
	s.wantWho("the one before", second, "/login")
	if err := s.SignOut(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/logout", http.NoBody)); err != nil {
		t.Errorf("without a session: %v", err)
	}

	want := []map[string]any{
		{"level": "INFO", "msg": "audit", "action": "sign in", "name": "alice", "result": "ok"},
		{"level": "INFO", "msg": "audit", "action": "sign in", "name": "alice", "result": "ok"},
		{"level": "INFO", "msg": "audit", "action": "sign out", "name": "alice", "result": "ok"},
		{"level": "INFO", "msg": "audit", "action": "sign in", "name": "alice", "result": "ok"},
	}
	if diff := cmp.Diff(want, s.log.lines(t)); diff != "" {
		t.Errorf("log (-want +got)\n%s", diff)
	}
}

// The sessions of a token have its scopes, and end with it.
func TestSessionsFollowTheToken(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeOperate)
	s := newSite(t, redistest.Shared(t).Client(t), "", a)
	cookie := s.signIn(text)
	operate := s.API(s.RequireAPI(access.ScopeOperate, whoami))
	ask(operate, "POST", "/", cookie).want(t, "operate", 200, "alice")
	a.Scopes = []access.Scope{access.ScopeRead}
	s.file.put(a)
	redistest.Eventually(t, "the scope is gone", func() bool { return ask(operate, "POST", "/", cookie).status == 403 })
	s.wantWho("reading", cookie, "alice")
	s.file.put()
	redistest.Eventually(t, "the session is gone", func() bool { return s.who(cookie) == "/login" })
	got := ask(s.Pages(whoami), "GET", "/", cookie)
	if has := got.header.Get("Set-Cookie"); has != "tidegate=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax" {
		t.Errorf("Set-Cookie %q", has)
	}
}

// The session's cookie is good for the API too, but not for what another site sends.
func TestSessionInTheAPI(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeOperate)
	s := newSite(t, redistest.Shared(t).Client(t), "", a)
	cookie := s.signIn(text)
	ask(s.API(whoami), "GET", "/v1/events", cookie, "Sec-Fetch-Site: same-origin").want(t, "events", 200, "alice")
	ask(s.API(whoami), "POST", "/v1/jobs", cookie, "Sec-Fetch-Site: same-origin").want(t, "own form", 200, "alice")
	ask(s.API(whoami), "POST", "/v1/jobs", cookie, "Sec-Fetch-Site: cross-site").want(t, "another site's form", 403, foreign)
	ask(s.API(whoami), "POST", "/v1/jobs", cookie, "Sec-Fetch-Site: same-site").want(t, "a neighbour's form", 403, foreign)
	ask(s.API(whoami), "POST", "/v1/jobs", cookie, "Origin: https://evil.example").want(t, "another site's form in an old browser", 403, foreign)
	ask(s.Pages(whoami), "POST", "/jobs/7/cancel", cookie, "Sec-Fetch-Site: cross-site").want(t, "another site's form on a page", 403, foreign)
	ask(s.API(whoami), "POST", "/v1/jobs", cookie, "Authorization: Bearer tg_wrong").want(t, "a wrong token beside it", 401, unknown)
	for _, wrong := range []string{"x", "", strings.Repeat("x", 43), strings.Repeat("x", 10_000)} {
		ask(s.API(whoami), "GET", "/v1/events", "Cookie: tidegate="+wrong).want(t, "a made-up cookie", 401, needed)
	}
}

// While Redis is away a session goes on that was good less than 10 min ago; nobody else
// gets in, and nobody is told to sign in, which would not work.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	server := redistest.Start(t, redistest.WithAOF())
	s := newSite(t, server.Client(t), "", a)
	cookie, unseen := s.signIn(text), newSite(t, s.redis, "", a).signIn(text)
	s.log.lines(t)
	server.Stop()
	s.wantWho("at once", cookie, "alice")
	s.now.add(10*time.Minute - time.Nanosecond)
	s.wantWho("for 10 min", cookie, "alice")
	s.wantWho("one that was not seen here", unseen, "Service Unavailable")
	got := ask(s.Pages(whoami), "GET", "/", unseen)
	got.want(t, "its page", 503, away)
	if has := got.header.Get("Retry-After"); has != "2" || len(got.cookies) != 0 {
		t.Errorf("Retry-After %q, cookies %v", has, got.cookies)
	}
	ask(s.API(whoami), "GET", "/v1/events", unseen).want(t, "its script", 503, away)
	ask(s.API(whoami), "GET", "/v1/jobs", "Authorization: Bearer "+text).want(t, "a token", 200, "alice")
	want := access.RefusedError{Status: 503, Message: away, RetryAfter: 2 * time.Second}
	if refused := s.SignIn(httptest.NewRecorder(), form(text), text); refused == nil || *refused != want {
		t.Errorf("signing in: %+v, want %+v", refused, want)
	}
	if lines := s.log.lines(t); len(lines) != 1 || lines[0]["msg"] != "a session cannot be started" || lines[0]["level"] != "WARN" {
		t.Errorf("logged %v", lines)
	}
	s.now.add(time.Nanosecond)
	s.wantWho("after 10 min", cookie, "Service Unavailable")

	server.Restart()
	s.wantWho("Redis is not asked again at once", unseen, "Service Unavailable")
	s.signIn(text)
	s.wantWho("unless it has answered", unseen, "alice")
	s.wantWho("the first one", cookie, "alice")

	server.Stop()
	s.now.add(10 * time.Minute)
	s.wantWho("away again", cookie, "Service Unavailable")
	server.Restart()
	s.now.add(2 * time.Second)
	s.wantWho("2 s later it is asked", cookie, "alice")
}

// A Redis that answers nothing holds a page up once, for a second.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	text, a := token(t, "alice", access.ScopeRead)
	server := redistest.Start(t)
	rdb, asked := server.Client(t), &pipelines{}
	s := newSite(t, rdb, "", a)
	cookie := s.signIn(text)
	rdb.AddHook(asked)
	server.Pause()
	defer server.Resume()
	s.now.add(5 * time.Second)
	began := time.Now()
	for range 50 {
		s.wantWho("meanwhile", cookie, "alice")
	}
	if took := time.Since(began); took < time.Second || took > 40*time.Second {
		t.Errorf("50 pages took %v", took)
	}

	// Of sign-ins that come together one waits.
	s.now.add(5 * time.Second)
	done := make(chan string, 20)
	for range 20 {
		go func() { done <- s.who(cookie) }()
	}
	for range 20 {
		if got := <-done; got != "alice" {
			t.Errorf("together: %s", got)
		}
	}
	if n := asked.n.Load(); n != 2 {
		t.Errorf("Redis was asked %d times, want 2: once each time", n)
	}
}

// pipelines counts the pipelines that are sent.
type pipelines struct{ n atomic.Int32 }

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.n.Add(1)
		return next(ctx, cmds)
	}
}
