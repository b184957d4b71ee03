package access

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/tokens"
)

// Options change how a file of tokens is watched.
type Options struct {
	// Logger gets a line when the file was read again, and one when it cannot be used
	// any more. Default: slog.Default().
	Logger *slog.Logger
	// CheckEvery is how often at most it is looked whether the file has changed, which
	// is only done when somebody asks. Default 1 s.
	CheckEvery time.Duration
	// Now is the clock that tokens expire by. Default: time.Now.
	Now func() time.Time
}

// Tokens are those of a file. It is read again when it changes, whether it is written
// anew, replaced or reached by symbolic links that now lead elsewhere, as Kubernetes
// mounts its Secrets. If it cannot be used then, what was read before stays in use.
type Tokens struct {
	path  string
	every time.Duration
	log   *slog.Logger
	now   clock
	start time.Time

	current atomic.Pointer[[]known]
	next    atomic.Int64 // when to look at the file again, in ns since start
	soon    atomic.Int64 // when to look for a token that is not known

	mu     sync.Mutex  // held while the file is looked at
	info   fs.FileInfo // of what was last read, nil if that failed
	sum    [sha256.Size]byte
	readAt time.Time
	broken string // what is wrong with the file, "" if nothing
}

// known is an entry as it is compared.
type known struct {
	hash    hash
	name    string
	scopes  []Scope
	expires time.Time // zero: never
}

// OpenTokens reads the file. The error is about the file and wraps [tokens.Errors]; it
// never holds a token or a hash.
func OpenTokens(path string, o Options) (*Tokens, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &Tokens{
		path: path, every: cmp.Or(o.CheckEvery, time.Second), log: o.Logger.With("file", path),
		now: o.Now, start: time.Now(),
	}
	if _, err := t.read(); err != nil {
		return nil, fmt.Errorf("access: open tokens: file %q: %w", path, err)
	}
	t.next.Store(int64(t.every))
	t.tell()
	return t, nil
}

// Lookup says whose token it is; ok is false if it is not known or has expired. How
// long it takes tells nothing about the tokens.
func (t *Tokens) Lookup(token string) (id Identity, ok bool) {
	if token == "" || len(token) > maxToken {
		return Identity{}, false
	}
	h := hashOf(token)
	if id, ok = t.byHash(h); ok {
		return id, true
	}
	// It may have been added just now. Whoever sends wrong ones costs a look at the
	// file ten times a second at most.
	if since := int64(time.Since(t.start)); since < t.soon.Load() {
		return Identity{}, false
	}
	t.mu.Lock()
	t.look(false)
	t.soon.Store(int64(time.Since(t.start) + min(t.every, 100*time.Millisecond)))
	t.mu.Unlock()
	return t.find(h)
}

// byHash is Lookup for a token that was known when its session began.
func (t *Tokens) byHash(h hash) (Identity, bool) {
	if int64(time.Since(t.start)) >= t.next.Load() && t.mu.TryLock() {
		t.look(true)
		t.next.Store(int64(time.Since(t.start) + t.every))
		t.mu.Unlock()
	}
	return t.find(h)
}

// find compares with every entry, and each in constant time.
func (t *Tokens) find(h hash) (Identity, bool) {
	entries := *t.current.Load()
	at := -1
	for i := range entries {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(h[:], entries[i].hash[:]), i, at)
	}
	if at < 0 {
		return Identity{}, false
	}
	e := &entries[at]
	if !e.expires.IsZero() && !t.now().Before(e.expires) {
		return Identity{}, false
	}
	return Identity{Name: e.name, Scopes: e.scopes, hash: h, tokens: t}, true
}

// coarse is the resolution of the file systems with the coarsest times: what was
// read so soon after it was written may have been written again with the same time.
const coarse = 2 * time.Second

// look reads the file again if it has changed; thorough also if it may have without
// showing it. The caller holds mu.
func (t *Tokens) look(thorough bool) {
	info, err := os.Stat(t.path)
	if err == nil && t.info != nil && os.SameFile(info, t.info) && info.Size() == t.info.Size() && info.ModTime().Equal(t.info.ModTime()) {
		if !thorough || t.readAt.Sub(info.ModTime()) >= coarse {
			return
		}
	}
	changed, err := t.read()
	switch {
	case err != nil:
		// Once, however many requests come to see it.
		if text := err.Error(); text != t.broken {
			t.broken = text
			t.log.Warn("API_TOKENS_FILE cannot be used; the tokens read before stay in use", "error", err)
		}
	case changed:
		t.broken = ""
		t.log.Info("API_TOKENS_FILE was read again", "count", len(*t.current.Load()))
		t.tell()
	}
}

// read reads the file and makes its tokens the current ones, unless its content is
// what it was. The caller holds mu, but for the first time.
func (t *Tokens) read() (changed bool, err error) {
	t.info, t.readAt = nil, time.Now()
	content, info, err := tokens.ReadFile(t.path)
	if err != nil {
		return false, err //nolint:wrapcheck // it is tokens.Errors
	}
	t.info = info
	sum := sha256.Sum256(content)
	if sum == t.sum && t.broken == "" {
		return false, nil
	}
	t.sum = sum
	entries, err := ParseFile(content)
	if err != nil {
		return false, err
	}
	all := make([]known, len(entries))
	for i, e := range entries {
		h, _ := parseHash(e.Hash) // ParseFile has looked
		all[i] = known{hash: h, name: e.Name, scopes: e.Scopes}
		if e.ExpiresAt != nil {
			all[i].expires = *e.ExpiresAt
		}
	}
	t.current.Store(&all)
	return true, nil
}

// trial is the hash of the token in deploy/demo, which the documentation prints.
const trial = "sha256:151dceb5126a14db2842e2cc072b124383d17c358df5ce24c56dc34efe77347d"

// tell warns of what makes the file useless, or anybody's.
func (t *Tokens) tell() {
	const everybody = 0o002
	if t.info.Mode().Perm()&everybody != 0 {
		t.log.Warn("API_TOKENS_FILE can be written by everybody on this machine: chmod 600 it")
	}
	now := t.now()
	good := 0
	for _, e := range *t.current.Load() {
		if e.expires.IsZero() || now.Before(e.expires) {
			good++
			if e.hash.String() == trial {
				t.log.Warn("API_TOKENS_FILE holds the token of the trial, which everybody knows: it is for this machine only", "name", e.name)
			}
		}
	}
	if good == 0 {
		t.log.Warn("API_TOKENS_FILE holds no token that is good: nobody can use the API or the dashboard")
	}
}
