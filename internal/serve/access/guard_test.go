package access_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/serve/access"
)

// site is a guard with its clock, log, tokens file and Redis.
type site struct {
	*access.Guard
	t     *testing.T
	now   *clock
	log   *logged
	file  *file
	redis redis.UniversalClient
}

// newSite makes a guard with tokens.
func newSite(t *testing.T, rdb redis.UniversalClient, publicURL string, entries ...access.Entry) *site {
	t.Helper()
	s := &site{t: t, now: newClock(), log: &logged{}, file: newFile(t, entries...), redis: rdb}
	all, err := access.OpenTokens(s.file.path, access.Options{Logger: slog.New(slog.DiscardHandler), CheckEvery: time.Millisecond, Now: s.now.now})
	if err != nil {
		t.Fatal(err)
	}
	s.Guard = newGuard(t, access.GuardOptions{Tokens: all, Redis: rdb, PublicURL: publicURL, Logger: s.log.logger(), Now: s.now.now})
	return s
}

// localSite makes a guard without tokens.
func localSite(t *testing.T, publicURL string) *site {
	t.Helper()
	return &site{t: t, Guard: newGuard(t, access.GuardOptions{PublicURL: publicURL})}
}

func newGuard(t *testing.T, o access.GuardOptions) *access.Guard {
	t.Helper()
	o.PageError = func(w http.ResponseWriter, _ *http.Request, status int, message string) {
		w.WriteHeader(status)
		fmt.Fprint(w, message)
	}
	g, err := access.NewGuard(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// whoami answers with the name of who asks, "nobody" where it is not known.
var whoami = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	id, ok := access.From(r.Context())
	if !ok {
		id.Name = "nobody"
	}
	fmt.Fprint(w, id.Name)
})

// answer is what a request got.
type answer struct {
	status   int
	body     string
	header   http.Header
	cookies  []*http.Cookie
	location string
}

// ask sends a request; headers are "Name: value".
func ask(h http.Handler, method, target string, headers ...string) answer {
	r := httptest.NewRequest(method, target, http.NoBody)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		switch name {
		case "Host":
			r.Host = value
		case "Remote":
			r.RemoteAddr = value
		default:
			r.Header.Add(name, value)
		}
	}
	return do(h, r)
}

func do(h http.Handler, r *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	return answer{resp.StatusCode, w.Body.String(), resp.Header, resp.Cookies(), resp.Header.Get("Location")}
}

// want checks the status and the body, of a problem its detail, of a page its message.
func (a answer) want(t *testing.T, what string, status int, body string) {
	t.Helper()
	got := a.body
	if a.header.Get("Content-Type") == "application/problem+json" {
		var p struct {
			Title, Detail string
			Status        int
		}
		if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Status != a.status || p.Title != http.StatusText(a.status) {
			t.Errorf("%s: problem %s, %v", what, a.body, err)
		}
		got = p.Detail
	}
	if a.status != status || got != body {
		t.Errorf("%s: %d %q, want %d %q", what, a.status, got, status, body)
	}
}

const (
	needed  = "a token is needed: send it as Authorization: Bearer"
	unknown = "the token is not known, or has expired"
	foreign = "the request comes from another site"
	away    = "Redis cannot be reached or takes no writes; signing in needs it"
)

