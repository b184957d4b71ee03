package redistest_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// childEnv makes the test binary play a test run that gets killed.
const childEnv = "REDISTEST_CHILD"

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func TestStartedServerAnswersItsClientAndItsURL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if err := s.Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	opts, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	defer client.Close()
	if got, err := client.Get(t.Context(), "k").Result(); got != "v" || err != nil {
		t.Errorf("GET k over %s = %q, %v; want v", s.URL(), got, err)
	}
}

func TestPasswordIsAskedForAndUsed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithPassword("p@ss/word"))
	if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("client of the server: %v", err)
	}
	opts, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if opts.Password != "p@ss/word" {
		t.Errorf("password in the URL = %q, want p@ss/word", opts.Password)
	}
	stranger := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer stranger.Close()
	if err := stranger.Ping(t.Context()).Err(); !redis.HasErrorPrefix(err, "NOAUTH") {
		t.Errorf("client without password: %v, want NOAUTH", err)
	}
}

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

func TestStoppedServerRefusesConnections(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Stop()
	s.Stop() // again: nothing to do
	s.Kill()
	if got := s.PID(); got != 0 {
		t.Errorf("PID of a stopped server = %d, want 0", got)
	}
	conn, err := net.Dial("tcp", s.Addr())
	if err == nil {
		conn.Close()
		t.Fatal("a stopped server accepts connections")
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

func TestCommandStatsCountWhatClientsCall(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]redistest.Option{
		"no password": nil,
		"password":    {redistest.WithPassword("secret")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, opts...)
			if got := s.CommandStats(t); len(got) != 0 {
				t.Errorf("stats of a new server = %v, want none", got)
			}
			client := s.Client(t)
			if err := client.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			s.ResetStats(t)
			for range 3 {
				if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := client.ConfigGet(t.Context(), "port").Err(); err != nil {
				t.Fatal(err)
			}
			if err := client.Eval(t.Context(), "return redis.call('GET', KEYS[1])", []string{"k"}).Err(); err != nil {
				t.Fatal(err)
			}
			want := map[string]int64{"set": 3, "config|get": 1, "eval": 1, "get": 1}
			for range 2 { // reading them changes nothing
				if diff := cmp.Diff(want, s.CommandStats(t)); diff != "" {
					t.Errorf("stats (-want +got):\n%s", diff)
				}
			}
			if err := client.Info(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if got := s.CommandStats(t)["info"]; got != 1 {
				t.Errorf("INFO of a client counted %d times, want 1", got)
			}
			s.ResetStats(t)
			if got := s.CommandStats(t); len(got) != 0 {
				t.Errorf("stats after the reset = %v, want none", got)
			}
			s.Restart()
			if got := s.CommandStats(t); len(got) != 0 {
				t.Errorf("stats after a restart = %v, want none", got)
			}
		})
	}
}

func TestArgsReachTheServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithArgs("--maxmemory", "8mb"))
	got, err := s.Client(t).ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil {
		t.Fatal(err)
	}
	if got["maxmemory"] != "8388608" {
		t.Errorf("maxmemory = %s, want 8388608", got["maxmemory"])
	}
}

func TestServersStartedTogetherAreDifferent(t *testing.T) {
	t.Parallel()
	const n = 6
	addrs := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { addrs[i] = redistest.Start(t).Addr() })
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, addr := range addrs {
		if seen[addr] {
			t.Errorf("address %s given out twice", addr)
		}
		seen[addr] = true
	}
}

func TestSharedIsOneServerThatTestsCannotStop(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	if other := redistest.Shared(t); other != s {
		t.Error("Shared returned two servers")
	}
	if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	for name, method := range map[string]func(*redistest.Server){
		"Stop": (*redistest.Server).Stop, "Kill": (*redistest.Server).Kill,
		"Restart": (*redistest.Server).Restart, "Pause": (*redistest.Server).Pause,
		"Resume": (*redistest.Server).Resume,
	} {
		func() {
			defer func() {
				want := "redistest: " + name + " on the shared server would break other tests: use Start"
				if got := recover(); got != want {
					t.Errorf("%s panicked with %v, want %q", name, got, want)
				}
			}()
			method(s)
		}()
	}
}

func TestNamesAreValidAndUnique(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	seen := map[string]bool{}
	for _, prefix := range []string{"dest", "dest", "", "-", "Test/With_Case 1", "ünïcode", strings.Repeat("long-", 40), t.Name()} {
		name := redistest.Name(t, prefix)
		if !valid.MatchString(name) {
			t.Errorf("Name(%q) = %q, which is not valid", prefix, name)
		}
		if seen[name] {
			t.Errorf("Name(%q) = %q a second time", prefix, name)
		}
		seen[name] = true
	}
	if name := redistest.Name(t, "dest"); !strings.HasPrefix(name, "dest-") {
		t.Errorf("Name(dest) = %q, want dest-…", name)
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
