package oauth_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/base/seal"
	"github.com/tidegate/tidegate/internal/dest/oauth"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeoauth"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// rig is a token server, a Redis, a file of refresh tokens, and the log of all Sources.
type rig struct {
	fake  *fakeoauth.Fake
	redis *redistest.Server
	rdb   redis.UniversalClient
	file  string
	log   *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newRig(t *testing.T, o fakeoauth.Options) *rig {
	t.Helper()
	server := redistest.Start(t)
	r := &rig{
		fake: fakeoauth.New(o), redis: server, rdb: server.Client(t), log: &syncBuffer{},
		file: filepath.Join(t.TempDir(), "refresh.json"),
	}
	if _, err := r.fake.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.fake.Close() })
	return r
}

// write replaces the file of refresh tokens.
func (r *rig) write(t *testing.T, all map[string]string) {
	t.Helper()
	text, err := json.Marshal(all)
	if err := errors.Join(err, os.WriteFile(r.file+".next", text, 0o600), os.Rename(r.file+".next", r.file)); err != nil {
		t.Fatal(err)
	}
}

var keyA, keyB = key('a'), key('b')

func key(c byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{c}, 32)) }

// source is a Source as a process has one; change may change its options.
func (r *rig) source(t *testing.T, credentialsKey string, change ...func(*oauth.Options)) *oauth.Source {
	t.Helper()
	o := oauth.Options{
		Redis: r.rdb, Namespace: "tidegate", Destination: "art", TokenURL: r.fake.URL() + "/token",
		ClientID: fakeoauth.ClientID, ClientSecret: fakeoauth.ClientSecret, CheckEvery: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if _, err := os.Stat(r.file); err == nil {
		o.RefreshTokensFile = r.file
	}
	if credentialsKey != "" {
		sealer, err := seal.New(credentialsKey)
		if err != nil {
			t.Fatal(err)
		}
		o.Sealer = sealer
	}
	for _, c := range change {
		c(&o)
	}
	s, err := oauth.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func token(t *testing.T, s *oauth.Source, key string) string {
	t.Helper()
	got, err := s.Token(t.Context(), key)
	if err != nil {
		t.Fatalf("token of %q: %v", key, err)
	}
	return got
}

// valid reports whether the token server knows the token.
func (r *rig) valid(token string) bool {
	_, ok := r.fake.User(&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
	return ok
}

// The client's own token is the same for all keys and processes, and is fetched once.
func TestClientCredentials(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]fakeoauth.Options{"header": {}, "params": {InParams: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, o)
			a, b := r.source(t, keyA), r.source(t, keyA)
			first := token(t, a, "")
			if !r.valid(first) {
				t.Errorf("token %q is not valid", first)
			}
			for _, s := range []*oauth.Source{a, b} {
				for _, key := range []string{"alice", ""} {
					if got := token(t, s, key); got != first {
						t.Errorf("token %q of key %q, want %q", got, key, first)
					}
				}
			}
			if n := r.fake.Renewals(""); n != 1 {
				t.Errorf("%d tokens were fetched, want 1", n)
			}
		})
	}
}

// Without a key to share them, each process fetches tokens of its own.
func TestNothingIsSharedWithoutAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	a, b := r.source(t, ""), r.source(t, "")
	first := token(t, a, "")
	if first == token(t, b, "") || first != token(t, a, "") {
		t.Error("two processes share a token, or one fetches two")
	}
}

// Without a key, a source has the rotated refresh token of the one before it in the same process.
func TestTokensOfTheSourceBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
	own, err := oauth.NewOwn()
	if err != nil {
		t.Fatal(err)
	}
	same := func(o *oauth.Options) { o.Own = own }
	before := r.source(t, "", same)
	first := token(t, before, "alice")
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	after := r.source(t, "", same)
	if next := token(t, after, "alice"); next != first {
		t.Error("the next source has renewed a token that it could use")
	}
	if _, err := after.Renew(t.Context(), "alice", first); err != nil {
		t.Errorf("the refresh token was rotated, and is lost: %v", err)
	}
}

