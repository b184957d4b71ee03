package redistest_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// childEnv makes the test binary play a test run that gets killed.
const childEnv = "REDISTEST_CHILD"

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func TestDataAfterRestart(t *testing.T) {
	t.Parallel()
	stop, kill := (*redistest.Server).Stop, (*redistest.Server).Kill
	for name, tt := range map[string]struct {
		opts []redistest.Option
		end  func(*redistest.Server)
		want string
	}{
		"stopped, with AOF":    {[]redistest.Option{redistest.WithAOF()}, stop, "v"},
		"killed, with AOF":     {[]redistest.Option{redistest.WithAOF()}, kill, "v"},
		"restarted, with AOF":  {[]redistest.Option{redistest.WithAOF()}, func(*redistest.Server) {}, "v"},
		"stopped, without AOF": {nil, stop, ""},
		"killed, without AOF":  {nil, kill, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, tt.opts...)
			if err := s.Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			addr, pid := s.Addr(), s.PID()
			tt.end(s)
			s.Restart()
			if s.Addr() != addr {
				t.Errorf("address after the restart = %s, want %s", s.Addr(), addr)
			}
			if s.PID() == pid || s.PID() == 0 {
				t.Errorf("process after the restart = %d, before %d; want a new one", s.PID(), pid)
			}
			got, err := s.Client(t).Get(t.Context(), "k").Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("k after the restart = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPausedServerKeepsConnectionsAndAnswersNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx).Err(); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("PING while paused: %v, want a timeout", err)
	}
	s.Resume()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING after Resume: %v", err)
	}
	s.Pause()
	s.Stop() // also ends a paused server
	if got := s.PID(); got != 0 {
		t.Errorf("PID after Stop of a paused server = %d, want 0", got)
	}
}

// TestServerDiesWithAKilledTestBinary kills a test binary that runs a server and
// waits until nothing listens there any more.
func TestServerDiesWithAKilledTestBinary(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		os.Stdout.WriteString("listening " + redistest.Start(t).Addr() + "\n")
		<-t.Context().Done() // until killed
		return
	}
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties the server to the test binary")
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Dir = t.TempDir()
	child.Env = append(child.Env, "TMPDIR="+child.Dir) // what it leaves behind goes with our directory
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	addr := ""
	for lines := bufio.NewScanner(stdout); addr == "" && lines.Scan(); {
		_, addr, _ = strings.Cut(lines.Text(), "listening ")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) {
		t.Fatalf("child ended with %v, want killed", err)
	}
	if addr == "" {
		t.Fatal("the child did not say where its server listens")
	}
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(time.Minute)
	for {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		conn.Close()
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("the server at %s outlived the test binary", addr)
		}
	}
}

// The wall clock of a server moves when the test says so, and the server goes on.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	clock, option := redistest.WithClock(t)
	client := redistest.Start(t, option).Client(t)
	for _, step := range []time.Duration{0, -time.Hour, 3 * time.Hour} {
		clock.Step(step)
		now, err := client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		want := map[time.Duration]time.Duration{0: 0, -time.Hour: -time.Hour, 3 * time.Hour: 2 * time.Hour}[step]
		if got := time.Until(now).Round(time.Minute); got != want {
			t.Errorf("after a step of %s its clock is %s off, want %s", step, got, want)
		}
	}
}
