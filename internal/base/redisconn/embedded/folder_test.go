package embedded

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startIn starts a server in dir and returns what closes it.
func startIn(t *testing.T, dir string) (client *redis.Client, end func()) {
	t.Helper()
	s, err := StartIn(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Kept {
		t.Fatal("no redis-server")
	}
	client = redis.NewClient(&redis.Options{Network: "unix", Addr: strings.TrimPrefix(s.URL(), "redis-socket://")})
	return client, func() {
		_ = client.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDataOutlivesARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), ".tidegate")
	client, end := startIn(t, dir)
	if err := client.Set(t.Context(), "k", "\x00\r\nkept", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	end()
	client, end = startIn(t, dir)
	defer end()
	if got := client.Get(t.Context(), "k").Val(); got != "\x00\r\nkept" {
		t.Errorf("after a restart: %q", got)
	}
	if left := client.PTTL(t.Context(), "k").Val(); left <= 0 || left > time.Hour {
		t.Errorf("time left: %s", left)
	}
	if got := URLIn(dir); got != "redis-socket://"+client.Options().Addr {
		t.Errorf("URL of the folder: %q", got)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others may enter the folder: %v, %v", info.Mode(), err)
	}
}

func TestOneProcessAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, end := startIn(t, dir)
	_, err := StartIn(t.Context(), dir)
	if want := "embedded: another process uses " + dir + ": stop it, or start in another folder"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	end()
	_, end = startIn(t, dir)
	end()
}

// A killed process leaves its redis-server behind; the next one uses it, and stops it.
func TestServerOfAKilledProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	left := exec.Command("redis-server", "-")
	left.Dir, left.Stdin = dir, strings.NewReader(settings)
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	before := redis.NewClient(&redis.Options{Network: "unix", Addr: filepath.Join(dir, socketFile)})
	for before.Set(t.Context(), "k", "kept", 0).Err() != nil {
	}
	_ = before.Close()
	client, end := startIn(t, dir)
	if got := client.Get(t.Context(), "k").Val(); got != "kept" {
		t.Errorf("k = %q", got)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestServerThatEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, socketFile), 0o700); err != nil { // no place for the socket
		t.Fatal(err)
	}
	_, err := StartIn(t.Context(), dir)
	if want := "embedded: redis-server has ended (exit status 1); " + filepath.Join(dir, "redis.log") + " says why"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	deep := filepath.Join(dir, strings.Repeat("x", 100))
	if _, err := StartIn(t.Context(), deep); err == nil || !strings.Contains(err.Error(), "is too long for a socket: name another folder with --data") {
		t.Errorf("a long path: %v", err)
	}
}

// Where nothing is installed the data ends with the process.
func TestWithoutRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := t.TempDir()
	s, err := StartIn(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.Kept || URLIn(dir) != s.URL() {
		t.Errorf("kept %t, URL %q, that of the folder %q", s.Kept, s.URL(), URLIn(dir))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