// Many calls of many processes renew a token once before it ends, and none gets one that
// has ended. Rotated refresh tokens outlive all processes.
func TestOneRenewal(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{Lifetime: 3 * time.Second})
	r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
	var sources []*oauth.Source
	for range 3 {
		sources = append(sources, r.source(t, keyA))
	}
	seen := map[string]bool{}
	var mu sync.Mutex
	var calls sync.WaitGroup
	end := time.Now().Add(7 * time.Second)
	for _, s := range sources {
		for range 8 {
			calls.Go(func() {
				for time.Now().Before(end) {
					asked := time.Now()
					got, err := s.Token(t.Context(), "alice")
					// A process that stands still has its token for longer than it may use it.
					if err != nil || !r.valid(got) && time.Since(asked) < 200*time.Millisecond {
						t.Errorf("token %q: %v", got, err)
						return
					}
					mu.Lock()
					seen[got] = true
					mu.Unlock()
				}
			})
		}
	}
	calls.Wait()
	if n := r.fake.Renewals("alice"); n != len(seen) || n < 2 {
		t.Errorf("%d renewals of %d tokens, want one for each, and at least 2", n, len(seen))
	}
	for _, s := range sources {
		_ = s.Close()
	}
	// A worker that starts now has in its file a refresh token that has ended.
	last := r.source(t, keyA)
	old := token(t, last, "alice")
	if got, err := last.Renew(t.Context(), "alice", old); err != nil || got == old || !r.valid(got) {
		t.Errorf("after a restart: %q, %v", got, err)
	}
}

// Refusals of one token by the API renew it once, wherever they come from.
func TestRefusedTokenIsRenewedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
	a, b := r.source(t, keyA), r.source(t, keyA)
	old := token(t, a, "alice")
	token(t, b, "alice")
	r.fake.RevokeAccess("alice")
	got := make([]string, 20)
	var calls sync.WaitGroup
	for i := range got {
		calls.Go(func() {
			s := []*oauth.Source{a, b}[i%2]
			var err error
			if got[i], err = s.Renew(t.Context(), "alice", old); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	for _, one := range got {
		if one != got[0] || !r.valid(one) {
			t.Errorf("tokens %q and %q, want one that is valid", got[0], one)
		}
	}
	if n := r.fake.Renewals("alice"); n != 2 {
		t.Errorf("%d renewals, want the first one and one more", n)
	}
}

// A refresh token that is refused is not tried again, by any process, until the file has
// another one.
func TestInvalidGrant(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	all := map[string]string{"alice": r.fake.Grant("alice"), "bob": r.fake.Grant("bob")}
	r.write(t, all)
	a, b := r.source(t, keyA), r.source(t, keyA)
	r.fake.Revoke("alice")
	for _, s := range []*oauth.Source{a, b, a, b, r.source(t, keyA)} {
		_, err := s.Token(t.Context(), "alice")
		if err == nil || isHeld(err) || !strings.Contains(err.Error(), `refuses the refresh token of key "alice" of destination art (answered 400 invalid_grant`) {
			t.Errorf("error %v", err)
		}
		token(t, s, "bob")
	}
	if n := r.fake.Calls(); n != 2 {
		t.Errorf("%d calls of the token server, want 1 for each key", n)
	}
	if keys := a.Changed(); len(keys) != 0 {
		t.Errorf("changed keys %q, want none", keys)
	}
	all["alice"] = r.fake.Grant("alice")
	r.write(t, all)
	redistest.Eventually(t, "the file is read again", func() bool {
		keys := a.Changed()
		return len(keys) == 1 && keys[0] == "alice"
	})
	if got := token(t, a, "alice"); !r.valid(got) || got != token(t, b, "alice") {
		t.Errorf("token %q is not valid, or not shared", got)
	}
}

// Only an error of the client itself holds all keys: servers have codes of their own for a
// refresh token that was revoked, and proxies answer with pages.
func TestRefusalsOfOneKey(t *testing.T) {
	t.Parallel()
	const later, ofUser, ofClient = jobs.Scope("later"), jobs.ScopeUser, jobs.ScopeGlobal
	fault := func(status int, code string) fakehttp.Fault {
		return fakehttp.Fault{Kind: fakehttp.Error, Status: status, Code: code}
	}
	for name, row := range map[string]struct {
		answer                fakehttp.Fault
		withFile, withoutFile jobs.Scope
	}{
		"GitHub's":        {fault(200, "bad_refresh_token"), ofUser, ofClient},
		"Slack's":         {fault(200, "invalid_refresh_token"), ofUser, ofClient},
		"invalid request": {fault(400, "invalid_request"), ofUser, ofClient},
		"client":          {fault(401, "invalid_client"), ofClient, ofClient},
		"GitHub's client": {fault(200, "incorrect_client_credentials"), ofClient, ofClient},
		"scope":           {fault(400, "invalid_scope"), ofClient, ofClient},
		"401 page":        {fakehttp.HTML(401), ofClient, ofClient},
		"400 page":        {fakehttp.HTML(400), later, ofClient},
		"403 page":        {fakehttp.HTML(403), later, later},
		"404 page":        {fakehttp.HTML(404), later, later},
		"407 of a proxy":  {fakehttp.HTML(407), later, later},
	} {
		for file, want := range map[bool]jobs.Scope{true: row.withFile, false: row.withoutFile} {
			t.Run(fmt.Sprintf("%s, file %v", name, file), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, fakeoauth.Options{})
				if file {
					r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
				}
				r.fake.SetFault(row.answer)
				_, err := r.source(t, keyA).Token(t.Context(), "alice")
				got := later
				if denied, ok := errors.AsType[*jobs.UnauthorizedError](err); ok && denied.RetryAfter == 0 {
					got = denied.Scope
				}
				if got != want || isHeld(err) != (want == later) {
					t.Errorf("scope %s, want %s: %v", got, want, err)
				}
			})
		}
	}
}

