package publisher_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

func newHTTP(t *testing.T, o httpdest.Options) *httpdest.Destination {
	t.Helper()
	h, err := httpdest.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// tokensFile is a file of tokens under test.
type tokensFile struct {
	*httpdest.TokensFile
	write func(content string)
}

// openTokens opens a new file, which is looked at for each token that is asked for.
func openTokens(t *testing.T, content string) (f tokensFile) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.json")
	f.write = func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Error(err)
		}
	}
	f.write(content)
	var err error
	if f.TokensFile, err = httpdest.OpenTokens(path, httpdest.TokensFileOptions{CheckEvery: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	return f
}

// rulesFunc is a function that implements Rules.
type rulesFunc func(httpdest.Answered) (httpdest.Decision, bool)

func (f rulesFunc) Decide(a httpdest.Answered) (httpdest.Decision, bool) { return f(a) }

// A key whose token is refused waits; its jobs run when the file has another one, long before the
// cooldown ends.
func TestChangedFileEndsTheWait(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := newGuarded(t, "right")
	file := openTokens(t, `{"alice":"old","bob":"right"}`)
	h := newHTTP(t, httpdest.Options{URL: api.URL, Tokens: file.TokensFile})
	b.runHandler(b.options(), h, rules(time.Hour))
	held := b.enqueue(jobs.Key("alice")).ID
	if e := b.result(held); e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonCredentials {
		t.Fatalf("%s, %s; want rescheduled, credentials", e.Result, e.Reason)
	}
	if e := b.result(b.enqueue(jobs.Key("bob")).ID); e.Result != publisher.Completed {
		t.Errorf("bob's job is %s", e.Result)
	}
	file.write(`{"alice":"right","bob":"right"}`)
	if e := b.result(held); e.Result != publisher.Completed || e.Job.Attempt != 0 {
		t.Errorf("%s after %d retries, want completed", e.Result, e.Job.Attempt)
	}
	if got, want := api.seen(), []string{"Bearer old", "Bearer right", "Bearer right"}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

// source is a TokenSource whose tokens are listed: the first one, and what it is renewed to.
type source struct {
	tokens  []string
	err     error // of Token
	renewal error
	perKey  bool
}

func (s *source) Token(context.Context, string) (string, error) { return s.tokens[0], s.err }

func (s *source) Renew(_ context.Context, _, refused string) (string, error) {
	i := slices.Index(s.tokens, refused)
	return s.tokens[min(i+1, len(s.tokens)-1)], s.renewal
}

func (s *source) PerKey() bool      { return s.perKey }
func (s *source) Changed() []string { return nil }

// A key that gets no token any more waits without a call, and its breaker says why.
func TestKeyWithoutConsentWaits(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := newGuarded(t, "right")
	const why = "the refresh token is refused"
	h := newHTTP(t, httpdest.Options{URL: api.URL, TokenSource: &source{
		tokens: []string{""}, err: &jobs.UnauthorizedError{Err: errors.New(why), Scope: jobs.ScopeUser, Permanent: true}, perKey: true,
	}})
	b.runHandler(b.options(), h, rules(time.Hour))
	e := b.result(b.enqueue(jobs.Key("alice")).ID)
	if e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonCredentials || e.Called || e.Job.Attempt != 0 {
		t.Errorf("%s, %s, called %t; want rescheduled, credentials, without a call", e.Result, e.Reason, e.Called)
	}
	s, err := breaker.DefaultNamespace.Get(t.Context(), b.rdb, b.dest+"/alice")
	if err != nil || s.State != breaker.Open || s.Cause != breaker.CauseCredentials || s.Reason != why || !s.Permanent {
		t.Errorf("breaker %+v, %v", s, err)
	}
	if calls := api.seen(); len(calls) != 0 {
		t.Errorf("calls %q, want none", calls)
	}
}

// A host that one key names and that does not exist does not stop the jobs of other keys.
func TestHTTPUnreachableHostOfOneKey(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{
		URL: "http://{key}.example.com", KeyPattern: ".*",
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if strings.HasPrefix(addr, "gone.") {
				return nil, &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}
			}
			return (&net.Dialer{}).DialContext(ctx, network, a.Listener.Addr().String())
		}},
	})
	gone := b.enqueue(jobs.Key("gone"))
	b.run(b.options(), h.Publish)
	e := b.result(gone.ID)
	if unsent, ok := errors.AsType[*jobs.UnreachableError](e.Err); e.Reason != publisher.ReasonUnreachable || !ok || !unsent.OfKey || !strings.Contains(fmt.Sprint(e.Err), "the call was not sent: ") {
		t.Errorf("%+v", e)
	}
	here := b.enqueue(jobs.Key("here"))
	if e := b.result(here.ID); e.Result != publisher.Completed || a.Only(t).Host != "here.example.com" {
		t.Errorf("%+v, called %s", e, a.Only(t).Host)
	}
}

