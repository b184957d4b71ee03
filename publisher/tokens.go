package publisher

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/tokens"
)

// Tokens knows the token of each key.
type Tokens interface {
	// Token returns the bearer token of a key; ok is false if it has none. It is
	// called for each call of a job with a key, by many goroutines at once, and
	// must return quickly.
	Token(key string) (token string, ok bool)
}

// TokensFunc makes Tokens of a function.
type TokensFunc func(key string) (token string, ok bool)

// Token calls f.
func (f TokensFunc) Token(key string) (string, bool) { return f(key) }

// TokensFileOptions change how a file of tokens is watched.
type TokensFileOptions struct {
	// Logger gets a line when the file was read again, and one when it cannot be
	// used any more. Default: slog.Default().
	Logger *slog.Logger
	// CheckEvery is how often at most it is looked whether the file has changed,
	// which is only done when a token is asked for. Default 1 s.
	CheckEvery time.Duration
}

// TokensFile is Tokens from a file with a JSON object:
//
//	{"alice": "2YotnFZFEjr1zCsicMWpAA", "bob": "tGzv3JOkF0XG5Qx2TlKWIA"}
//
// A file that changes is read again by itself, whether it is written anew, replaced
// or reached by symbolic links that now lead elsewhere, as Kubernetes mounts its
// Secrets. If it cannot be used then, the tokens read before stay in use.
type TokensFile struct {
	path  string
	every time.Duration
	log   *slog.Logger
	start time.Time

	current atomic.Pointer[map[string]string]
	next    atomic.Int64 // when to look at the file again, in ns since start

	mu     sync.Mutex  // held while the file is looked at
	info   fs.FileInfo // of what was last read, nil if that failed
	sum    [sha256.Size]byte
	readAt time.Time
	broken string // what is wrong with the file, "" if nothing
}

var _ Tokens = (*TokensFile)(nil)

// OpenTokens reads the file. It is an error if it cannot be used: it names keys whose
// tokens are wrong, and never a token.
func OpenTokens(path string, o TokensFileOptions) (*TokensFile, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	defaultTo(&o.CheckEvery, time.Second)
	f := &TokensFile{path: path, every: o.CheckEvery, log: o.Logger.With("file", path), start: time.Now()}
	if _, err := f.read(); err != nil {
		return nil, fmt.Errorf("publisher: open tokens: file %q: %w", path, err)
	}
	f.next.Store(int64(f.every))
	return f, nil
}

// Token returns the key's token, from the file as it stood CheckEvery ago or later.
// For a key that it does not know it looks at the file first.
func (f *TokensFile) Token(key string) (token string, ok bool) {
	if int64(time.Since(f.start)) >= f.next.Load() && f.mu.TryLock() {
		f.look(true)
		f.next.Store(int64(time.Since(f.start) + f.every))
		f.mu.Unlock()
	}
	if token, ok = (*f.current.Load())[key]; ok {
		return token, true
	}
	// A job that has no token fails for good, and its key may have been added just
	// now. That is rare enough for a look each time.
	f.mu.Lock()
	f.look(false)
	f.mu.Unlock()
	token, ok = (*f.current.Load())[key]
	return token, ok
}

// coarse is the resolution of the file systems with the coarsest times: what was
// read so soon after it was written may have been written again with the same time.
const coarse = 2 * time.Second

// look reads the file again if it has changed; thorough also if it may have without
// showing it. The caller holds mu.
func (f *TokensFile) look(thorough bool) {
	info, err := os.Stat(f.path)
	if err == nil && f.info != nil && os.SameFile(info, f.info) && info.Size() == f.info.Size() && info.ModTime().Equal(f.info.ModTime()) {
		if !thorough || f.readAt.Sub(info.ModTime()) >= coarse {
			return
		}
	}
	changed, err := f.read()
	switch {
	case err != nil:
		// Once, however many calls come to see it.
		if text := err.Error(); text != f.broken {
			f.broken = text
			f.log.Warn("the file of tokens cannot be used; the tokens read before stay in use", "error", err)
		}
	case changed:
		f.broken = ""
		f.log.Info("the file of tokens was read again", "tokens", len(*f.current.Load()))
	}
}

// read reads the file and makes its tokens the current ones, unless its content is
// what it was. The caller holds mu.
func (f *TokensFile) read() (changed bool, err error) {
	f.info, f.readAt = nil, time.Now()
	content, info, err := tokens.ReadFile(f.path)
	if err != nil {
		return false, err
	}
	f.info = info
	sum := sha256.Sum256(content)
	if sum == f.sum && f.broken == "" {
		return false, nil
	}
	f.sum = sum
	all, err := tokens.Parse(content)
	if err != nil {
		return false, err
	}
	f.current.Store(&all)
	return true, nil
}
