// Package redistest runs real redis-server processes for tests.
//
// [Start] gives a test a server of its own, which it may stop, kill, pause and
// restart. [Shared] gives all tests of a package one server; they keep apart by
// prefixing what they write with a [Name], or each has a [Database] of it. A package that
// uses these needs
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
//
// Servers listen on a free loopback port only and die with the test binary: on
// Linux even when it is killed, elsewhere when it ends in an orderly way.
//
// Without a redis-server (or valkey-server) in PATH the tests fail where the
// environment variable CI is set and are skipped elsewhere.
package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// Option changes how a server is started.
type Option func(*Server)

// WithAOF makes the server keep an append-only file, so that what it had
// acknowledged is there after Stop or Kill and Restart. The file is written before
// each reply and never synced: a process that is killed loses nothing by that.
func WithAOF() Option {
	return WithArgs("--appendonly", "yes", "--appendfsync", "no")
}

// WithArgs appends arguments to redis-server's command line, for example
// WithArgs("--maxmemory", "8mb"). They come last and override the defaults.
func WithArgs(args ...string) Option {
	return func(s *Server) { s.args = append(s.args, args...) }
}

// WithPassword makes the server ask for a password; URL and Client use it.
func WithPassword(password string) Option {
	return func(s *Server) { s.password = password }
}

// Start runs a redis-server that belongs to the test. It returns when the
// server answers, and kills it when the test ends. The server keeps nothing on
// disk unless an option says so.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := launch(Binary(t), t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("redis-server at %s ended its output with:\n%s", s.Addr(), s.output())
		}
		s.end()
	})
	return s
}

// shared is the one server of the test binary.
var shared struct {
	managed atomic.Bool // Main runs, and will stop the server
	once    sync.Once
	server  *Server
	err     error
}

// Shared returns the server that all tests of the package use; the first call
// starts it, [Main] stops it. It must not be stopped, killed, paused or flushed:
// use [Start] for that.
func Shared(t testing.TB) *Server {
	t.Helper()
	if !shared.managed.Load() {
		t.Fatal("redistest: Shared needs Main to stop the server: " +
			"add func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }")
	}
	path := Binary(t)
	shared.once.Do(func() {
		dir, err := os.MkdirTemp("", "redistest-")
		if err != nil {
			shared.err = fmt.Errorf("redistest: make the server's directory: %w", err)
			return
		}
		if shared.server, shared.err = launch(path, dir, []Option{WithArgs("--databases", strconv.Itoa(databaseCount))}); shared.err != nil {
			shared.err = errors.Join(shared.err, os.RemoveAll(dir))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// databaseCount is how many databases the shared server has, and so how many tests may have
// one at a time.
const databaseCount = 1024

// databases hands out the numbers of the shared server's databases; 0 is for Shared itself.
var databases = sync.OnceValue(func() chan int {
	free := make(chan int, databaseCount)
	for n := 1; n < databaseCount; n++ {
		free <- n
	}
	return free
})

// Database returns the [Shared] server with a database that belongs to the test and is empty: for tests that look at
// all that Redis holds, or that cost more the more there is. Channels, scripts and CommandStats belong to the whole
// server.
func Database(t testing.TB) *Server {
	t.Helper()
	s := Shared(t)
	d := &Server{path: s.path, dir: s.dir, port: s.port, proc: s.process(), db: <-databases()}
	client := redis.NewClient(&redis.Options{Addr: d.Addr(), DB: d.db})
	t.Cleanup(func() {
		if err := errors.Join(client.FlushDB(context.WithoutCancel(t.Context())).Err(), client.Close()); err != nil {
			t.Errorf("redistest: flush database %d: %v", d.db, err)
		}
		databases() <- d.db
	})
	return d
}

// Main runs a package's tests and returns the exit status for os.Exit. It stops the
// server that [Shared] may have started, silences go-redis, which prints every refused
// connection, and fails if a goroutine is left when all tests have ended.
func Main(m interface{ Run() int }) int {
	redis.SetLogger(&logging.VoidLogger{})
	shared.managed.Store(true)
	status := m.Run()
	if s := shared.server; s != nil {
		s.end()
		if err := os.RemoveAll(s.dir); err != nil {
			fmt.Fprintln(os.Stderr, "redistest: remove the server's directory:", err)
		}
	}
	if status == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "after all tests:", err)
			return 1
		}
	}
	return status
}

// names numbers what Name hands out; run tells test binaries apart.
var (
	names atomic.Int64
	run   = fmt.Sprintf("%04x", rand.IntN(1<<16)) //nolint:gosec // a name needs no secrecy
)

// Name returns a name that no other call returns, for a destination, a queue or
// a key: prefix, cut to 40 characters, and a suffix. It matches
// [a-z0-9][a-z0-9-]{0,62}; other characters of prefix become hyphens, so that
// t.Name() will do.
func Name(t testing.TB, prefix string) string {
	t.Helper()
	clean := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(prefix))
	clean = strings.Trim(clean[:min(len(clean), 40)], "-")
	return fmt.Sprintf("%s-%s%d", cmp.Or(clean, "t"), run, names.Add(1))
}

// installHint says how to get a redis-server.
const installHint = "redis-server is not installed: run `make redis`, " +
	"or install it by hand (Debian, Ubuntu: apt-get install redis-server; Fedora: dnf install redis; " +
	"Alpine: apk add redis; macOS: brew install redis)"

// warnOnce keeps the warning about a missing server to one line a test binary.
var warnOnce sync.Once

// Binary returns the path of the server's program. Without one it fails the test where CI is
// set, and skips it elsewhere.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := findBinary()
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatal("redistest: " + installHint)
	}
	warnOnce.Do(func() { fmt.Fprintln(os.Stderr, "redistest: TESTS ARE SKIPPED: "+installHint) })
	t.Skip("redistest: " + installHint)
	return ""
}

func findBinary() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		path, err = exec.LookPath("valkey-server")
	}
	return path, err
}
