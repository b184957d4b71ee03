package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
)

func TestTakenPortIsToldFromOtherFailures(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := &Server{path: Binary(t), dir: t.TempDir(), port: l.Addr().(*net.TCPAddr).Port}
	if err := s.run(); !errors.Is(err, errPortTaken) {
		t.Errorf("start on a taken port: %v, want errPortTaken", err)
	}
}

func TestAnotherServerOnThePortIsNotMistakenForOurs(t *testing.T) {
	t.Parallel()
	first := Start(t)
	second := &Server{path: first.path, dir: t.TempDir(), port: first.port}
	if err := second.run(); !errors.Is(err, errPortTaken) {
		t.Errorf("start on the port of another redis-server: %v, want errPortTaken", err)
	}
}

func TestPortOfAServerThatIsDownIsKept(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Kill()
	if held, ok := reserve(s.port); ok {
		_ = held.Close()
		t.Error("another server may take the port of one that is down")
	}
	s.end()
	Eventually(t, "the port is free after the end", func() bool { // a connection of another test may have it for a moment
		held, ok := reserve(s.port)
		if ok {
			_ = held.Close()
		}
		return ok
	})
}

// fakeTB records how a test was ended.
type fakeTB struct {
	testing.TB
	fatal, skip string
}

func (f *fakeTB) Helper()           {}
func (f *fakeTB) Fatal(args ...any) { f.fatal = fmt.Sprint(args...); panic(f) }
func (f *fakeTB) Skip(args ...any)  { f.skip = fmt.Sprint(args...); panic(f) }

func TestMissingServerFailsInCIAndSkipsElsewhere(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	end := func() (f *fakeTB) {
		f = &fakeTB{TB: t}
		defer func() {
			if recover() != f {
				t.Error("the test went on without a server")
			}
		}()
		Binary(f)
		return f
	}
	t.Setenv("CI", "true")
	if f := end(); f.fatal != "redistest: "+installHint || f.skip != "" {
		t.Errorf("with CI set: %+v, want a failure that says how to install", f)
	}
	t.Setenv("CI", "")
	// The warning on standard error is for a person; keep it out of this run's output.
	stderr := os.Stderr
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	os.Stderr = null
	f := end()
	os.Stderr = stderr
	if f.skip != "redistest: "+installHint || f.fatal != "" {
		t.Errorf("without CI: %+v, want a skip that says how to install", f)
	}
}
