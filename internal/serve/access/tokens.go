package access

import (
	"cmp"
	"crypto/subtle"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/tidegate/tidegate/internal/call/tokens"
)

// Options change how a file of tokens is watched.
type Options struct {
	// Logger gets a line when the file was read again, and one when it cannot be used
	// any more. Default: slog.Default().
	Logger *slog.Logger
	// CheckEvery is the shortest time between two checks whether the file has changed,
	// which happen only when a token is looked up. Default 1 s.
	CheckEvery time.Duration
	// Now is the clock that tokens expire by. Default: time.Now.
	Now func() time.Time
}

// Tokens are the tokens of a file, which is read again when it changes. If it cannot be used
// then, what was read before stays in use.
type Tokens struct {
	file *tokens.Watcher[[]known]
	log  *slog.Logger
	now  clock
}

// known is an entry as it is compared.
type known struct {
	Entry

	hash hash
}

// OpenTokens reads the file. The error is about the file and wraps [tokens.Errors]; it
// never holds a token or a hash.
func OpenTokens(path string, o Options) (*Tokens, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &Tokens{log: o.Logger.With("file", path), now: o.Now}
	file, info, err := tokens.Watch(tokens.WatchOptions[[]known]{
		Path: path, Every: o.CheckEvery, Parse: parseKnown,
		Changed: func(all []known, info fs.FileInfo) {
			t.log.Info("API_TOKENS_FILE was read again", "count", len(all))
			t.warn(all, info)
		},
		Failed: func(err error) {
			t.log.Warn("API_TOKENS_FILE cannot be used; the tokens read before stay in use", "error", err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("access: open tokens: file %q: %w", path, err)
	}
	t.file = file
	t.warn(file.Current(), info)
	return t, nil
}

func parseKnown(content []byte) ([]known, error) {
	entries, err := ParseFile(content)
	all := make([]known, len(entries))
	for i, e := range entries {
		h, _ := parseHash(e.Hash) // ParseFile has checked it
		all[i] = known{e, h}
	}
	return all, err
}

// Lookup returns the identity of a token; ok is false if it is not known or has expired.
// The time it takes reveals nothing about the tokens.
func (t *Tokens) Lookup(token string) (id Identity, ok bool) {
	if token == "" || len(token) > maxToken {
		return Identity{}, false
	}
	h := hashOf(token)
	if id, ok = t.byHash(h); ok {
		return id, true
	}
	// It may have been added just now. Wrong tokens cost at most ten checks of the file a
	// second.
	return t.find(t.file.Recheck(100*time.Millisecond), h)
}

// byHash is Lookup for a token that was known when its session began.
func (t *Tokens) byHash(h hash) (Identity, bool) { return t.find(t.file.Current(), h) }

// find compares with every entry, and each in constant time.
func (t *Tokens) find(entries []known, h hash) (Identity, bool) {
	at := -1
	for i := range entries {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(h[:], entries[i].hash[:]), i, at)
	}
	if at < 0 || entries[at].Expired(t.now()) {
		return Identity{}, false
	}
	return Identity{Name: entries[at].Name, Scopes: entries[at].Scopes, Bounds: entries[at].Bounds, hash: h, tokens: t}, true
}

// trial is the hash of the token in deploy/demo, which the documentation prints.
const trial = "sha256:151dceb5126a14db2842e2cc072b124383d17c358df5ce24c56dc34efe77347d"

// warn warns of what makes the file useless, or usable by others.
func (t *Tokens) warn(all []known, info fs.FileInfo) {
	const others = 0o002
	if info.Mode().Perm()&others != 0 {
		t.log.Warn("API_TOKENS_FILE can be written by every user of this machine: chmod 600 it")
	}
	now := t.now()
	good := 0
	for _, e := range all {
		if e.Expired(now) {
			continue
		}
		good++
		if e.Hash == trial {
			t.log.Warn("API_TOKENS_FILE holds the token of the trial, which is public: it is for this machine only", "name", e.Name)
		}
	}
	if good == 0 {
		t.log.Warn("API_TOKENS_FILE holds no valid token: the API and the dashboard refuse every request")
	}
}
