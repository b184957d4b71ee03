package dashboard_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/dashboard"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/feed"
	"github.com/tidegate/tidegate/jobs"
)

// site is a dashboard over HTTP, and who looks at it.
type site struct {
	t      testing.TB
	redis  *redistest.Server
	rdb    redis.UniversalClient
	client *jobs.Client
	server *httptest.Server
	log    *loggingtest.Buffer
	ahead  *atomic.Int64 // how far the dashboard's clock is
	// http keeps cookies and follows redirections.
	http *http.Client
}

// open makes a dashboard on a Redis of its own that knows the destinations. Where a scope
// is given, its viewer is signed in with a token of that scope.
func open(t testing.TB, scope access.Scope, destinations ...string) *site {
	t.Helper()
	s := &site{t: t, redis: redistest.Start(t), log: &loggingtest.Buffer{}, ahead: &atomic.Int64{}}
	s.rdb = s.redis.Client(t)
	var err error
	if s.client, err = jobs.NewClient(s.rdb, jobs.WithDestinations(destinations...)); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	var board *dashboard.Dashboard
	o := access.GuardOptions{Redis: s.rdb, Logger: log, PageError: func(w http.ResponseWriter, r *http.Request, status int, message string) {
		board.PageError(w, r, status, message)
	}}
	token := ""
	if scope != "" {
		o.Tokens, token = tokensWith(t, scope)
	}
	guard, err := access.NewGuard(o)
	if err != nil {
		t.Fatal(err)
	}
	hub := feed.New(s.rdb, s.client, feed.Options{Every: 20 * time.Millisecond, Logger: log})
	done := make(chan struct{})
	ctx := t.Context()
	go func() { hub.Run(ctx); close(done) }()
	t.Cleanup(func() { <-done })
	if board, err = dashboard.New(dashboard.Options{
		Redis: s.rdb, Client: s.client, Guard: guard, Hub: hub, Version: "v1.2.3", Logger: log, Now: func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) },
	}); err != nil {
		t.Fatal(err)
	}
	s.server = httptest.NewServer(board)
	t.Cleanup(s.server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.http = &http.Client{Jar: jar, Timeout: 2 * time.Minute}
	t.Cleanup(s.http.CloseIdleConnections)
	if token != "" {
		if p := s.post("/login", url.Values{"token": {token}, "next": {"/"}}); p.status != http.StatusOK {
			t.Fatalf("sign in: %d\n%s", p.status, p.text)
		}
	}
	return s
}

func tokensWith(t testing.TB, scope access.Scope) (*access.Tokens, string) {
	t.Helper()
	token, entry, err := access.NewToken("ops", []access.Scope{scope}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	content, err := access.FormatFile([]access.Entry{entry})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokens.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.OpenTokens(path, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tokens, token
}

// age makes old what pages have read so far.
func (s *site) age() { s.ahead.Add(int64(2 * time.Second)) }

// page is an answer.
type page struct {
	status int
	header http.Header
	path   string // after redirections
	body   string
	text   string // what people read, on one line
}

var (
	tags   = regexp.MustCompile(`<[^>]*>`)
	ends   = regexp.MustCompile(`</(dt|dd|div|li|td|th|p|h1|h2|button|a|strong|svg)>`)
	spaces = regexp.MustCompile(`\s+`)
	named  = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&", "&#34;", `"`, "&#39;", "'")
)

func (s *site) do(r *http.Request) page {
	s.t.Helper()
	resp, err := s.http.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	p := page{status: resp.StatusCode, header: resp.Header, path: resp.Request.URL.RequestURI(), body: string(body)}
	_, shown, _ := strings.Cut(p.body, "<body")
	shown = ends.ReplaceAllString(shown, " ")
	p.text = named.Replace(spaces.ReplaceAllString(tags.ReplaceAllString("<body"+shown, ""), " "))
	return p
}

func (s *site) get(path string) page {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.server.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(r)
}

// post sends a form as a browser does from a page of the site.
func (s *site) post(path string, form url.Values) page {
	s.t.Helper()
	return s.do(s.form(path, form, s.server.URL))
}

func (s *site) form(path string, form url.Values, origin string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.server.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", origin)
	return r
}

// shows fails unless the page has the status and all of the texts.
func (p page) shows(t testing.TB, status int, texts ...string) {
	t.Helper()
	if p.status != status {
		t.Errorf("%s: status %d, want %d", p.path, p.status, status)
	}
	for _, text := range texts {
		if !strings.Contains(p.text, text) {
			t.Errorf("%s does not show %q:\n%s", p.path, text, p.text)
		}
	}
}

func (p page) hides(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(p.body, text) {
			t.Errorf("%s shows %q:\n%s", p.path, text, p.body)
		}
	}
}

func (s *site) enqueue(destination string, payload any, opts ...jobs.Option) *jobs.Job {
	s.t.Helper()
	j, err := s.client.Enqueue(s.t.Context(), jobs.New(destination, payload, opts...))
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// fill enqueues n jobs of the batch with ids that end in their numbers.
func (s *site) fill(destination, batch string, n int) {
	s.t.Helper()
	for from := 0; from < n; from += 5000 {
		var specs []*jobs.Spec
		for i := from; i < min(from+5000, n); i++ {
			specs = append(specs, jobs.New(destination, i, jobs.ID(fmt.Sprintf("%s-%06d", batch, i)), jobs.Batch(batch)))
		}
		if _, err := s.client.EnqueueMany(s.t.Context(), specs); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *site) status(id string) jobs.Status {
	s.t.Helper()
	j, err := s.client.Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return j.Status
}
