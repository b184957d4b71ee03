package httpdest

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/call/tokens"
)

// TokenSource obtains tokens over the network, shares them and renews them. Its methods are
// called by many goroutines at once.
//
// If Token or Renew fails, no call is made, and the error decides the outcome of the job. A jobs.UnauthorizedError
// holds the jobs of the key, or of the destination: with RetryAfter if the token server is away, without if only a
// person can help. An error that wraps breakerhttp.ErrNotSent defers the job, since asking again may help. Any other
// error fails it.
type TokenSource interface {
	// Token returns a token for a call under key, which is "" for a job without one. An error is a
	// jobs.UnauthorizedError, for all calls of the key or the destination, or wraps
	// breakerhttp.ErrNotSent: then only the calls of this process wait.
	Token(ctx context.Context, key string) (string, error)
	// Renew returns a token in place of one that the API has refused with 401; the same one if
	// there is no other.
	Renew(ctx context.Context, key, refused string) (string, error)
	// PerKey reports whether each key has tokens of its own. Otherwise a refused token closes
	// the destination, not the key.
	PerKey() bool
	// Changed returns the keys that have got new credentials since the last call; it is called
	// each second. Their breakers are closed if they were open because of refused credentials.
	Changed() []string
}

// Tokens returns the token of each key.
type Tokens interface {
	// Token returns the bearer token of a key; ok is false if it has none. It is
	// called for each call of a job with a key, by many goroutines at once, and
	// must return quickly.
	Token(key string) (token string, ok bool)
}

// TokensFunc is a function that implements Tokens.
type TokensFunc func(key string) (token string, ok bool)

// Token calls f. It panics if f is nil.
func (f TokensFunc) Token(key string) (string, bool) {
	if f == nil {
		panic("httpdest: token: the TokensFunc is nil; pass a function, or leave Options.Tokens nil for calls without a token")
	}
	return f(key)
}

// TokensFileOptions change how a file of tokens is watched.
type TokensFileOptions struct {
	// Logger gets a line when the file was read again, and one when it is no longer valid.
	// Default: slog.Default().
	Logger *slog.Logger
	// CheckEvery is the shortest interval between checks for a changed file. Only Token checks. Default 1 s;
	// negative: each call of Token checks.
	CheckEvery time.Duration
}

// TokensFile is Tokens from a file with a JSON object:
//
//	{"alice": "2YotnFZFEjr1zCsicMWpAA", "bob": "tGzv3JOkF0XG5Qx2TlKWIA"}
//
// A file that changes is read again: after a write, a replacement, or a change of the symbolic
// links on its path, as in Kubernetes Secrets. If the new file is not valid, the tokens read
// before stay in use.
//
// A key whose token changes while its breaker is open because the API has refused the old one is
// published again.
type TokensFile struct {
	file    *tokens.Watcher[map[string]string]
	changes tokens.Changes
}

var _ Tokens = (*TokensFile)(nil)

// OpenTokens reads the file. The error names the keys whose tokens are not valid, but never a token.
func OpenTokens(path string, o TokensFileOptions) (*TokensFile, error) {
	return openTokens(path, o, tokens.Parse)
}

// OpenPool reads the file of a pool of tokens, for [publisher.Pool]: it holds 1 to 100 tokens by their names. A file
// without a token, or with the same token under two names, is not valid.
func OpenPool(path string, o TokensFileOptions) (*TokensFile, error) {
	return openTokens(path, o, tokens.ParsePool)
}

func openTokens(path string, o TokensFileOptions, parse func([]byte) (map[string]string, error)) (*TokensFile, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	log := o.Logger.With("file", path)
	f := &TokensFile{}
	file, _, err := tokens.Watch(tokens.WatchOptions[map[string]string]{
		Path: path, Every: o.CheckEvery, Parse: parse,
		Changed: func(all map[string]string, _ fs.FileInfo) {
			log.Info("the file of tokens was read again", "tokens", len(all))
			f.changes.Add(all)
		},
		Failed: func(err error) {
			log.Warn("the file of tokens cannot be used; the tokens read before stay in use", "error", err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("httpdest: open tokens: file %q: %w", path, err)
	}
	f.file = file
	f.changes.Add(file.Current())
	f.changes.Take()
	return f, nil
}

// ChangedKeys returns the keys whose tokens have changed since the last call.
func (f *TokensFile) ChangedKeys() []string {
	f.file.Current() // checks the file
	return f.changes.Take()
}

// Keys returns the keys that have a token, sorted.
func (f *TokensFile) Keys() []string {
	return slices.Sorted(maps.Keys(f.file.Current()))
}

// Token returns the key's token, from the file as of CheckEvery ago or later. For an unknown
// key it checks the file first: a job without a token fails permanently, and its key may have
// been added a moment ago.
func (f *TokensFile) Token(key string) (token string, ok bool) {
	if token, ok = f.file.Current()[key]; !ok {
		token, ok = f.file.Recheck(0)[key]
	}
	return token, ok
}
