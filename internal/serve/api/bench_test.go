package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/feed"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// web is the client of all tests.
var web = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 10}}

// bench is an API on a Redis of its own, behind the real server.
type bench struct {
	redis  *redistest.Server
	rdb    redis.UniversalClient
	client *jobs.Client
	url    string
	log    *logged
}

var discard = slog.New(slog.DiscardHandler)

// logged is what was logged.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines returns the logged lines that contain text.
func (l *logged) lines(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// setup is what a bench may have besides.
type setup struct {
	redis  []redistest.Option
	limits jobs.Limits
	server webserver.Limits
	beat   time.Duration
}

// newBench starts an API for the destinations shop and stock. Requests name the
// scopes that they have in the header As, and whose token it is in Name; without them
// they have all scopes, and are ann's.
func newBench(t testing.TB, with ...setup) *bench {
	t.Helper()
	var s setup
	if len(with) > 0 {
		s = with[0]
	}
	b := &bench{redis: redistest.Start(t, s.redis...), log: &logged{}}
	b.rdb = b.redis.Client(t)
	var err error
	if b.client, err = jobs.NewClient(b.rdb, jobs.WithDestinations("shop", "stock"), jobs.WithLimits(s.limits), jobs.WithCheck(httpdest.CheckRequest)); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(b.log, nil))
	hub := feed.New(b.rdb, b.client, feed.Options{Every: 10 * time.Millisecond, Logger: log})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	handler := New(Options{Redis: b.rdb, Client: b.client, Limits: s.limits, Events: hub, Heartbeat: s.beat, Logger: log})
	server, err := webserver.Start(t.Context(), webserver.Options{Addr: "127.0.0.1:0", Handler: as(handler), Logger: log, Limits: s.server, CloseWithin: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	b.url = "http://" + server.Addr()
	t.Cleanup(func() {
		web.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		running.Wait()
	})
	return b
}

// as stands for access.Guard.
func as(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := access.Identity{Name: "ann", Scopes: []access.Scope{access.ScopeEnqueue, access.ScopeOperate}}
		switch names := r.Header.Get("As"); names {
		case "":
		case "nobody":
			next.ServeHTTP(w, r)
			return
		default:
			scopes, err := access.ParseScopes(names)
			if err != nil {
				panic(err)
			}
			id.Scopes = scopes
		}
		if name := r.Header.Get("Name"); name != "" {
			id.Name = name
		}
		next.ServeHTTP(w, r.WithContext(access.With(r.Context(), id)))
	})
}

// got is an answer.
type got struct {
	status int
	header http.Header
	body   string
}

// call makes a request; headers are pairs. A body is JSON unless headers say
// otherwise.
func (b *bench) call(t testing.TB, method, path, body string, headers ...string) got {
	t.Helper()
	return b.send(t, method, path, strings.NewReader(body), headers...)
}

func (b *bench) send(t testing.TB, method, path string, body io.Reader, headers ...string) got {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	answer, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got{status: answer.StatusCode, header: answer.Header, body: string(text)}
}

func (b *bench) get(t testing.TB, path string, headers ...string) got {
	t.Helper()
	return b.call(t, http.MethodGet, path, "", headers...)
}

func (b *bench) post(t testing.TB, path, body string, headers ...string) got {
	t.Helper()
	return b.call(t, http.MethodPost, path, body, headers...)
}

// ok fails the test unless the status is the one that is wanted.
func (g got) ok(t testing.TB, status int) got {
	t.Helper()
	if g.status != status {
		t.Fatalf("status %d, want %d; body %s", g.status, status, g.body)
	}
	return g
}

// decode reads the body of an answer.
func decode[T any](t testing.TB, g got) T {
	t.Helper()
	var out T
	if err := json.Unmarshal([]byte(g.body), &out); err != nil {
		t.Fatalf("%v in %s", err, g.body)
	}
	return out
}

// problem reads a problem and checks its form.
func (g got) problem(t testing.TB, status int) Problem {
	t.Helper()
	g.ok(t, status)
	p := decode[Problem](t, g)
	if kind := g.header.Get("Content-Type"); kind != problemType || p.Status != status || p.Type != "about:blank" || p.Title != http.StatusText(status) || p.Detail == "" {
		t.Errorf("%s is no proper problem of status %d: %s", kind, status, g.body)
	}
	return p
}