// A worker whose lease has ended does not hold a key that another one has renewed meanwhile.
func TestLateRefusalIsIgnored(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
	asked, renewed := make(chan struct{}), make(chan struct{})
	slow := r.source(t, keyA, func(o *oauth.Options) {
		o.Transport = transport(func(*http.Request) (*http.Response, error) {
			close(asked) // a second call would panic
			<-renewed
			return &http.Response{
				StatusCode: http.StatusBadRequest, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"error":"invalid_grant"}`)),
			}, nil
		})
	})
	got := make(chan string, 1)
	go func() {
		token, err := slow.Token(t.Context(), "alice")
		if err != nil {
			t.Errorf("after a renewal by another worker: %v", err)
		}
		got <- token
	}()
	<-asked
	const lease = "tidegate:{art}:oauth-lease:alice"
	if err := r.rdb.Del(t.Context(), lease).Err(); err != nil {
		t.Error(err)
	}
	want, err := r.source(t, keyA).Token(t.Context(), "alice")
	close(renewed)
	if token := <-got; err != nil || token != want {
		t.Errorf("token %q, want %q: %v", token, want, err)
	}
	if strings.Contains(r.log.String(), "refuses") {
		t.Errorf("the log has a refusal:\n%s", r.log)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The lease of a renewal outlasts both of its calls.
func TestTwoCallsHaveOneTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{InParams: true})
	var ends []time.Time
	calls := &http.Transport{}
	t.Cleanup(calls.CloseIdleConnections)
	s := r.source(t, keyA, func(o *oauth.Options) {
		o.Transport = transport(func(call *http.Request) (*http.Response, error) {
			end, _ := call.Context().Deadline()
			ends = append(ends, end)
			return calls.RoundTrip(call)
		})
	})
	token(t, s, "")
	if len(ends) != 2 || !ends[0].Equal(ends[1]) {
		t.Errorf("the calls end at %v, want two at the same time", ends)
	}
}

// What the token server repeats of the call's header is not kept.
func TestRepeatedSecret(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	s := r.source(t, keyA, func(o *oauth.Options) {
		o.Transport = transport(func(call *http.Request) (*http.Response, error) {
			text, err := json.Marshal(map[string]string{"error": "invalid_scope", "error_description": "got " + call.Header.Get("Authorization")})
			return &http.Response{
				StatusCode: http.StatusBadRequest, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(bytes.NewReader(text)),
			}, err
		})
	})
	_, err := s.Token(t.Context(), "")
	if err == nil || !strings.Contains(err.Error(), "got Basic [redacted]") {
		t.Errorf("error %v", err)
	}
}

// A token server that takes longer than its tokens live delays calls, and no refresh token is
// lost.
func TestTokenEndsBeforeItArrives(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{Lifetime: 2 * time.Second})
	r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
	r.fake.SetFault(fakehttp.Slowly(1500 * time.Millisecond))
	s := r.source(t, keyA)
	_, err := s.Token(t.Context(), "alice")
	if !isHeld(err) || !strings.Contains(err.Error(), "ended before it arrived") {
		t.Errorf("error %v", err)
	}
	if _, err := s.Token(t.Context(), "alice"); !isHeld(err) || r.fake.Calls() != 1 {
		t.Errorf("%d calls of the token server, want 1: %v", r.fake.Calls(), err)
	}
	if refresh, err := r.rdb.HGet(t.Context(), "tidegate:{art}:oauth:alice", "refresh").Result(); err != nil || refresh == "" {
		t.Errorf("the rotated refresh token is lost: %v", err)
	}
}

// A token server that fails delays calls, and is not asked for each of them.
func TestTokenServerFails(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("refresh-alice-1 ", 3)
	for name, fault := range map[string]fakehttp.Fault{
		"limited": {Kind: fakehttp.Status, Status: 429, RetryAfter: "60"},
		"dropped": fakehttp.Dropping(),
		"broken":  {Kind: fakehttp.Status, Status: 503, Body: secret + fakeoauth.ClientSecret, ContentType: "application/json"},
		"HTML":    {Kind: fakehttp.Status, Status: 200, Body: "<html>" + secret, ContentType: "text/html"},
		"down":    {Kind: fakehttp.Error, Status: 400, Code: "temporarily_unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fakeoauth.Options{Static: true})
			r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
			a, b := r.source(t, keyA), r.source(t, keyA)
			r.fake.SetFault(fault)
			for range 5 {
				for _, s := range []*oauth.Source{a, b} {
					_, err := s.Token(t.Context(), "alice")
					if !isHeld(err) || strings.Contains(err.Error(), "refresh-alice") {
						t.Errorf("error %v", err)
					}
				}
			}
			if n := r.fake.Calls(); n > 3 {
				t.Errorf("%d calls of a token server that fails", n)
			}
			if name != "limited" {
				r.fake.LiftFaults()
				redistest.Eventually(t, "a token after the failure", func() bool {
					_, err := a.Token(t.Context(), "alice")
					return err == nil
				})
			}
			for _, hidden := range []string{"refresh-alice", fakeoauth.ClientSecret, "access-alice"} {
				if strings.Contains(r.log.String(), hidden) {
					t.Errorf("the log has %s:\n%s", hidden, r.log)
				}
			}
		})
	}
}

// A call with less time than a renewal takes is deferred by itself: calls with more get the token.
func TestShortCallHoldsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	calls, answer := &http.Transport{}, make(chan struct{})
	t.Cleanup(calls.CloseIdleConnections)
	s := r.source(t, keyA, func(o *oauth.Options) {
		o.Transport = transport(func(call *http.Request) (*http.Response, error) {
			<-answer
			return calls.RoundTrip(call)
		})
	})
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if got, err := s.Token(short, ""); !isDeferred(err) {
		t.Errorf("token %q: %v", got, err)
	}
	close(answer)
	token(t, s, "")
}

// A token that still holds outlives a token server that is down.
func TestTokenOutlivesFailedRenewal(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{Lifetime: 10 * time.Second})
	s := r.source(t, keyA)
	first := token(t, s, "")
	r.fake.SetFault(fakehttp.WithStatus(http.StatusServiceUnavailable))
	redistest.Eventually(t, "a renewal ahead of the end", func() bool {
		if got, err := s.Token(t.Context(), ""); err != nil || got != first {
			t.Errorf("token %q: %v", got, err)
		}
		return r.fake.Calls() > 1
	})
	if got := token(t, s, ""); got != first {
		t.Errorf("token %q, want %q", got, first)
	}
}

// What Redis holds gives no token away, and belongs to one key of one destination.
func TestTokensAreEncrypted(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	r.write(t, map[string]string{"alice": r.fake.Grant("alice"), "bob": r.fake.Grant("bob")})
	s := r.source(t, keyA)
	token(t, s, "alice")
	token(t, s, "bob")
	names, err := r.rdb.Keys(t.Context(), "*").Result()
	if err != nil || len(names) != 2 {
		t.Fatalf("keys %q, %v", names, err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "tidegate:{art}:oauth:") {
			t.Errorf("key %s", name)
		}
		all, err := r.rdb.HGetAll(t.Context(), name).Result()
		if err != nil || all["tokens"] == "" {
			t.Fatal(all, err)
		}
		for field, value := range all {
			if strings.Contains(value, "access-") || strings.Contains(value, "refresh-") {
				t.Errorf("%s %s is %q", name, field, value)
			}
		}
	}
	// Bob's tokens in the place of Alice's are not used.
	bob, err := r.rdb.HGet(t.Context(), "tidegate:{art}:oauth:bob", "tokens").Result()
	if err == nil {
		err = r.rdb.HSet(t.Context(), "tidegate:{art}:oauth:alice", "tokens", bob).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.source(t, keyA).Token(t.Context(), "alice"); err == nil || !strings.Contains(err.Error(), "cannot be decrypted") {
		t.Errorf("token %q, %v", got, err)
	}
}

// CREDENTIALS_KEY is replaced in two steps; a process with the wrong one destroys nothing.
func TestKeyIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
	first := token(t, r.source(t, keyA), "alice")
	if got, err := r.source(t, keyB).Token(t.Context(), "alice"); !isDeferred(err) || !strings.Contains(err.Error(), "CREDENTIALS_KEY") {
		t.Errorf("token %q, %v with another key", got, err)
	}
	both := r.source(t, keyB+","+keyA)
	if got := token(t, both, "alice"); got != first {
		t.Errorf("token %q, want %q", got, first)
	}
	second, err := both.Renew(t.Context(), "alice", first)
	if err != nil {
		t.Fatal(err)
	}
	if got := token(t, r.source(t, keyB), "alice"); got != second {
		t.Errorf("token %q, want %q", got, second)
	}
}

// The client's own token is only a cache: a process that cannot decrypt it replaces it.
func TestClientTokenOfAnotherKeyIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	old := r.source(t, keyA)
	first := token(t, old, "")
	a, b := r.source(t, keyB), r.source(t, keyB)
	second, err := a.Token(ctx, "")
	if err != nil || second == first || !r.valid(second) {
		t.Fatalf("token %q, %v with another key", second, err)
	}
	if got, err := b.Token(ctx, ""); err != nil || got != second {
		t.Errorf("token %q, %v, want %q", got, err, second)
	}
	if got, err := old.Renew(ctx, "", first); err != nil || got == first || got == second || !r.valid(got) {
		t.Errorf("token %q, %v in place of a refused one", got, err)
	}
	if n := r.fake.Renewals(""); n != 3 {
		t.Errorf("%d tokens were fetched, want 3", n)
	}
	if n := strings.Count(r.log.String(), "cannot be decrypted"); n != 2 {
		t.Errorf("%d log lines of records that cannot be decrypted, want 2:\n%s", n, r.log)
	}
}

// isDeferred reports whether an error concerns this process's call only: other workers make theirs.
func isDeferred(err error) bool {
	_, denied := errors.AsType[*jobs.UnauthorizedError](err)
	return errors.Is(err, breakerhttp.ErrNotSent) && !denied
}

// isHeld reports whether an error makes the jobs wait until the token server is asked again.
func isHeld(err error) bool {
	denied, ok := errors.AsType[*jobs.UnauthorizedError](err)
	return ok && denied.RetryAfter > 0 && !denied.Permanent
}

// A token endpoint that is down is called for one key at a time, and the others share the answer.
func TestDeadEndpointIsAskedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	var calls atomic.Int32
	var down atomic.Bool
	down.Store(true)
	all := map[string]string{}
	for i := range 50 {
		all[fmt.Sprint("user", i)] = r.fake.Grant(fmt.Sprint("user", i))
	}
	r.write(t, all)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s := r.source(t, keyA, func(o *oauth.Options) {
		o.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
			calls.Add(1)
			if down.Load() {
				return nil, errors.New("connection refused")
			}
			return transport.RoundTrip(req)
		})
	})
	for key := range all {
		_, err := s.Token(t.Context(), key)
		denied, held := errors.AsType[*jobs.UnauthorizedError](err)
		if !held || denied.RetryAfter <= 0 || denied.Permanent || !strings.Contains(err.Error(), strconv.Quote(key)) || !strings.Contains(err.Error(), "connection refused") {
			t.Fatalf("key %s: %v", key, err)
		}
		if errors.Is(err, breakerhttp.ErrNotSent) {
			t.Fatalf("with a key of the fleet all workers wait: %v", err)
		}
	}
	// One more for each pause that has ended on a busy machine.
	if n := calls.Load(); n > 10 {
		t.Errorf("%d calls for 50 keys, want 1", n)
	}
	down.Store(false)
	for key := range all {
		redistest.Eventually(t, "a token of "+key, func() bool { _, err := s.Token(t.Context(), key); return err == nil })
	}
	_, err := r.source(t, "", func(o *oauth.Options) {
		o.Transport = roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	}).Token(t.Context(), "user1")
	if !errors.Is(err, breakerhttp.ErrNotSent) {
		t.Errorf("without a key of the fleet only this worker waits: %v", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// The renewal of a worker that is killed is taken over when its lease ends.
func TestLeaseOfAKilledWorkerEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeoauth.Options{})
	r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
	const held = 500 * time.Millisecond
	if err := r.rdb.Set(t.Context(), "tidegate:{art}:oauth-lease:alice", "killed", held).Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if got := token(t, r.source(t, keyA), "alice"); !r.valid(got) || time.Since(began) < held/2 {
		t.Errorf("token %q after %s", got, time.Since(began))
	}
	if n := r.fake.Renewals("alice"); n != 1 {
		t.Errorf("%d renewals, want 1", n)
	}
}
