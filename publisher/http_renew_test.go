package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

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

// A refused token is renewed once, and the call is repeated once.
func TestRefusedTokenIsRenewed(t *testing.T) {
	t.Parallel()
	revoked := &jobs.UnauthorizedError{Err: errors.New("the refresh token is refused"), Permanent: true}
	for _, row := range []struct {
		name   string
		source *source
		calls  []string
		denied bool
		err    string
	}{
		{"another token", &source{tokens: []string{"old", "right"}}, []string{"Bearer old", "Bearer right"}, false, ""},
		{"another one that is refused", &source{tokens: []string{"old", "wrong", "right"}}, []string{"Bearer old", "Bearer wrong"}, true, "answered 401 Unauthorized"},
		{"no other token", &source{tokens: []string{"old"}}, []string{"Bearer old"}, true, "answered 401 Unauthorized"},
		{"renewal refused", &source{tokens: []string{"old"}, renewal: revoked}, []string{"Bearer old"}, true, "the refresh token is refused"},
		{"no token", &source{tokens: []string{""}, err: revoked}, nil, true, "the refresh token is refused"},
		{"token server down", &source{tokens: []string{""}, err: fmt.Errorf("down: %w", breakerhttp.ErrNotSent)}, nil, false, "down: request not sent"},
		{"unknown key", &source{tokens: []string{""}, err: errors.New("no token")}, nil, false, "no token, then: tidegate retry 0199"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			api := newGuarded(t, "right")
			h := newHTTP(t, publisher.HTTPOptions{URL: api.URL, TokenSource: row.source})
			job := keyed("alice")
			job.ID = "0199"
			err := h.Publish(t.Context(), job)
			text := ""
			if err != nil {
				text = err.Error()
			}
			_, denied := errors.AsType[*jobs.UnauthorizedError](err)
			if got := api.seen(); !slices.Equal(got, row.calls) || denied != row.denied || text != row.err {
				t.Errorf("calls %q, refused %t, error %q; want %q, %t, %q", got, denied, text, row.calls, row.denied, row.err)
			}
		})
	}
}

// A job never gets a key, so that a retry helps none that lacks one.
func TestNoRetryIsAdvisedWithoutAKey(t *testing.T) {
	t.Parallel()
	h := newHTTP(t, publisher.HTTPOptions{URL: "http://127.0.0.1:1", TokenSource: &source{tokens: []string{""}, err: errors.New("enqueue it anew, with a key")}})
	if err := h.Publish(t.Context(), keyed("")); err == nil || err.Error() != "enqueue it anew, with a key" {
		t.Errorf("error %v", err)
	}
}

// The answer to the second call may name both tokens.
func TestARefusedTokenIsSecretInTheNextAnswer(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer the-new-one" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = fmt.Fprint(w, "the-new-one replaces the-old-one")
	}))
	defer api.Close()
	job := keyed("alice")
	h := newHTTP(t, publisher.HTTPOptions{URL: api.URL, TokenSource: &source{tokens: []string{"the-old-one", "the-new-one"}}})
	if err := h.Publish(t.Context(), job); err != nil || job.Response.Body != "[redacted] replaces [redacted]" {
		t.Errorf("%v, kept %+v", err, job.Response)
	}
}

// A key whose token is refused waits; its jobs run when the file has another one, long before the
// cooldown ends.
func TestChangedFileEndsTheWait(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := newGuarded(t, "right")
	file := openTokens(t, `{"alice":"old","bob":"right"}`)
	h := newHTTP(t, publisher.HTTPOptions{URL: api.URL, Tokens: file.TokensFile})
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

// A key that gets no token any more waits without a call, and its breaker says why.
func TestKeyWithoutConsentWaits(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := newGuarded(t, "right")
	const why = "the refresh token is refused"
	h := newHTTP(t, publisher.HTTPOptions{URL: api.URL, TokenSource: &source{
		tokens: []string{""}, err: &jobs.UnauthorizedError{Err: errors.New(why), Scope: jobs.ScopeUser, Permanent: true}, perKey: true,
	}})
	b.runHandler(b.options(), h, rules(time.Hour))
	e := b.result(b.enqueue(jobs.Key("alice")).ID)
	if e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonCredentials || e.Called || e.Job.Attempt != 0 {
		t.Errorf("%s, %s, called %t; want rescheduled, credentials, without a call", e.Result, e.Reason, e.Called)
	}
	s, err := breaker.Get(t.Context(), b.rdb, b.dest+"/alice")
	if err != nil || s.State != breaker.Open || s.Cause != breaker.CauseCredentials || s.Reason != why || !s.Permanent {
		t.Errorf("breaker %+v, %v", s, err)
	}
	if calls := api.seen(); len(calls) != 0 {
		t.Errorf("calls %q, want none", calls)
	}
}

// A file that has changed a moment ago is read before a key's token counts as refused.
func TestChangedFileRenewsAToken(t *testing.T) {
	t.Parallel()
	api := newGuarded(t, "right")
	file := openTokens(t, `{"alice":"old"}`)
	file.open(time.Hour)
	h := newHTTP(t, publisher.HTTPOptions{URL: api.URL, Tokens: file.TokensFile})
	file.write(`{"alice":"right"}`)
	if err := h.Publish(t.Context(), keyed("alice")); err != nil {
		t.Error(err)
	}
	if got, want := api.seen(), []string{"Bearer old", "Bearer right"}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}
