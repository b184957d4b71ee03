package redisconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// open opens a client that is closed with the test.
func open(t *testing.T, rawURL string) redis.UniversalClient {
	t.Helper()
	client, closer, err := Open(t.Context(), rawURL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// logs collects log lines, without the time.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func (l *logs) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(strings.Lines(l.buf.String()))
}

// roundTrip waits for the client's server and uses it.
func roundTrip(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	var l logs
	if err := Wait(t.Context(), client, l.logger(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if lines := l.lines(); lines != nil {
		t.Errorf("Wait logged %q", lines)
	}
	key := redistest.Name(t, "key")
	if err := client.Set(t.Context(), key, "value", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Get(t.Context(), key).Result(); err != nil || got != "value" {
		t.Fatalf("GET = %q, %v", got, err)
	}
	script := redis.NewScript(`return redis.call("EXISTS", KEYS[1])`)
	if got, err := script.Run(t.Context(), client, []string{key}).Int(); err != nil || got != 1 {
		t.Fatalf("script = %d, %v", got, err)
	}
}

func TestOpenSingle(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := open(t, server.URL())
	roundTrip(t, client)
	if IsCluster(client) {
		t.Error("IsCluster")
	}
	info, err := client.ClientInfo(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if info.Name != "tidegate" || info.LibName != "" {
		t.Errorf("client name %q, library %q, want tidegate and none", info.Name, info.LibName)
	}
}

func TestOpenPasswordAndDatabase(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithPassword("hunt/er2@"))
	admin := server.Client(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">hunt/er2@", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, open(t, "redis://:hunt%2Fer2%40@"+server.Addr()+"/0"))
	client := open(t, "redis://app:hunt%2Fer2%40@"+server.Addr()+"/3")
	roundTrip(t, client)
	info, err := client.ClientInfo(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if info.DB != 3 || info.User != "app" {
		t.Errorf("database %d, user %q, want 3 and app", info.DB, info.User)
	}
}

func TestOpenSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.sock")
	redistest.Start(t, redistest.WithArgs("--unixsocket", path), redistest.WithPassword("pw"))
	roundTrip(t, open(t, "redis-socket://:pw@"+path+"?db=1"))
}

func TestOpenTLS(t *testing.T) {
	t.Parallel()
	server := redistest.StartTLS(t)
	roundTrip(t, open(t, server.URL()))
	addr, caFile := server.TLSAddr(), server.Certs.CAFile

	for _, tt := range []struct {
		url, want string
		patience  time.Duration
	}{
		{"rediss://" + addr, "redisconn: Redis at " + addr +
			" cannot be used (tls: failed to verify certificate: x509: certificate signed by unknown authority); check the host name, and ca_file in REDIS_URL", time.Minute},
		{"rediss://" + server.Addr(), "redisconn: Redis not reachable at " + server.Addr() +
			" for 300ms (no answer; a server without TLS gives none: then use redis://); check REDIS_URL or start Redis", 300 * time.Millisecond},
		{"rediss://" + addr + "?ca_file=" + caFile, "redisconn: Redis at " + addr +
			" cannot be used (tls: certificate required); give cert_file and key_file in REDIS_URL", time.Minute},
		{"redis://" + addr, "redisconn: Redis not reachable at " + addr +
			" for 1s (the connection is closed at once; a server with TLS does that: then use rediss://); check REDIS_URL or start Redis", time.Second},
	} {
		err := Wait(t.Context(), open(t, tt.url), slog.New(slog.DiscardHandler), tt.patience)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s:\n got %v\nwant %s", tt.url, err, tt.want)
		}
	}
}

// startSentinel runs a Sentinel that watches the server as "main", and returns
// its address.
func startSentinel(t *testing.T, server *redistest.Server, password string) string {
	t.Helper()
	host, masterPort, _ := net.SplitHostPort(server.Addr())
	port := strconv.Itoa(redistest.Port(t))
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	lines := []string{
		"port " + port, "bind 127.0.0.1", "dir " + dir, "sentinel monitor main " + host + " " + masterPort + " 1",
		"sentinel auth-pass main " + password, "requirepass sentinel-pw",
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return "127.0.0.1:" + port
}

func TestOpenSentinel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithPassword("pw"))
	sentinel := startSentinel(t, server, "pw")
	options := "&sentinel_password=sentinel-pw"

	client := open(t, "redis-sentinel://:pw@127.0.0.1:"+strconv.Itoa(redistest.Port(t))+","+sentinel+"/2?master=main"+options)
	if err := Wait(t.Context(), client, slog.New(slog.DiscardHandler), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, client)
	if IsCluster(client) {
		t.Error("IsCluster")
	}
	info, err := client.ClientInfo(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if info.DB != 2 || info.LAddr != server.Addr() {
		t.Errorf("connected to %s, database %d, want %s and 2", info.LAddr, info.DB, server.Addr())
	}

	var l logs
	err = Wait(t.Context(), open(t, "redis-sentinel://:pw@"+sentinel+"?master=other"+options), l.logger(), 300*time.Millisecond)
	const reason = "(the Sentinels do not know a master of this name)"
	if want := "redisconn: Redis not reachable at master other of Sentinel " + sentinel + " for 300ms " + reason + "; check REDIS_URL or start Redis"; err == nil || err.Error() != want {
		t.Errorf("unknown master:\n got %v\nwant %s", err, want)
	}
	err = Wait(t.Context(), open(t, "redis://:sentinel-pw@"+sentinel), l.logger(), time.Second)
	if want := "redisconn: the server at " + sentinel + " is a Sentinel; use redis-sentinel://…?master=NAME in REDIS_URL"; err == nil || err.Error() != want {
		t.Errorf("plain client of a Sentinel:\n got %v\nwant %s", err, want)
	}
}

func TestOpenCluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, node := range redistest.StartCluster(t).Nodes() {
		addrs = append(addrs, node.Addr())
	}
	client := open(t, "redis-cluster://"+addrs[0]+","+addrs[1])
	for range 10 { // keys of several slots
		roundTrip(t, client)
	}
	if !IsCluster(client) {
		t.Error("not IsCluster")
	}
	if one := open(t, "redis-cluster://"+addrs[2]); !IsCluster(one) {
		t.Error("one address: not IsCluster")
	} else {
		roundTrip(t, one)
	}

	err := Wait(t.Context(), open(t, "redis://"+addrs[0]), slog.New(slog.DiscardHandler), time.Second)
	if want := "redisconn: the server at " + addrs[0] + " is part of a Redis Cluster; use redis-cluster:// in REDIS_URL"; err == nil || err.Error() != want {
		t.Errorf("plain client of a Cluster:\n got %v\nwant %s", err, want)
	}
	single := redistest.Shared(t).Addr()
	err = Wait(t.Context(), open(t, "redis-cluster://"+single), slog.New(slog.DiscardHandler), time.Second)
	if want := "redisconn: Redis at Cluster " + single + " cannot be used (ERR This instance has cluster support disabled); it is not a Cluster: use redis:// in REDIS_URL"; err == nil || err.Error() != want {
		t.Errorf("Cluster client of a plain server:\n got %v\nwant %s", err, want)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	if _, _, err := Open(t.Context(), "redis://:hunter2@h:x", Options{}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("bad URL: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Open(ctx, "redis://h", Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled context: %v", err)
	}
}

// blackHole returns an address where connections are neither accepted nor
// refused, as behind a firewall that drops packets: a listener whose queue is
// full.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 10 {
		conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the listener takes every connection")
	return ""
}

// TestDeadlineCountsOnBlackHole has one server that swallows packets, and one
// that accepts and never answers.
func TestDeadlineCountsOnBlackHole(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, addr := range map[string]string{"drops packets": blackHole(t), "never answers": silent.Addr().String()} {
		for _, url := range []string{
			"redis://" + addr, "rediss://" + addr, "redis-sentinel://" + addr + "?master=m", "redis-cluster://" + addr,
		} {
			t.Run(name+"/"+strings.SplitN(url, ":", 2)[0], func(t *testing.T) {
				t.Parallel()
				client := open(t, url)
				fastest := time.Hour
				for range 10 { // the machine may be busy
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					start := time.Now()
					err := client.Ping(ctx).Err()
					cancel()
					if err == nil {
						t.Error("no error")
					}
					if fastest = min(fastest, time.Since(start)); fastest < 1500*time.Millisecond { // less than a dial or a read may take
						return
					}
				}
				t.Errorf("returned after %s", fastest)
			})
		}
	}
}

func TestOpenEmbedded(t *testing.T) {
	t.Parallel()
	client, closer, err := Open(t.Context(), "embedded:", Options{})
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, client)
	if err := closer.Close(); err != nil {
		t.Error(err)
	}
	if err := closer.Close(); err != nil {
		t.Error("second Close:", err)
	}
	if err := client.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
