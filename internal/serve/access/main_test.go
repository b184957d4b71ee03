package access_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// noon is when tests begin.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// clock is a time that only moves when it is told to.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: noon} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// logged collects what is logged.
type logged struct {
	loggingtest.Buffer
	seen int
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// lines returns what was logged since the last call, without times.
func (l *logged) lines(t *testing.T) []map[string]any {
	t.Helper()
	all := l.Records(t)
	defer func() { l.seen = len(all) }()
	return all[l.seen:]
}

// file is a file of tokens.
type file struct {
	path string
	t    *testing.T
}

func newFile(t *testing.T, entries ...access.Entry) *file {
	t.Helper()
	f := &file{filepath.Join(t.TempDir(), "tokens.json"), t}
	f.put(entries...)
	return f
}

// put replaces the file by one with the entries.
func (f *file) put(entries ...access.Entry) {
	f.t.Helper()
	content, err := access.FormatFile(entries)
	if err != nil {
		f.t.Fatal(err)
	}
	f.write(string(content))
}

// write replaces the file.
func (f *file) write(content string) {
	f.t.Helper()
	next := f.path + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(content), 0o600), os.Rename(next, f.path)); err != nil {
		f.t.Fatal(err)
	}
}

// token makes a token.
func token(t *testing.T, name string, scopes ...access.Scope) (string, access.Entry) {
	t.Helper()
	text, entry, err := access.NewToken(name, scopes, noon)
	if err != nil {
		t.Fatal(err)
	}
	return text, entry
}
