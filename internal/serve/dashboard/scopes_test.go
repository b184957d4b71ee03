package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

// Without a session every page leads to the login, and back.
func TestNotSignedIn(t *testing.T) {
	t.Parallel()
	s := furnished(t, access.ScopeRead)
	if p := s.post("/logout", nil); !strings.HasPrefix(p.path, "/login") {
		t.Fatalf("signed out to %s", p.path)
	}
	for _, path := range all {
		p := s.get(path)
		if want := "/login?next=" + url.QueryEscape(path); p.path != want && (path != "/" || p.path != "/login") {
			t.Errorf("%s leads to %s, want %s", path, p.path, want)
		}
		p.hides(t, ">alice", "shop</a>", "Backlog")
	}
	p := s.post("/login", url.Values{"token": {"tg_wrong"}, "next": {"/jobs"}})
	p.shows(t, http.StatusUnauthorized, "This token is not known, or has expired.")
	if !strings.Contains(p.body, `name="next" value="/jobs"`) {
		t.Error("the way back is lost")
	}
	if p.hides(t, "tg_wrong"); p.header.Get("Cache-Control") != "no-store" {
		t.Error("the page may be kept")
	}
}

// Who may read sees neither payloads nor answers, is offered no action, and can do none.
func TestScopes(t *testing.T) {
	t.Parallel()
	forms := map[string]url.Values{
		"/jobs":              {"id": {"post-1"}, "action": {"cancel"}, "confirm": {"1"}},
		"/breakers/shop":     {"action": {"reset"}, "confirm": {"1"}},
		"/destinations/shop": {"action": {"pause"}, "confirm": {"1"}},
	}
	for scope, payloads := range map[access.Scope]bool{access.ScopeRead: false, access.ScopePayloads: true} {
		s := furnished(t, scope)
		p := s.get("/jobs/post-1")
		if shown := strings.Contains(p.text, "X-A") || strings.Contains(p.text, `"text":`); shown != payloads {
			t.Errorf("%s: the payload is shown: %v, want %v", scope, shown, payloads)
		}
		for _, path := range all {
			if main := between(s.get(path).body, "<main", "</main>"); strings.Contains(main, `method="post"`) {
				t.Errorf("%s: %s offers an action", scope, path)
			}
		}
		for path, form := range forms {
			s.post(path, form).shows(t, http.StatusForbidden, "Not allowed", "operate")
		}
		if got := s.status("post-1"); got != jobs.Paused {
			t.Errorf("%s: the job is %s", scope, got)
		}
	}
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

// A form that another site makes a browser send does nothing.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	for _, scope := range []access.Scope{"", access.ScopeOperate} {
		s := furnished(t, scope)
		for path, form := range map[string]url.Values{
			"/jobs":              {"id": {"post-1"}, "action": {"cancel"}, "confirm": {"1"}},
			"/breakers/shop":     {"action": {"reset"}, "confirm": {"1"}},
			"/destinations/shop": {"action": {"pause"}, "confirm": {"1"}},
			"/theme":             {"theme": {"dark"}},

			"/logout": {},
		} {
			s.do(s.form(path, form, "https://evil.example")).shows(t, http.StatusForbidden, "another site")
		}
		if got := s.status("post-1"); got != jobs.Paused {
			t.Errorf("the job is %s", got)
		}
		s.get("/jobs/post-1").shows(t, http.StatusOK, "Paused")
	}
}

// Without tokens another site's name that leads here is not answered.
func TestRebinding(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "evil.example"
	s.do(r).shows(t, http.StatusMisdirectedRequest, "this server answers to localhost")
}
