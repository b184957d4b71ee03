package redistest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

//go:embed shim/clock.c
var clockShim string

// compiled is the shim as a library that redis-server preloads. It is kept in memory, so that
// tests of one binary compile it once and leave no file.
var compiled = sync.OnceValues(func() ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("redistest: the clock of redis-server can be stepped on Linux only")
	}
	dir, err := os.MkdirTemp("", "redistest-clock-")
	if err != nil {
		return nil, fmt.Errorf("redistest: make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, []byte(clockShim), 0o600); err != nil {
		return nil, fmt.Errorf("redistest: write the shim: %w", err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("redistest: compile the shim (run `make cc`): %w\n%s", err, out)
	}
	return os.ReadFile(library)
})

// Clock is the wall clock of a server, which a test sets. Linux only.
type Clock struct {
	t    testing.TB
	file string
	at   time.Duration // its offset from the machine's
}

// WithClock makes the server go by a clock that [Clock.Step] steps. It needs a C compiler.
// Without one, and where the system is not Linux, the test fails if CI is set, and is skipped
// otherwise.
func WithClock(t testing.TB) (*Clock, Option) {
	t.Helper()
	library, err := compiled()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	c := &Clock{t: t, file: filepath.Join(dir, "offset")}
	path := filepath.Join(dir, "clock.so")
	if err := os.WriteFile(path, library, 0o600); err != nil {
		t.Fatal(err)
	}
	c.write(os.O_CREATE)
	return c, func(s *Server) { s.env = append(s.env, "LD_PRELOAD="+path, "REDISTEST_CLOCK="+c.file) }
}

// Step moves the clock by d, back if d is negative.
func (c *Clock) Step(d time.Duration) {
	c.t.Helper()
	c.at += d
	c.write(0)
}

func (c *Clock) write(flags int) {
	c.t.Helper()
	f, err := os.OpenFile(c.file, os.O_WRONLY|flags, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(c.at.Nanoseconds())) //nolint:gosec // two's complement, as C reads it
	if _, err := f.WriteAt(b[:], 0); err != nil {
		c.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		c.t.Fatal(err)
	}
}
