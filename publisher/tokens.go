package publisher

import (
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/tidegate/tidegate/internal/tokens"
)

// Tokens returns the token of each key.
type Tokens interface {
	// Token returns the bearer token of a key; ok is false if it has none. It is
	// called for each call of a job with a key, by many goroutines at once, and
	// must return quickly.
	Token(key string) (token string, ok bool)
}

// TokensFunc is a function that implements Tokens.
type TokensFunc func(key string) (token string, ok bool)

// Token calls f.
func (f TokensFunc) Token(key string) (string, bool) { return f(key) }

// TokensFileOptions change how a file of tokens is watched.
type TokensFileOptions struct {
	// Logger gets a line when the file was read again, and one when it is no longer valid.
	// Default: slog.Default().
	Logger *slog.Logger
	// CheckEvery is the least interval of checks whether the file has changed. Only Token
	// checks. Default 1 s.
	CheckEvery time.Duration
}

// TokensFile is Tokens from a file with a JSON object:
//
//	{"alice": "2YotnFZFEjr1zCsicMWpAA", "bob": "tGzv3JOkF0XG5Qx2TlKWIA"}
//
// A file that changes is read again: after a write, a replacement, or a change of the symbolic
// links on its path, as in Kubernetes Secrets. If the new file is not valid, the tokens read
// before stay in use.
type TokensFile struct {
	file *tokens.Watcher[map[string]string]
}

var _ Tokens = (*TokensFile)(nil)

// OpenTokens reads the file. The error names keys whose tokens are not valid, and never a
// token.
func OpenTokens(path string, o TokensFileOptions) (*TokensFile, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	log := o.Logger.With("file", path)
	file, _, err := tokens.Watch(tokens.WatchOptions[map[string]string]{
		Path: path, Every: o.CheckEvery, Parse: tokens.Parse,
		Changed: func(all map[string]string, _ fs.FileInfo) {
			log.Info("the file of tokens was read again", "tokens", len(all))
		},
		Failed: func(err error) {
			log.Warn("the file of tokens cannot be used; the tokens read before stay in use", "error", err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("publisher: open tokens: file %q: %w", path, err)
	}
	return &TokensFile{file: file}, nil
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
