package redisconn

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestWaitUntilStarted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	client := open(t, server.URL())
	l := &notifyingLogs{first: make(chan struct{}, 1)}
	result := make(chan error, 1)
	go func() { result <- Wait(t.Context(), client, l.logger(), 30*time.Second) }()
	<-l.first
	server.Restart()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	lines := l.lines()
	if len(lines) != 2 {
		t.Fatalf("logged %q, want two lines", lines)
	}
	want := "level=WARN msg=\"Redis not reachable; check REDIS_URL or start Redis\" addr=" + server.Addr() +
		" reason=\"connect: connection refused\" trying_for=30s\n"
	if diff := cmp.Diff(want, lines[0]); diff != "" {
		t.Errorf("first line (-want +got):\n%s", diff)
	}
	reachable := regexp.MustCompile(`^level=INFO msg="Redis reachable" addr=` + server.Addr() + ` after=[0-9.]+m?s\n$`)
	if !reachable.MatchString(lines[1]) {
		t.Errorf("second line %q", lines[1])
	}
}

// notifyingLogs tells of the first line.
type notifyingLogs struct {
	logs
	first chan struct{}
}

func (l *notifyingLogs) Write(p []byte) (int, error) {
	select {
	case l.first <- struct{}{}:
	default:
	}
	return l.logs.Write(p)
}

func (l *notifyingLogs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestWaitGivesUp(t *testing.T) {
	t.Parallel()
	addr := "127.0.0.1:" + strconv.Itoa(redistest.Port(t))
	var l logs
	start := time.Now()
	err := Wait(t.Context(), open(t, "redis://:hunter2@"+addr), l.logger(), 400*time.Millisecond)
	took := time.Since(start)
	if want := "redisconn: Redis not reachable at " + addr + " for 400ms (connect: connection refused); check REDIS_URL or start Redis"; err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error("the error does not wrap its cause")
	}
	if took < 400*time.Millisecond || took > 30*time.Second {
		t.Errorf("gave up after %s", took)
	}
	if lines := l.lines(); len(lines) != 1 {
		t.Errorf("logged %q, want one line", lines)
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	t.Parallel()
	addr := "127.0.0.1:" + strconv.Itoa(redistest.Port(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	l := &notifyingLogs{first: make(chan struct{}, 1)}
	result := make(chan error, 1)
	go func() { result <- Wait(ctx, open(t, "redis://"+addr), l.logger(), time.Minute) }()
	<-l.first
	stop := errors.New("terminated")
	cancel(stop)
	if err := <-result; !errors.Is(err, stop) || err.Error() != "redisconn: wait for Redis at "+addr+": terminated" {
		t.Errorf("got %v", err)
	}
}

func TestWaitRefusesAtOnce(t *testing.T) {
	t.Parallel()
	secured := redistest.Start(t, redistest.WithPassword("pw"))
	plain := redistest.Shared(t)
	for url, want := range map[string]string{
		"redis://:hunter2@" + secured.Addr(): "redisconn: Redis at " + secured.Addr() +
			" cannot be used (WRONGPASS invalid username-password pair or user is disabled.); check user and password in REDIS_URL",
		"redis://" + secured.Addr(): "redisconn: Redis at " + secured.Addr() +
			" cannot be used (NOAUTH Authentication required.); check user and password in REDIS_URL",
		"redis://" + plain.Addr() + "/9999": "redisconn: Redis at " + plain.Addr() +
			" cannot be used (ERR DB index is out of range); check the database number in REDIS_URL",
	} {
		var l logs
		err := Wait(t.Context(), open(t, url), l.logger(), time.Minute)
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", Redact(url), err, want)
		}
		if lines := l.lines(); lines != nil {
			t.Errorf("%s: logged %q", Redact(url), lines)
		}
	}
}

// fakeRedis answers PING and INFO as a server of that version; it knows no other
// command.
func fakeRedis(t *testing.T, info string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveFake(conn, info)
		}
	}()
	return listener.Addr().String()
}

func serveFake(conn net.Conn, info string) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for {
		var count int
		if _, err := fmt.Fscanf(in, "*%d\r\n", &count); err != nil {
			return
		}
		var args []string
		for range count {
			var size int
			if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
				return
			}
			arg := make([]byte, size+2)
			if _, err := io.ReadFull(in, arg); err != nil {
				return
			}
			args = append(args, strings.ToUpper(string(arg[:size])))
		}
		answer := "-ERR unknown command\r\n"
		switch args[0] {
		case "PING":
			answer = "+PONG\r\n"
		case "CLIENT":
			answer = "+OK\r\n"
		case "INFO":
			answer = fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

func TestWaitVersions(t *testing.T) {
	t.Parallel()
	for version, old := range map[string]bool{
		"5.0.14": true, "6.0.16": true, "6.1.9": true, "6.2.0": false, "7.0.15": false, "8.4.0": false, "10.0.1": false, "255.255.255": false, "unstable": false, "": false,
	} {
		addr := fakeRedis(t, "# Server\r\nredis_version:"+version+"\r\nredis_mode:standalone\r\n")
		err := Wait(t.Context(), open(t, "redis://"+addr), slog.New(slog.DiscardHandler), time.Second)
		want := ""
		if old {
			want = "redisconn: Redis " + version + " at " + addr + " is too old; use 6.2 or later"
		}
		if got := fmt.Sprint(err); (err != nil || want != "") && got != want {
			t.Errorf("version %q: %v, want %q", version, err, want)
		}
	}
}

func TestWaitWarnsOfEviction(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
	var l logs
	if err := Wait(t.Context(), open(t, server.URL()), l.logger(), time.Second); err != nil {
		t.Fatal(err)
	}
	want := []string{"level=WARN msg=\"Redis may drop jobs when its memory is full; set its maxmemory-policy to noeviction\" addr=" +
		server.Addr() + " maxmemory_policy=allkeys-lru\n"}
	if diff := cmp.Diff(want, l.lines()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// A user who may not ask is not bothered.
	if err := server.Client(t).Do(t.Context(), "ACL", "SETUSER", "app", "on", ">pw", "~*", "+ping", "+hello", "+client").Err(); err != nil {
		t.Fatal(err)
	}
	l = logs{}
	if err := Wait(t.Context(), open(t, "redis://app:pw@"+server.Addr()), l.logger(), time.Second); err != nil {
		t.Fatal(err)
	}
	if lines := l.lines(); lines != nil {
		t.Errorf("logged %q", lines)
	}
}

func TestAddressOfForeignClients(t *testing.T) {
	t.Parallel()
	single := redis.NewClient(&redis.Options{Addr: "h:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"a:1", "b:2"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "h:1"}})
	for client, want := range map[redis.UniversalClient]string{single: "h:1", cluster: "Cluster a:1,b:2", ring: "the configured address"} {
		if got, useTLS := address(client); got != want || useTLS {
			t.Errorf("address(%T) = %q, %t, want %q", client, got, useTLS, want)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}
