// Package oauth gets access tokens of OAuth 2.0 for a destination's calls: by client
// credentials, or by a refresh token of each key. One process of the fleet renews a token, and
// the others take it from Redis, where tokens are encrypted.
package oauth

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/oauth2"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/base/seal"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// Options describe the tokens of a destination.
type Options struct {
	// Redis has the tokens and the leases of their renewals.
	Redis       redis.UniversalClient
	Namespace   store.Namespace
	Destination string
	// TokenURL is the token endpoint.
	TokenURL               string
	ClientID, ClientSecret string
	// Scopes are asked for with client credentials.
	Scopes []string
	// RefreshTokensFile, unless empty, is a JSON object from key to refresh token, which is
	// read again when it changes. Without it the source gets tokens with client credentials.
	RefreshTokensFile string
	// Sealer of the fleet; nil: each process gets its own tokens, which sources with the same Own share.
	Sealer *seal.Sealer
	Own    *Own // nil: one of this source alone
	Logger *slog.Logger
	// Timeout of a renewal: one call to the token endpoint, or two. Default 10 s.
	Timeout time.Duration
	// CheckEvery is the least interval of checks whether the file has changed. Default 1 s.
	CheckEvery time.Duration
	// Transport of the calls to the token endpoint. Default: one that follows the proxies of
	// the environment.
	Transport http.RoundTripper
}

const (
	// leaseMargin is how much longer than Timeout the lease of a renewal is.
	leaseMargin = 2 * time.Second
	// keep is how long Redis keeps unused tokens of the fleet, keepOwn how long it keeps unused
	// tokens of one process.
	keep, keepOwn = 366 * 24 * time.Hour, 7 * 24 * time.Hour
	// replacedFor is how long processes that still have the previous refresh token of the
	// file use what the new one has given: so long a changed Secret takes to reach all.
	replacedFor = 10 * time.Minute
	// pollMin and pollMax bound the pause between looks at the renewal of another process.
	pollMin, pollMax = 10 * time.Millisecond, 250 * time.Millisecond
)

// Own is what the sources of a process that follow each other need to have the same tokens without a Sealer.
type Own struct {
	sealer *seal.Sealer
	record string
}

// NewOwn returns the Own of a process.
func NewOwn() (*Own, error) {
	own, err := seal.Own()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says so itself
	}
	return &Own{own, "oauth-" + rand.Text()}, nil
}

// Source gives the calls of a destination their tokens.
type Source struct {
	o        Options
	client   *http.Client
	record   string // prefix of the records' names
	holder   string // of leases
	clientID string // hash of what identifies the client
	file     *tokens.Watcher[map[string]string]
	style    atomic.Int32 // oauth2.AuthStyle that has worked

	life context.Context
	end  context.CancelFunc
	runs sync.WaitGroup

	mu      sync.Mutex
	entries map[string]*entry
	closed  bool
	// down is why the last call to the token endpoint failed, "" if it did not, and downUntil when
	// the next one may be made, for whichever key.
	down      string
	downUntil time.Time

	changes tokens.Changes
}

// entry is what this process has of a key.
type entry struct {
	mu    sync.Mutex
	seed  string // refresh token of the file for which token was obtained
	token string
	until time.Time // token must not be used from here on; zero: no end
	due   time.Time // it is to be renewed; zero: never
	run   *run

	failures int // of the token endpoint in a row
}

// run is a renewal of an entry in progress.
type run struct {
	seed, refused string
	done          chan struct{}
	token         string
	err           error
}

// usable reports whether the token may be used for a call now.
func (e *entry) usable(now time.Time, seed, refused string) bool {
	// While a machine is suspended the monotonic clock stops, the wall clock does not.
	return e.token != "" && e.seed == seed && e.token != refused &&
		(e.until.IsZero() || now.Before(e.until) && now.Round(0).Before(e.until.Round(0)))
}

// New reads the file of refresh tokens. Its error never holds a token.
func New(o Options) (*Source, error) {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	s := &Source{
		o: o, holder: rand.Text(), entries: map[string]*entry{},
		clientID: hash(o.TokenURL, o.ClientID, o.ClientSecret, strings.Join(o.Scopes, " ")), record: "oauth",
	}
	if o.Transport == nil {
		s.o.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second,
			TLSHandshakeTimeout: o.Timeout, MaxResponseHeaderBytes: 64 << 10,
		}
	}
	s.client = &http.Client{
		Transport: s.o.Transport, Timeout: o.Timeout,
		// A redirect could send the secrets to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if o.ClientSecret == "" {
		s.style.Store(int32(oauth2.AuthStyleInParams))
	}
	if o.Sealer == nil {
		// A record and a key of this process's own: the same way, but nothing is shared.
		own := o.Own
		if own == nil {
			var err error
			if own, err = NewOwn(); err != nil {
				return nil, err
			}
		}
		s.o.Sealer, s.record = own.sealer, own.record
	}
	if o.RefreshTokensFile != "" {
		if err := s.watch(); err != nil {
			return nil, err
		}
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

func (s *Source) watch() error {
	log := s.o.Logger.With("file", s.o.RefreshTokensFile)
	file, _, err := tokens.Watch(tokens.WatchOptions[map[string]string]{
		Path: s.o.RefreshTokensFile, Every: s.o.CheckEvery, Parse: tokens.Parse,
		Changed: func(all map[string]string, _ fs.FileInfo) {
			log.Info("the file of refresh tokens was read again", "tokens", len(all))
			s.changes.Add(all)
		},
		Failed: func(err error) {
			log.Warn("the file of refresh tokens cannot be used; the tokens read before stay in use", "error", err)
		},
	})
	if err != nil {
		return fmt.Errorf("oauth: file %q: %w", s.o.RefreshTokensFile, err)
	}
	s.file = file
	s.changes.Add(file.Current())
	s.changes.Take()
	return nil
}

// Close waits for renewals in progress, because their tokens would be lost, for at most as long
// as they may take.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	late := time.AfterFunc(s.o.Timeout+leaseMargin, s.end)
	defer late.Stop()
	s.runs.Wait()
	s.end()
	s.client.CloseIdleConnections()
	return nil
}

