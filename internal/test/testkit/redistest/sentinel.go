package redistest

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// masterName is what the Sentinels call the master.
	masterName = "main"
	// sentinels is how many watch; two of them make a quorum.
	sentinels = 3
	// downAfter is how long a master may be silent before a Sentinel takes it for
	// dead, which it must not do because a machine is busy; failoverTimeout is how
	// long a failover may take.
	downAfter       = 2 * time.Second
	failoverTimeout = 5 * time.Second
	// formTimeout bounds the time in which servers must find each other.
	formTimeout = 2 * time.Minute
)

// Sentinel is a master with its replicas and three Sentinels that watch them, each
// a process of its own.
type Sentinel struct {
	t        testing.TB
	servers  []*Server
	watchers []*Server
}

// StartSentinel runs a master, the given number of replicas, and three Sentinels that take a master for dead after
// two seconds of silence. It returns when the replicas have the master's data and all Sentinels know all others. The
// options are for the master and the replicas; one that sets a password is not supported.
func StartSentinel(t testing.TB, replicas int, opts ...Option) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	opts = append([]Option{WithArgs("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")}, opts...)
	for range 1 + replicas {
		s.servers = append(s.servers, Start(t, opts...))
	}
	master := s.servers[0]
	for _, replica := range s.servers[1:] {
		mustAsk(t, replica, "REPLICAOF", "127.0.0.1", strconv.Itoa(master.port))
	}
	for _, replica := range s.servers[1:] {
		Await(t, formTimeout, "a replica is in step", func() bool { return inStep(replica) })
	}
	for range sentinels {
		s.watchers = append(s.watchers, startWatcher(t, master))
	}
	found := fmt.Sprintf("name=%s,status=ok,address=%s,slaves=%d,sentinels=%d", masterName, master.Addr(), replicas, sentinels)
	for _, w := range s.watchers {
		Await(t, formTimeout, "the Sentinels know each other", func() bool {
			info, err := w.ask("INFO", "sentinel")
			return err == nil && strings.Contains(info, found)
		})
	}
	return s
}

// startWatcher runs one Sentinel. It keeps what it learns in its configuration file
// and does not start without one.
func startWatcher(t testing.TB, master *Server) *Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	lines := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", masterName, master.port, sentinels/2+1),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", masterName, downAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s %d", masterName, failoverTimeout.Milliseconds()),
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Start(t, func(s *Server) { s.config = file }, WithArgs("--sentinel"))
}

// URL returns the address in the form of REDIS_URL.
func (s *Sentinel) URL() string {
	u := url.URL{
		Scheme: "redis-sentinel", Host: strings.Join(addrs(s.watchers), ","), Path: "/0",
		RawQuery: url.Values{"master": {masterName}}.Encode(),
	}
	return u.String()
}

// Client returns a client of whatever server is the master. It is closed when the
// test ends, honours contexts and does not repeat commands.
func (s *Sentinel) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:            masterName,
		SentinelAddrs:         addrs(s.watchers),
		ContextTimeoutEnabled: true,
		MaxRetries:            -1,
	})
	closeLater(t, client)
	return client
}

// Servers returns the master of the start and its replicas, for tests to kill, pause
// and restart.
func (s *Sentinel) Servers() []*Server { return s.servers }

// Master returns the server that most Sentinels agree on as the master and that is
// one, nil while there is none.
func (s *Sentinel) Master() *Server {
	votes := map[string]int{}
	for _, w := range s.watchers {
		info, err := w.ask("INFO", "sentinel")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(info, "address=")
		addr, _, _ := strings.Cut(rest, ",")
		votes[addr]++
	}
	for _, server := range s.servers {
		if votes[server.Addr()] > sentinels/2 && isMaster(server) {
			return server
		}
	}
	return nil
}

// AwaitMaster waits until another server than the given one is the master, and
// returns it.
func (s *Sentinel) AwaitMaster(t testing.TB, other *Server, within time.Duration) *Server {
	t.Helper()
	var found *Server
	Await(t, within, "the Sentinels agree on another master", func() bool {
		found = s.Master()
		return found != nil && found != other
	})
	return found
}

// inStep reports whether a replica has its master's data and hears from it.
func inStep(s *Server) bool {
	info, err := s.ask("INFO", "replication")
	return err == nil && strings.Contains(info, "role:slave\r\n") && strings.Contains(info, "master_link_status:up\r\n")
}

func isMaster(s *Server) bool {
	info, err := s.ask("INFO", "replication")
	return err == nil && strings.Contains(info, "role:master\r\n")
}

// ask sends one command whose answer is a string or a number.
func (s *Server) ask(args ...string) (string, error) {
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	return s.command(answerTimeout, args...)
}

// mustAsk ends the test if the command fails.
func mustAsk(t testing.TB, s *Server, args ...string) string {
	t.Helper()
	answer, err := s.ask(args...)
	if err != nil {
		t.Fatalf("redistest: %s to %s: %v", strings.Join(args, " "), s.Addr(), err)
	}
	return answer
}

func addrs(servers []*Server) []string {
	out := make([]string, len(servers))
	for i, s := range servers {
		out[i] = s.Addr()
	}
	return out
}