func TestBearer(t *testing.T) {
	t.Parallel()
	good, a := token(t, "shop", access.ScopeEnqueue)
	late, b := token(t, "late", access.ScopeRead)
	b.ExpiresAt = b.Created
	s := newSite(t, nil, "", a, b)
	for _, row := range []struct {
		name    string
		headers []string
		status  int
		body    string
	}{
		{"right", []string{"Authorization: Bearer " + good}, 200, "shop"},
		{"in any case", []string{"Authorization: bEARER  " + good + " "}, 200, "shop"},
		{"with another site's headers, which cannot send it", []string{"Authorization: Bearer " + good, "Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}, 200, "shop"},
		{"none", nil, 401, needed},
		{"expired", []string{"Authorization: Bearer " + late}, 401, unknown},
		{"wrong", []string{"Authorization: Bearer tg_wrong"}, 401, unknown},
		{"empty", []string{"Authorization: "}, 401, unknown},
		{"another scheme", []string{"Authorization: Basic " + good}, 401, unknown},
		{"no scheme", []string{"Authorization: " + good}, 401, unknown},
		{"twice", []string{"Authorization: Bearer " + good, "Authorization: Bearer " + good}, 401, unknown},
		{"the hash", []string{"Authorization: Bearer " + a.Hash}, 401, unknown},
	} {
		got := ask(s.API(whoami), "POST", "/v1/jobs?access_token="+good, row.headers...)
		got.want(t, row.name, row.status, row.body)
		challenge := ""
		if row.status == 401 {
			challenge = `Bearer realm="tidegate"`
		}
		if has := got.header.Get("WWW-Authenticate"); has != challenge {
			t.Errorf("%s: WWW-Authenticate %q, want %q", row.name, has, challenge)
		}
	}
	for _, line := range s.log.lines(t) {
		if text := fmt.Sprint(line); strings.Contains(text, "tg_") {
			t.Errorf("logged %s", text)
		}
	}
}

func TestScopeIsRequired(t *testing.T) {
	t.Parallel()
	reader, a := token(t, "reader", access.ScopeRead)
	shop, b := token(t, "shop", access.ScopeEnqueue)
	s := newSite(t, nil, "", a, b)
	operate, enqueue := s.API(s.RequireAPI(access.ScopeOperate, whoami)), s.API(s.RequireAPI(access.ScopeEnqueue, whoami))
	ask(operate, "POST", "/", "Authorization: Bearer "+reader).want(t, "read", 403, `the token "reader" lacks the scope "operate"`)
	ask(enqueue, "POST", "/", "Authorization: Bearer "+reader).want(t, "read", 403, `the token "reader" lacks the scope "enqueue"`)
	ask(enqueue, "POST", "/", "Authorization: Bearer "+shop).want(t, "enqueue", 200, "shop")
	ask(s.RequireAPI(access.ScopeRead, whoami), "GET", "/").want(t, "without a guard before it", 401, needed)

	ask(s.Pages(whoami), "GET", "/", "Authorization: Bearer "+shop).want(t, "pages need read", 403, `the token "shop" lacks the scope "read"`)
	ask(s.Pages(whoami), "GET", "/", "Authorization: Bearer "+reader).want(t, "a page to read", 200, "reader")
}

// Ten wrong tokens at once, then one each 6 s; a right one passes all the same, and
// other addresses are not meant.
func TestWrongTokensAreLimited(t *testing.T) {
	t.Parallel()
	good, a := token(t, "shop", access.ScopeEnqueue)
	s := newSite(t, nil, "", a)
	wrong := func(remote, what string, retryAfter string) {
		t.Helper()
		got := ask(s.API(whoami), "GET", "/v1/jobs", "Authorization: Bearer tg_wrong", "Remote: "+remote)
		if retryAfter == "" {
			got.want(t, what, 401, unknown)
		} else {
			got.want(t, what, 429, "too many wrong tokens from this address")
		}
		if got.header.Get("Retry-After") != retryAfter {
			t.Errorf("%s: Retry-After %q, want %q", what, got.header.Get("Retry-After"), retryAfter)
		}
	}
	for range 10 {
		wrong("192.0.2.1:1", "the first ten", "")
	}
	wrong("192.0.2.1:2", "the eleventh", "6")
	wrong("[::ffff:192.0.2.1]:2", "the same address in IPv6", "6")
	ask(s.API(whoami), "GET", "/", "Authorization: Bearer "+good, "Remote: 192.0.2.1:3").want(t, "a right one", 200, "shop")
	ask(s.API(whoami), "GET", "/", "Remote: 192.0.2.1:3").want(t, "none", 401, needed)
	wrong("192.0.2.2:1", "another address", "")
	for range 10 {
		wrong("[2001:db8::1]:1", "IPv6", "")
	}
	wrong("[2001:db8::ffff]:1", "another of the same network", "6")
	wrong("[2001:db8:0:1::1]:1", "another network", "")
	s.now.add(5 * time.Second)
	wrong("192.0.2.1:4", "5 s later", "1")
	s.now.add(time.Second)
	wrong("192.0.2.1:4", "6 s later", "")
	wrong("192.0.2.1:4", "and again", "6")
	s.now.add(time.Hour)
	for range 10 {
		wrong("192.0.2.1:5", "an hour later", "")
	}
	var addresses []string
	for _, line := range s.log.lines(t) {
		if line["msg"] != "a wrong token was sent" || line["level"] != "WARN" {
			t.Errorf("logged %v", line)
		}
		addresses = append(addresses, line["address"].(string))
	}
	want := []string{"192.0.2.1/32", "192.0.2.2/32", "2001:db8::/64", "2001:db8:0:1::/64", "192.0.2.1/32"}
	if diff := cmp.Diff(want, addresses); diff != "" {
		t.Errorf("addresses (-want +got)\n%s", diff)
	}
}

// However many addresses send wrong tokens, as many as can be remembered are.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	_, a := token(t, "shop", access.ScopeEnqueue)
	s := newSite(t, nil, "", a)
	refused := 0
	for i := range 11_000 {
		got := ask(s.API(whoami), "GET", "/", "Authorization: Bearer tg_wrong", fmt.Sprintf("Remote: 10.0.%d.%d:1", i/250, i%250))
		if got.status == 429 {
			refused++
		}
	}
	// 10,000 of their own, and ten on the account that the others share.
	if refused != 990 {
		t.Errorf("%d were refused, want 990", refused)
	}
	s.now.add(time.Hour)
	for range 10 {
		ask(s.API(whoami), "GET", "/", "Authorization: Bearer tg_wrong", "Remote: 10.1.0.1:1").want(t, "an hour later", 401, unknown)
	}
	ask(s.API(whoami), "GET", "/", "Authorization: Bearer tg_wrong", "Remote: 10.1.0.2:1").want(t, "another one, an hour later", 401, unknown)
}

// Without tokens everybody on this machine may do all, but no page from elsewhere.
func TestWithoutTokens(t *testing.T) {
	t.Parallel()
	const misdirected = "without tokens this server answers to localhost and to the host of PUBLIC_URL only"
	plain, public := localSite(t, ""), localSite(t, "https://tidegate.example.com:8443/x")
	for _, row := range []struct {
		name    string
		site    *site
		method  string
		headers []string
		status  int
		body    string
	}{
		{"localhost", plain, "POST", []string{"Host: localhost:8080"}, 200, "local"},
		{"without port", plain, "GET", []string{"Host: LocalHost"}, 200, "local"},
		{"an address", plain, "GET", []string{"Host: 127.0.0.1:8080"}, 200, "local"},
		{"another loopback address", plain, "GET", []string{"Host: 127.1.2.3:8080"}, 200, "local"},
		{"IPv6", plain, "GET", []string{"Host: [::1]:8080"}, 200, "local"},
		{"IPv6 without port", plain, "GET", []string{"Host: [::1]"}, 200, "local"},
		{"a wrong token, which is not looked at", plain, "GET", []string{"Host: localhost", "Authorization: Bearer x"}, 200, "local"},
		{"the public name", public, "POST", []string{"Host: Tidegate.example.com", "Sec-Fetch-Site: same-origin"}, 200, "local"},
		{"the public origin through a proxy", public, "POST", []string{"Host: 127.0.0.1:8080", "Origin: https://tidegate.example.com:8443"}, 200, "local"},
		{"a rebound name", plain, "GET", []string{"Host: evil.example:8080"}, 421, misdirected},
		{"a rebound name like ours", plain, "GET", []string{"Host: localhost.evil.example"}, 421, misdirected},
		{"an address of the network", plain, "GET", []string{"Host: 192.168.0.7:8080"}, 421, misdirected},
		{"no name", plain, "GET", []string{"Host: "}, 421, misdirected},
		{"a name that is not the public one", public, "GET", []string{"Host: evil.example"}, 421, misdirected},
		{"another site's form", plain, "POST", []string{"Host: localhost:8080", "Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}, 403, foreign},
		{"another site's form in an old browser", plain, "POST", []string{"Host: localhost:8080", "Origin: https://evil.example"}, 403, foreign},
		{"another port's form", plain, "DELETE", []string{"Host: localhost:8080", "Sec-Fetch-Site: same-site", "Origin: http://localhost:3000"}, 403, foreign},
		{"a sandboxed frame's form", plain, "POST", []string{"Host: localhost:8080", "Origin: null"}, 403, foreign},
		{"a link from another site", plain, "GET", []string{"Host: localhost:8080", "Sec-Fetch-Site: cross-site"}, 200, "local"},
	} {
		for kind, h := range map[string]http.Handler{"API": row.site.API(whoami), "Pages": row.site.Pages(whoami), "Public": row.site.Public(whoami)} {
			ask(h, row.method, "/", row.headers...).want(t, row.name+", "+kind, row.status, row.body)
		}
	}
	if !plain.Open() || newSite(t, nil, "").Open() {
		t.Errorf("open: %t without tokens, %t with", plain.Open(), newSite(t, nil, "").Open())
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/login", http.NoBody)
	if err := plain.SignIn(w, r, "x"); err != nil || len(w.Result().Cookies()) != 0 {
		t.Errorf("signing in: %v, %v", err, w.Result().Cookies())
	}
}

// Who is not signed in is sent to the login, and comes back to where they wanted to be.
func TestRedirectToLogin(t *testing.T) {
	t.Parallel()
	_, a := token(t, "alice", access.ScopeRead)
	s := newSite(t, nil, "", a)
	for _, row := range []struct{ method, target, location string }{
		{"GET", "/", "/login"},
		{"GET", "/jobs?status=failed&batch=b%201", "/login?next=%2Fjobs%3Fstatus%3Dfailed%26batch%3Db%25201"},
		{"HEAD", "/breakers/shop%2Falice", "/login?next=%2Fbreakers%2Fshop%252Falice"},
		{"POST", "/jobs/7/cancel", "/login"},
		{"GET", "//evil.example/", "/login?next=%2F"},
	} {
		got := ask(s.Pages(whoami), row.method, row.target)
		if got.status != 303 || got.location != row.location {
			t.Errorf("%s %s: %d to %q, want 303 to %q", row.method, row.target, got.status, got.location, row.location)
		}
	}
	const script = "a token is needed: send it as Authorization: Bearer"
	ask(s.Pages(whoami), "GET", "/", "Sec-Fetch-Mode: cors").want(t, "a script", 401, script)
	ask(s.Pages(whoami), "GET", "/", "X-Requested-With: tidegate").want(t, "a script that says so", 401, script)
	if got := ask(s.Pages(whoami), "GET", "/", "Sec-Fetch-Mode: navigate"); got.status != 303 {
		t.Errorf("a person: %d", got.status)
	}
	ask(s.Public(whoami), "GET", "/login").want(t, "the login", 200, "nobody")
	ask(s.Public(whoami), "POST", "/login", "Sec-Fetch-Site: cross-site").want(t, "the login from another site", 403, foreign)
}

func TestLocalPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/": "/", "/jobs?a=b&c=%2F": "/jobs?a=b&c=%2F", "/jobs#x": "/jobs#x", "/breakers/a%2Fb": "/breakers/a%2Fb",
		"": "/", "jobs": "/", "//evil.example": "/", "///evil.example": "/", `/\evil.example`: "/", "/\tjobs": "/", "/a b": "/", "/\r\nSet-Cookie: a": "/",
		"https://evil.example/": "/", "javascript:alert(1)": "/", "/%zz": "/", "@evil.example": "/", "/" + strings.Repeat("x", 2048): "/",
	} {
		if got := access.LocalPath(path); got != want {
			t.Errorf("LocalPath(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	reached := func(addr, port string) string {
		return fmt.Sprintf(`other machines can reach %q, and there are no tokens: set API_TOKENS_FILE, or listen on 127.0.0.1:%s`, addr, port)
	}
	for _, row := range []struct {
		addr   string
		tokens bool
		want   string
	}{
		{"127.0.0.1:8080", false, ""},
		{"127.5.5.5:0", false, ""},
		{"[::1]:8080", false, ""},
		{"[::ffff:127.0.0.1]:8080", false, ""},
		{"localhost:8080", false, ""},
		{":8080", true, ""},
		{"0.0.0.0:8080", true, ""},
		{":8080", false, reached(":8080", "8080")},
		{"0.0.0.0:80", false, reached("0.0.0.0:80", "80")},
		{"[::]:80", false, reached("[::]:80", "80")},
		{"192.168.0.7:80", false, reached("192.168.0.7:80", "80")},
		{"myhost:80", false, reached("myhost:80", "80")},
		{"localhost.example.com:80", false, reached("localhost.example.com:80", "80")},
		{"8080", true, `"8080" is not an address to listen on: write it like 127.0.0.1:8080 or :8080`},
	} {
		got := ""
		if err := access.CheckAddress(row.addr, row.tokens); err != nil {
			got = err.Error()
		}
		if got != row.want {
			t.Errorf("CheckAddress(%q, %t) = %q, want %q", row.addr, row.tokens, got, row.want)
		}
	}
}

func TestGuardOptions(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"tidegate.example.com", "http://", "http://a b"} {
		want := fmt.Sprintf("access: PUBLIC_URL %q is not a URL", wrong)
		if _, err := access.NewGuard(access.GuardOptions{PublicURL: wrong}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	var log logged
	ctx := access.With(t.Context(), access.Identity{Name: "alice"})
	access.Audit(ctx, log.logger(), "cancel", slog.String("job", "7"), slog.Int("count", 1))
	access.Audit(t.Context(), log.logger(), "trip")
	want := []map[string]any{
		{"level": "INFO", "msg": "audit", "action": "cancel", "name": "alice", "job": "7", "count": 1.0},
		{"level": "INFO", "msg": "audit", "action": "trip", "name": ""},
	}
	if diff := cmp.Diff(want, log.lines(t)); diff != "" {
		t.Errorf("log (-want +got)\n%s", diff)
	}
}

// form is a request with a token in it, as the login sends it.
func form(token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}