// Changed returns the keys whose refresh token in the file has changed since the last call.
func (s *Source) Changed() []string {
	if s.file == nil {
		return nil
	}
	s.file.Current() // checks the file
	return s.changes.Take()
}

// Seed returns what the access tokens of a key come from: its refresh token in the file, or
// without a file what identifies the client.
func (s *Source) Seed(key string) string {
	if s.file == nil {
		return s.clientID
	}
	return s.file.Current()[key]
}

// PerKey reports whether each key has tokens of its own.
func (s *Source) PerKey() bool { return s.file != nil }

// Token returns an access token for a call under key. Errors: an outcome of package jobs, or
// one that wraps [breakerhttp.ErrNotSent] if it may help to ask again later.
func (s *Source) Token(ctx context.Context, key string) (string, error) {
	return s.token(ctx, key, "")
}

// Renew returns an access token in place of one that the API has refused; the same one if
// there is no other. It returns the same errors as Token.
func (s *Source) Renew(ctx context.Context, key, refused string) (string, error) {
	return s.token(ctx, key, refused)
}

func (s *Source) token(ctx context.Context, key, refused string) (string, error) {
	seed, name := "", ""
	if s.file != nil {
		if key == "" {
			return "", fmt.Errorf("destination %s: a job without a key has no refresh token in OAUTH_REFRESH_TOKENS_FILE: enqueue it anew, with a key", s.o.Destination)
		}
		var ok bool
		if seed, ok = s.file.Current()[key]; !ok {
			seed, ok = s.file.Recheck(0)[key]
		}
		if !ok {
			return "", fmt.Errorf("no refresh token for key %q in OAUTH_REFRESH_TOKENS_FILE of destination %s: add it (the file is read again by itself)", key, s.o.Destination)
		}
		name = key
	}
	e := s.entry(name)
	for {
		e.mu.Lock()
		if e.token == refused {
			e.token = "" // no other call uses it
		}
		now := time.Now()
		token, usable := e.token, e.usable(now, seed, refused)
		if usable && (e.due.IsZero() || now.Before(e.due)) {
			e.mu.Unlock()
			return token, nil
		}
		r := e.run
		if r == nil {
			r = s.start(e, name, seed, refused)
		}
		e.mu.Unlock()
		if usable {
			return token, nil
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return "", notSent("no access token within the call's timeout", context.Cause(ctx))
		}
		switch {
		case r.seed != seed || r.refused != refused && (r.err != nil || r.token == refused):
			// It did not know what this call knows.
		case r.err != nil:
			return "", r.err
		default:
			return r.token, nil
		}
	}
}

func (s *Source) entry(name string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[name]
	if e == nil {
		e = &entry{}
		s.entries[name] = e
	}
	return e
}

// failures counts a failure of the token endpoint for an entry, or forgets them if add is 0.
func (s *Source) failures(name string, add int) int {
	e := s.entry(name)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failures += add; add == 0 {
		e.failures = 0
	}
	return e.failures
}

// failing returns why the token endpoint is not to be called now, for any key, and until when; "" if
// this call may be made. While it fails one call at a time is.
func (s *Source) failing() (why string, retry time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.down == "" || !now.Before(s.downUntil) {
		s.downUntil = now.Add(s.o.Timeout)
		return "", time.Time{}
	}
	return s.down, s.downUntil
}

// endpoint notes why a call to the token endpoint failed, "" if it did not, and until when none is
// to be made.
func (s *Source) endpoint(why string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.downUntil = why, until
}

// start begins a renewal, which goes on if the call that needs it ends: its tokens would be
// lost. The caller holds e.mu.
func (s *Source) start(e *entry, name, seed, refused string) *run {
	r := &run{seed: seed, refused: refused, done: make(chan struct{})}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.runs.Add(1)
	}
	s.mu.Unlock()
	if closed {
		r.err = notSent("the worker is shutting down", nil)
		close(r.done)
		return r
	}
	e.run = r
	go func() {
		defer s.runs.Done()
		token, until, due, err := s.renew(name, seed, refused)
		e.mu.Lock()
		defer e.mu.Unlock()
		if err == nil {
			e.seed, e.token, e.until, e.due = seed, token, until, due
		}
		r.token, r.err, e.run = token, err, nil
		close(r.done)
	}()
	return r
}

// notSent is the error of a call that was not made and may be made later.
func notSent(what string, cause error) error {
	if cause == nil {
		return fmt.Errorf("%s: %w", what, breakerhttp.ErrNotSent)
	}
	return fmt.Errorf("%s: %w: %w", what, breakerhttp.ErrNotSent, cause)
}
