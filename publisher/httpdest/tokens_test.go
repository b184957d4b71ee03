package httpdest_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// tokensFile is a file of tokens under test.
type tokensFile struct {
	*httpdest.TokensFile
	t    *testing.T
	path string
	log  *loggingtest.Buffer
}

// openTokens opens a new file, which is looked at for each token that is asked for.
func openTokens(t *testing.T, content string) *tokensFile {
	t.Helper()
	f := &tokensFile{t: t, path: filepath.Join(t.TempDir(), "tokens.json"), log: &loggingtest.Buffer{}}
	f.write(content)
	f.open(time.Nanosecond)
	return f
}

func (f *tokensFile) open(every time.Duration) {
	f.t.Helper()
	log := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "file" {
				return slog.Attr{}
			}
			return a
		},
	}))
	opened, err := httpdest.OpenTokens(f.path, httpdest.TokensFileOptions{Logger: log, CheckEvery: every})
	if err != nil {
		f.t.Fatal(err)
	}
	f.TokensFile = opened
}

func (f *tokensFile) write(content string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// want asks for tokens, given as key, token, key, token; an empty one is unknown.
func (f *tokensFile) want(pairs ...string) {
	f.t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		got, ok := f.Token(pair[0])
		if got != pair[1] || ok != (pair[1] != "") {
			f.t.Errorf("token of %s: %q, %t; want %q", pair[0], got, ok, pair[1])
		}
	}
}

func (f *tokensFile) wantLog(lines ...string) {
	f.t.Helper()
	if diff := cmp.Diff(lines, f.log.Lines()); diff != "" {
		f.t.Errorf("log (-want +got):\n%s", diff)
	}
}

const (
	brokenPrefix = `level=WARN msg="the file of tokens cannot be used; the tokens read before stay in use" error="`
	readAgain    = `level=INFO msg="the file of tokens was read again" tokens=`
)

func TestTokensFile(t *testing.T) {
	t.Parallel()
	f := openTokens(t, `{"alice": "a1", "bob": "b1"}`)
	f.want("alice", "a1", "bob", "b1", "carol", "")
	// Written over with the same length within the resolution of its time.
	f.write(`{"alice": "a2", "bob": "b2"}`)
	f.want("alice", "a2", "bob", "b2")
	f.write(`{"alice": "a2", "carol": "c1", "dave": "d1"}`)
	f.want("alice", "a2", "bob", "", "carol", "c1", "dave", "d1")
	f.wantLog(readAgain+"2", readAgain+"3")
}

// What Kubernetes does with a Secret: the file is a link into a directory that is a
// link, which is replaced by a rename.
func TestTokensFileBehindLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(name, content string) {
		t.Helper()
		err := errors.Join(
			os.Mkdir(filepath.Join(dir, name), 0o700),
			os.WriteFile(filepath.Join(dir, name, "tokens.json"), []byte(content), 0o600),
			os.Symlink(name, filepath.Join(dir, "..data_tmp")),
			os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	version("..1", `{"alice":"a1"}`)
	f := &tokensFile{t: t, path: filepath.Join(dir, "tokens.json"), log: &loggingtest.Buffer{}}
	if err := os.Symlink(filepath.Join("..data", "tokens.json"), f.path); err != nil {
		t.Fatal(err)
	}
	f.open(time.Nanosecond)
	f.want("alice", "a1")
	version("..2", `{"alice":"a2"}`)
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	f.want("alice", "a2")
	f.wantLog(readAgain + "1")
}

// A file that cannot be used changes nothing, and is told of once.
func TestTokensFileThatBreaks(t *testing.T) {
	t.Parallel()
	f := openTokens(t, `{"alice":"a1"}`)
	f.write(`{"alice":"hunter2`)
	f.want("alice", "a1", "alice", "a1", "bob", "", "bob", "")
	f.write(`{"alice":"a2","bob":"hunter2 "}`)
	f.want("alice", "a1", "bob", "")
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	f.want("alice", "a1", "alice", "a1", "bob", "")
	f.write(`{"alice":"a1"}`) // as it was
	f.want("alice", "a1", "bob", "")
	f.write(`{"alice":"a2","bob":"b2"}`)
	f.want("alice", "a2", "bob", "b2")
	f.wantLog(
		brokenPrefix+`is not JSON: look at line 1"`,
		brokenPrefix+`line 1: the token of key \"bob\" holds a space, a line break or a character that is not ASCII"`,
		brokenPrefix+`cannot be read: no such file or directory"`,
		readAgain+"1", readAgain+"2")
}

func TestOpenTokensFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.json")
	for _, row := range []struct{ content, want string }{
		{"", "is empty"},
		{`{"alice":"hunter2 ","bob":""}`, `line 1: the token of key "alice" holds a space, a line break or a character that is not ASCII; line 1: the token of key "bob" is empty`},
	} {
		if err := os.WriteFile(path, []byte(row.content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := httpdest.OpenTokens(path, httpdest.TokensFileOptions{})
		if want := fmt.Sprintf("httpdest: open tokens: file %q: %s", path, row.want); f != nil || err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", row.content, err, want)
		}
	}
	if _, err := httpdest.OpenTokens(path+"x", httpdest.TokensFileOptions{}); err == nil || !strings.HasSuffix(err.Error(), "cannot be read: no such file or directory") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// Many callers, and a file that changes under them: each sees one of its versions.
func TestTokensFileAtOnce(t *testing.T) {
	t.Parallel()
	f := openTokens(t, `{"alice":"a0"}`)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, ok := f.Token("alice"); !ok || got[0] != 'a' {
					t.Errorf("token %q, %t", got, ok)
					return
				}
				f.Token("bob")
			}
		})
	}
	for i := range 50 {
		next := f.path + ".next"
		if err := errors.Join(os.WriteFile(next, fmt.Appendf(nil, `{"alice":"a%d"}`, i), 0o600), os.Rename(next, f.path)); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()
	f.want("alice", "a49")
}
