package browsertest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/minutes"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// site is a server with all that is behind it.
type site struct {
	t      testing.TB
	redis  *redistest.Server
	rdb    redis.UniversalClient
	client *jobs.Client
	url    string
	api    *fakeapi.API
	apiURL string
	// tokens by their scope; empty if everybody may do everything.
	tokens map[access.Scope]string
}

func (s *site) host() string {
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	return u.Host
}

// serve starts a server on a Redis of its own; with tokens if any scopes are given, one
// for each.
func serve(t testing.TB, scopes ...access.Scope) *site {
	t.Helper()
	s := &site{t: t, redis: redistest.Start(t), tokens: map[access.Scope]string{}}
	s.rdb = s.redis.Client(t)
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if s.client, err = jobs.NewClient(s.rdb, jobs.WithLogger(quiet)); err != nil {
		t.Fatal(err)
	}
	o := app.APIOptions{Redis: s.rdb, Client: s.client, Version: "test", Logger: quiet}
	if len(scopes) > 0 {
		o.Tokens = s.makeTokens(scopes)
	}
	served, err := app.APIHandler(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(served.Close)
	server, err := webserver.Start(t.Context(), webserver.Options{Addr: "127.0.0.1:0", Handler: served, Logger: quiet, CloseWithin: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	s.url = "http://" + server.Addr()
	return s
}

func (s *site) makeTokens(scopes []access.Scope) *access.Tokens {
	var entries []access.Entry
	for _, scope := range scopes {
		token, entry, err := access.NewToken(string(scope)+"-token", []access.Scope{scope}, time.Now())
		if err != nil {
			s.t.Fatal(err)
		}
		s.tokens[scope] = token
		entries = append(entries, entry)
	}
	content, err := access.FormatFile(entries)
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.t.TempDir(), "tokens.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		s.t.Fatal(err)
	}
	tokens, err := access.OpenTokens(path, access.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	return tokens
}

// work starts a fake API and a worker that serves it as the destinations, until stop is
// called or the test ends.
func (s *site) work(api fakeapi.Options, rules breaker.Options, destinations ...string) (stop func()) {
	s.t.Helper()
	s.api = fakeapi.New(api)
	var err error
	if s.apiURL, err = s.api.Start(""); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.api.Close() })
	quiet := slog.New(slog.DiscardHandler)
	recorder := minutes.NewRecorder(s.rdb, s.client, quiet)
	o := publisher.Options{Logger: quiet, ShutdownTimeout: 5 * time.Second, RetryLoopInterval: 200 * time.Millisecond}
	recorder.Observe(&o)
	p, err := publisher.New(s.rdb, o)
	if err != nil {
		s.t.Fatal(err)
	}
	handler, err := httpdest.New(httpdest.Options{URL: s.apiURL})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { handler.Close() })
	for _, d := range destinations {
		if err := p.Handle(d, handler, publisher.Breaker(rules), publisher.Timeout(5*time.Second)); err != nil {
			s.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan struct{}, 2)
	go func() {
		if err := p.Run(ctx); err != nil {
			s.t.Errorf("the worker: %v", err)
		}
		done <- struct{}{}
	}()
	go func() { recorder.Run(ctx); done <- struct{}{} }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		<-done
		<-done
	}
	s.t.Cleanup(stop)
	select {
	case <-p.Started():
	case <-time.After(patience):
		s.t.Fatal("the worker does not start")
	}
	redistest.Eventually(s.t, "the worker has registered its destinations", func() bool {
		return !slices.ContainsFunc(destinations, func(d string) bool {
			_, err := s.client.Destination(s.t.Context(), d)
			return err != nil
		})
	})
	return stop
}

// enqueue accepts a job.
func (s *site) enqueue(spec *jobs.Spec) *jobs.Job {
	s.t.Helper()
	j, err := s.client.Enqueue(s.t.Context(), spec)
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// await waits until a job has the status.
func (s *site) await(id string, status jobs.Status) {
	s.t.Helper()
	redistest.Eventually(s.t, fmt.Sprintf("job %s is %s", id, status), func() bool {
		j, err := s.client.Get(s.t.Context(), id)
		return err == nil && j.Status == status
	})
}

// fakeRequest is what scripts of the fake API see.
type fakeRequest = http.Request

// limit reports a rate-limited call to the destination's breaker, or a key's.
func (s *site) limit(destination, key string, rules breaker.Options, hint time.Duration) {
	s.t.Helper()
	rules.Destination, rules.Instance = destination, "pub-1:7"
	b, err := breaker.New(s.t.Context(), s.rdb, rules)
	if err != nil {
		s.t.Fatal(err)
	}
	defer b.Close()
	permit, err := b.Key(key).Allow(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := permit.Report(s.t.Context(), breaker.RateLimited(hint)); err != nil {
		s.t.Fatal(err)
	}
}

// fill enqueues many jobs.
func (s *site) fill(n int, opts func(i int) *jobs.Spec) {
	s.t.Helper()
	for from := 0; from < n; from += 5000 {
		var specs []*jobs.Spec
		for i := from; i < min(from+5000, n); i++ {
			specs = append(specs, opts(i))
		}
		results, err := s.client.EnqueueMany(s.t.Context(), specs)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				s.t.Fatal(r.Err)
			}
		}
	}
}