// An API that repeats the whole call, as it is and encoded, gets nothing that is secret of
// the configuration into a job's record, an event or an answer that alerts quote.
func TestHTTPKeepsNothingSecretOfTheConfiguration(t *testing.T) {
	t.Parallel()
	const (
		inPath, inKey, inSig = "B0123456789abcdefXYZ", "k3y-9f2a", "c2ln/bmF0dXJl"
		own, words, auth     = "0wn-cr3dential", "accepted-by-nobody", "Basic dTpodW50ZXIyMg=="
	)
	basic := base64.StdEncoding.EncodeToString
	for _, status := range []int{http.StatusInternalServerError, http.StatusTooManyRequests} {
		b := newFixture(t)
		a := fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "no %s with %s, %s and %s\n", r.RequestURI, r.Header.Get("X-Key"), r.Header.Get("X-Words"), r.Header.Get("Authorization"))
			_, _ = fmt.Fprintf(w, "%q %s %s", r.URL.Query()["sig"], basic([]byte(own)), base64.RawURLEncoding.EncodeToString([]byte(inKey)))
		})
		h := newHTTP(t, httpdest.Options{
			URL:    a.URL + "/hooks/" + inPath + "?key=" + inKey + "&sig=c2ln%2fbmF0dXJl&v=1",
			Header: http.Header{"X-Key": {own}, "X-Words": {words}, "Authorization": {auth}, "Accept": {"text/plain"}},
		})
		o := b.options()
		answers := make(chan publisher.Answer, 10)
		o.Observe(publisher.Observer{OnAnswer: func(x publisher.Answer) { answers <- x }})
		job := b.enqueue()
		b.run(o, h.Publish, publisher.Breaker(breaker.Options{FailureThreshold: 9}))
		e := b.result(job.ID)
		got := b.get(job.ID)
		if a.Only(t).Header.Get("X-Key") != own {
			t.Fatalf("called with %v", a.Only(t).Header)
		}
		shown := map[string]string{
			"the record": fmt.Sprint(b.rdb.HGetAll(context.Background(), store.TaskKey(store.DefaultNamespace.Queue(b.dest, store.Default), job.ID)).Val()),
			"the event":  fmt.Sprintf("%+v %v", e.Job.Response, e.Err),
		}
		if status == http.StatusTooManyRequests {
			shown["the answer for alerts"] = fmt.Sprintf("%+v", <-answers)
		}
		for where, text := range shown {
			for _, hidden := range []string{inPath, inKey, inSig, "c2ln%2fbmF0dXJl", own, words, auth, auth[6:], "hunter22", basic([]byte(own)), "azN5LTlmMmE"} {
				if strings.Contains(text, hidden) {
					t.Errorf("%d: %s shows %s: %s", status, where, hidden, text)
				}
			}
		}
		want := "no /hooks/[redacted]?key=[redacted]&sig=[redacted]&v=1 with [redacted], [redacted] and [redacted]\n" + `["[redacted]"] [redacted] [redacted]`
		if got.Response == nil || got.Response.Body != want {
			t.Errorf("%d: kept %+v, want %s", status, got.Response, want)
		}
	}
}

// dripping answers 429 with a Retry-After and a body that never ends by itself: one byte
// each 20 ms.
func dripping(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "600")
	w.WriteHeader(http.StatusTooManyRequests)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for http.NewResponseController(w).Flush() == nil {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			_, _ = io.WriteString(w, "x")
		}
	}
}

// The breaker opens when the header of a 429 has arrived, not when its body has. The
// body is waited for a while, not for the whole timeout, and what has come is kept.
func TestHTTPRateLimitIsReportedAtTheHeader(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	h := newHTTP(t, httpdest.Options{URL: fakehttp.Record(t, dripping).URL})
	transitions := make(chan breaker.Event, 10)
	answers := make(chan publisher.Answer, 10)
	o := b.options()
	o.Observe(publisher.Observer{OnAnswer: func(x publisher.Answer) { answers <- x }})
	b.run(o, h.Publish, publisher.Concurrency(1), publisher.Timeout(time.Minute),
		publisher.Breaker(breaker.Options{OnEvent: func(e breaker.Event) { transitions <- e }}))
	job := b.enqueue()

	select {
	case e := <-transitions:
		if e.To != breaker.Open || e.Cause != breaker.CauseHint {
			t.Errorf("the breaker went to %s because of %s, want OPEN because of its hint", e.To, e.Cause)
		}
	case <-time.After(time.Minute):
		t.Error("the breaker is not open a minute after the header of the 429")
	}
	if x := <-answers; x.Status != http.StatusTooManyRequests || x.RetryAfter != 10*time.Minute || x.Body != "" {
		t.Errorf("observers were told of %+v", x)
	}
	e := b.result(job.ID)
	if e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonRateLimited || e.Outcome != publisher.OutcomeRateLimited {
		t.Errorf("the job: %s (%s), its call %s", e.Result, e.Reason, e.Outcome)
	}
	if got := b.get(job.ID); got.Response == nil || got.Response.Status != http.StatusTooManyRequests || !strings.HasPrefix(got.Response.Body, "xx") {
		t.Errorf("kept of the answer: %+v", got.Response)
	}
	if s := b.breaker(); s.Wasted != 1 || len(answers) != 0 || len(transitions) != 0 {
		t.Errorf("%d wasted calls, and %d answers and %d transitions more were told: one report is wanted", s.Wasted, len(answers), len(transitions))
	}
}

// guarded is an API that takes calls with one token.
type guarded struct {
	*httptest.Server
	mu    sync.Mutex
	token string
	calls []string // tokens
}

func newGuarded(t *testing.T, token string) *guarded {
	t.Helper()
	g := &guarded{token: token}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.calls = append(g.calls, r.Header.Get("Authorization"))
		if r.Header.Get("Authorization") != "Bearer "+g.token {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *guarded) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}
