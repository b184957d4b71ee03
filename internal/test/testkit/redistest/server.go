package redistest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// readyTimeout bounds a start; a loaded machine may take seconds to load a large file.
	readyTimeout = 2 * time.Minute
	// stopTimeout bounds an orderly stop, after which the server is killed.
	stopTimeout = time.Minute
	// pollEvery is the pause between two looks at a server that starts.
	pollEvery = 2 * time.Millisecond
	// answerTimeout bounds one question to a server that starts, since whatever
	// took its port may never answer.
	answerTimeout = 500 * time.Millisecond
	// portTries bounds the search for a free port.
	portTries = 50
)

// errPortTaken means that something else listens on the port that was chosen.
var errPortTaken = errors.New("port is taken")

// Server is a redis-server process on a loopback port. The port and the
// directory stay the same when it is restarted.
type Server struct {
	t        testing.TB // nil for the shared server
	path     string     // of the program
	dir      string
	password string
	config   string // a file that it reads first, "" for none
	args     []string
	env      []string // added to its environment
	port     int
	db       int
	held     io.Closer // keeps the port

	mu   sync.Mutex
	proc *process // nil before the first start

	statsMu sync.Mutex       // held while counts are read or reset
	own     map[string]int64 // calls made by this package, left out of CommandStats
}

// launch starts a server on a free port and waits until it answers.
func launch(path, dir string, opts []Option) (*Server, error) {
	s := &Server{path: path, dir: dir}
	for _, opt := range opts {
		opt(s)
	}
	for range portTries {
		s.port = randomPort()
		held, ok := reserve(s.port)
		if !ok {
			continue
		}
		err := s.run()
		if err == nil {
			s.held = held
			return s, nil
		}
		_ = held.Close()
		if !errors.Is(err, errPortTaken) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("redistest: no free port after %d tries", portTries)
}

// randomPort stays below the range that systems hand out to outgoing connections,
// so that none of those takes the port while the server is down.
func randomPort() int { return 20000 + rand.IntN(12000) } //nolint:gosec // a port needs no secrecy

// reserve takes a port that nothing listens on at this moment. What it returns keeps
// the servers of other test binaries from it, also while this one is down: the UDP
// port of the same number, which Redis has no use for. Something else may still take
// the port; the server then says so.
func reserve(port int) (io.Closer, bool) {
	held, err := net.ListenPacket("udp4", loopback(port))
	if err != nil {
		return nil, false
	}
	l, err := net.Listen("tcp4", loopback(port))
	if err != nil || l.Close() != nil {
		_ = held.Close()
		return nil, false
	}
	return held, true
}

// Port returns a loopback port that nothing listens on, and keeps the servers of this
// package from it until the test ends.
func Port(t testing.TB) int {
	t.Helper()
	for range portTries {
		port := randomPort()
		if held, ok := reserve(port); ok {
			t.Cleanup(func() { _ = held.Close() })
			return port
		}
	}
	t.Fatalf("redistest: no free port after %d tries", portTries)
	return 0
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// run starts the process and waits until it answers.
func (s *Server) run() error {
	args := []string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", "",
	}
	if s.config != "" {
		args = append([]string{s.config}, args...)
	}
	if s.password != "" {
		args = append(args, "--requirepass", s.password)
	}
	proc, err := startProcess(s.path, append(args, s.args...), s.env...)
	if err != nil {
		return fmt.Errorf("redistest: start %s: %w", s.path, err)
	}
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	s.own = map[string]int64{}
	if err := s.waitReady(proc); err != nil {
		return errors.Join(err, proc.kill())
	}
	return nil
}

// waitReady returns when the process, and not some other server that was quicker
// to take the port, answers.
func (s *Server) waitReady(proc *process) error {
	deadline := time.NewTimer(readyTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-proc.done:
			if out := proc.out.String(); strings.Contains(out, "Address already in use") {
				return fmt.Errorf("redistest: listen on %s: %w", s.Addr(), errPortTaken)
			}
			return fmt.Errorf("redistest: redis-server ended at its start (%w); its output:\n%s", proc.ended(), &proc.out)
		case <-deadline.C:
			return fmt.Errorf("redistest: no answer from redis-server within %s; its output:\n%s", readyTimeout, &proc.out)
		case <-poll.C:
			info, err := s.command(answerTimeout, "INFO", "server")
			if err != nil || !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", proc.pid)) {
				continue
			}
			// While it loads its file the server answers PING with an error.
			if _, err := s.command(answerTimeout, "PING"); err == nil {
				return nil
			}
		}
	}
}

// Addr returns host and port.
func (s *Server) Addr() string { return loopback(s.port) }

// URL returns the address in the form of REDIS_URL, password included.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/" + strconv.Itoa(s.db)}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Client returns a client that is closed when the test ends. It honours
// contexts and does not repeat commands.
func (s *Server) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	return clientOf(t, s.Addr(), s.password, s.db)
}

// PID returns the id of the running process, 0 while the server is down.
func (s *Server) PID() int {
	if proc := s.process(); proc != nil && proc.running() {
		return proc.pid
	}
	return 0
}

// Stop ends the server in an orderly way, as SHUTDOWN does, and returns when the
// process is gone. A server that is down stays down.
func (s *Server) Stop() {
	t := s.owner("Stop")
	t.Helper()
	if err := s.process().stop(); err != nil {
		t.Fatalf("redistest: stop: %v", err)
	}
}

// Kill ends the server with SIGKILL and returns when the process is gone.
func (s *Server) Kill() {
	t := s.owner("Kill")
	t.Helper()
	if err := s.process().kill(); err != nil {
		t.Fatalf("redistest: kill: %v", err)
	}
}

// Restart starts the server again, on the same port and directory, after
// stopping it if it runs. Its data is back if it was started WithAOF, else gone.
func (s *Server) Restart() {
	t := s.owner("Restart")
	t.Helper()
	if err := s.process().stop(); err != nil {
		t.Fatalf("redistest: restart: stop: %v", err)
	}
	if err := s.run(); err != nil {
		t.Fatalf("redistest: restart: %v", err)
	}
}

// Pause freezes the server (SIGSTOP): connections stay up, nothing is answered.
func (s *Server) Pause() {
	t := s.owner("Pause")
	t.Helper()
	if err := s.process().freeze(); err != nil {
		t.Fatalf("redistest: pause: %v", err)
	}
}

// Resume lets a paused server go on.
func (s *Server) Resume() {
	t := s.owner("Resume")
	t.Helper()
	if err := s.process().signal(syscall.SIGCONT); err != nil {
		t.Fatalf("redistest: resume: %v", err)
	}
}

// owner returns the test that the server belongs to.
func (s *Server) owner(method string) testing.TB {
	if s.t == nil {
		panic("redistest: " + method + " on the shared server would break other tests: use Start")
	}
	return s.t
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// output returns the end of what the running process printed.
func (s *Server) output() string { return s.process().out.String() }

// end kills the server at the end of a test or of all tests: it keeps nothing.
func (s *Server) end() {
	if err := s.process().kill(); err != nil {
		fmt.Fprintln(os.Stderr, "redistest: end:", err)
	}
	_ = s.held.Close()
}
