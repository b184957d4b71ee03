package httpdest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
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

// newGuarded is an API that takes calls with one token.
func newGuarded(t *testing.T, token string) *fakehttp.Recorder {
	t.Helper()
	return fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
}

// authorizations are the tokens of calls.
func authorizations(a *fakehttp.Recorder) (out []string) {
	for _, r := range a.Requests() {
		out = append(out, r.Header.Get("Authorization"))
	}
	return out
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
			h := newHTTP(t, httpdest.Options{URL: api.URL, TokenSource: row.source})
			job := keyed("alice")
			job.ID = "0199"
			err := h.Publish(t.Context(), job)
			text := ""
			if err != nil {
				text = err.Error()
			}
			_, denied := errors.AsType[*jobs.UnauthorizedError](err)
			if got := authorizations(api); !slices.Equal(got, row.calls) || denied != row.denied || text != row.err {
				t.Errorf("calls %q, refused %t, error %q; want %q, %t, %q", got, denied, text, row.calls, row.denied, row.err)
			}
		})
	}
}

// A job never gets a key, so that a retry helps none that lacks one.
func TestNoRetryIsAdvisedWithoutAKey(t *testing.T) {
	t.Parallel()
	h := newHTTP(t, httpdest.Options{URL: "http://127.0.0.1:1", TokenSource: &source{tokens: []string{""}, err: errors.New("enqueue it anew, with a key")}})
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
	h := newHTTP(t, httpdest.Options{URL: api.URL, TokenSource: &source{tokens: []string{"the-old-one", "the-new-one"}}})
	if err := h.Publish(t.Context(), job); err != nil || job.Response.Body != "[redacted] replaces [redacted]" {
		t.Errorf("%v, kept %+v", err, job.Response)
	}
}

// A file that has changed a moment ago is read before a key's token counts as refused.
func TestChangedFileRenewsAToken(t *testing.T) {
	t.Parallel()
	api := newGuarded(t, "right")
	file := openTokens(t, `{"alice":"old"}`)
	file.open(time.Hour)
	h := newHTTP(t, httpdest.Options{URL: api.URL, Tokens: file.TokensFile})
	file.write(`{"alice":"right"}`)
	if err := h.Publish(t.Context(), keyed("alice")); err != nil {
		t.Error(err)
	}
	if got, want := authorizations(api), []string{"Bearer old", "Bearer right"}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}
