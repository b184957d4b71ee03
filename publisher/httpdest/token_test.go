package httpdest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// perKey are tokens of which one is a beginning of another, one has to be written
// differently in places, and one cannot be sent.
var perKey = httpdest.TokensFunc(func(key string) (string, bool) {
	token, ok := map[string]string{"alice": "al1ce", "bob": `b/"ob&`, "carol": "al1ce-and-more", "break": "br\neak", "empty": ""}[key]
	return token, ok
})

func keyed(key string) *jobs.Job {
	job := aJob(jobs.Request{})
	job.Destination, job.Key = "shop", key
	return job
}

func TestHTTPTokenOfTheKey(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, key, token string
		tokens           httpdest.Tokens
		want             string
	}{
		{"a key with a token", "alice", "plain", perKey, "Bearer al1ce"},
		{"another key", "bob", "plain", perKey, `Bearer b/"ob&`},
		{"no key", "", "plain", perKey, "Bearer plain"},
		{"no key, and no token for that", "", "", perKey, ""},
		{"no tokens by key", "alice", "plain", nil, "Bearer plain"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := fakehttp.Record(t, nil)
			h := newHTTP(t, httpdest.Options{URL: a.URL, AuthToken: row.token, Tokens: row.tokens})
			if err := h.Publish(t.Context(), keyed(row.key)); err != nil {
				t.Fatal(err)
			}
			if got := a.Only(t).Header.Get("Authorization"); got != row.want {
				t.Errorf("Authorization %q, want %q", got, row.want)
			}
		})
	}
}

// An API that repeats the token of a call gets no token into a job's record.
func TestHTTPRedactsTheTokenOfTheCall(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ key, answer, want string }{
		{"alice", "al1ce said al1ce", "[redacted] said [redacted]"},
		{"bob", `b/"ob& b/\"ob& b\/\"ob\u0026 b%2F%22ob%26 b/&#34;ob&amp;`, "[redacted] [redacted] [redacted] [redacted] [redacted]"},
		{"carol", "al1ce-and-more", "[redacted]"},
		{"carol", "plain and plain-2", "[redacted] and [redacted]"},
		{"", "plain-2 plain", "[redacted] [redacted]"},
		{"alice", "pl\x00ain al\x1b1ce", "[redacted] [redacted]"},
		{"alice", "YWwxY2U= YWwxY2U cGxhaW4=", "[redacted] [redacted] [redacted]"},
	} {
		a := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, row.answer) })
		h := newHTTP(t, httpdest.Options{URL: a.URL, AuthToken: "plain", Header: http.Header{"X-Token": {"plain-2"}}, Tokens: perKey})
		job := keyed(row.key)
		if err := h.Publish(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if job.Response.Body != row.want {
			t.Errorf("of %q is kept %q, want %q", row.answer, job.Response.Body, row.want)
		}
	}

	garbage := rawServer(t, func(c net.Conn, _, _ int) bool {
		_, _ = io.WriteString(c, "no, al1ce!\r\n\r\n")
		return false
	})
	err := newHTTP(t, httpdest.Options{URL: garbage, Tokens: perKey}).Publish(t.Context(), keyed("alice"))
	if text := fmt.Sprintf("%+v", err); !strings.HasPrefix(text, "call failed: ") || strings.Contains(text, "al1ce") {
		t.Errorf("error %q", text)
	}
}

// A call keeps the token that it was made with: the answer may come after the file
// was read again.
func TestHTTPTokenChangesDuringACall(t *testing.T) {
	t.Parallel()
	file := openTokens(t, `{"alice":"old-token"}`)
	a := fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer old-token" {
			file.write(`{"alice":"new-token"}`)
			file.want("alice", "new-token")
		}
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	})
	h := newHTTP(t, httpdest.Options{URL: a.URL, Tokens: file.TokensFile})
	for range 2 {
		job := keyed("alice")
		if err := h.Publish(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if job.Response.Body != "Bearer [redacted]" {
			t.Errorf("kept %q", job.Response.Body)
		}
	}
	reqs := a.Requests()
	if first, second := reqs[0].Header.Get("Authorization"), reqs[1].Header.Get("Authorization"); first != "Bearer old-token" || second != "Bearer new-token" {
		t.Errorf("called with %q, then %q", first, second)
	}
}

// Without a token that can be sent there is no call, and no retry would help.
func TestHTTPKeyWithoutToken(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{URL: a.URL, AuthToken: "plain", Tokens: perKey})
	for key, want := range map[string]string{
		"dave":  `no token for key "dave" of destination shop: add it, then: tidegate retry 0199`,
		"empty": `no token for key "empty" of destination shop: add it, then: tidegate retry 0199`,
		"break": `the token for key "break" of destination shop holds a space, a line break or a character that is not ASCII: give the token alone, on one line, then: tidegate retry 0199`,
	} {
		job := keyed(key)
		job.ID = "0199"
		wantPermanent(t, key, h.Publish(t.Context(), job), want)
	}
	if n := len(a.Requests()); n != 0 {
		t.Errorf("%d calls, want none", n)
	}
}

func TestHTTPUnauthorized(t *testing.T) {
	t.Parallel()
	own := http.Header{"Authorization": {"Basic dXNlcg=="}}
	for _, row := range []struct {
		name string
		o    httpdest.Options
		job  *jobs.Job
		want jobs.Scope // "none": not unauthorized
	}{
		{"the key's token", httpdest.Options{Tokens: perKey}, keyed("alice"), jobs.ScopeUser},
		{"the destination's token", httpdest.Options{AuthToken: "t0ken"}, keyed("alice"), jobs.ScopeGlobal},
		{"the destination's header", httpdest.Options{Header: own}, keyed(""), jobs.ScopeGlobal},
		{"no credentials", httpdest.Options{}, keyed("alice"), "none"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
			row.o.URL = a.URL
			err := newHTTP(t, row.o).Publish(t.Context(), row.job)
			got := jobs.Scope("none")
			if denied, ok := errors.AsType[*jobs.UnauthorizedError](err); ok {
				got = denied.Scope
			}
			if got != row.want || !strings.Contains(err.Error(), "answered 401 Unauthorized") {
				t.Errorf("%v: scope %q, want %q", err, got, row.want)
			}
		})
	}
}
