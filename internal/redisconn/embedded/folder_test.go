package embedded

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// startIn starts a server in dir and returns what closes it.
func startIn(t *testing.T, dir string) (client *redis.Client, end func()) {
	t.Helper()
	s, err := StartIn(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	options, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.Protocol = 2
	client = redis.NewClient(options)
	return client, func() {
		_ = client.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What is read back after a restart, as a client sees it.
func contents(t *testing.T, client *redis.Client) string {
	t.Helper()
	var out []string
	for _, line := range []string{
		"KEYS *", "GET text", "GET binary", "GET empty", "HGETALL hash", "HLEN large", "HGET large 1999", "LRANGE list 0 -1", "SMEMBERS set",
		"ZRANGE zset 0 -1 WITHSCORES", "XRANGE stream - +", "XINFO STREAM stream", "XLEN gone", "XINFO STREAM gone", "PEXPIRETIME hash", "GET passed",
	} {
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, word)
		}
		got, err := client.Do(t.Context(), args...).Result()
		out = append(out, fmt.Sprintf("%s: %q %v", line, got, err))
	}
	return strings.Join(out, "\n")
}

func TestDataOutlivesARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), ".tidegate")
	client, end := startIn(t, dir)
	large := map[string]any{}
	for n := range 2000 {
		large[fmt.Sprint(n)] = n
	}
	expires := time.Now().Add(time.Hour).UnixMilli()
	_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		ctx := t.Context()
		p.Set(ctx, "text", "Dawn", 0)
		p.Do(ctx, "PEXPIREAT", "text", expires)
		p.Set(ctx, "binary", "\x00\r\n$3\r\n\xff*", 0)
		p.Set(ctx, "empty", "", 0)
		p.Set(ctx, "passed", "x", 50*time.Millisecond)
		p.HSet(ctx, "hash", "a", "1", "b", "")
		p.HSet(ctx, "large", large)
		p.RPush(ctx, "list", "c", "a", "b", "a")
		p.SAdd(ctx, "set", "x", "y")
		p.ZAdd(ctx, "zset", redis.Z{Score: 1795734000123.5, Member: "m"}, redis.Z{Score: 0.1, Member: "n"}, redis.Z{Score: -3, Member: "o"})
		p.Do(ctx, "ZADD", "zset", "+inf", "p")
		p.Do(ctx, "XADD", "stream", "1-1", "k", "v", "k", "w")
		p.Do(ctx, "XADD", "stream", "2-0", "k", "v")
		p.Do(ctx, "XADD", "stream", "3-7", "k", "v")
		p.Do(ctx, "XDEL", "stream", "3-7")
		p.Do(ctx, "XADD", "gone", "9-9", "k", "v")
		p.Do(ctx, "XDEL", "gone", "9-9")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for client.Exists(t.Context(), "passed").Val() == 1 {
	}
	want := contents(t, client)
	address := client.Options().Addr
	for range 2 {
		end()
		client, end = startIn(t, dir)
		if diff := cmp.Diff(want, contents(t, client)); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
		// TTLs are looked at every few milliseconds.
		if got := client.Do(t.Context(), "PEXPIRETIME", "text").Val().(int64); got < expires-1000 || got > expires+1000 {
			t.Errorf("the key expires at %d, want %d", got, expires)
		}
		if got := client.Options().Addr; got != address {
			t.Errorf("the address changed from %s to %s", address, got)
		}
	}
	end()
	for _, name := range []string{dataFile, urlFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// A process that is killed loses what came after its last snapshot only.
func TestSavesMeanwhile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	client, end := startIn(t, dir)
	defer end()
	if err := client.Set(t.Context(), "k", "kept", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		content, err := os.ReadFile(filepath.Join(dir, dataFile))
		if err == nil && strings.Contains(string(content), "kept") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no snapshot")
		}
	}
}

func TestOneProcessAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, end := startIn(t, dir)
	_, err := StartIn(t.Context(), dir, slog.New(slog.DiscardHandler))
	if want := "embedded: another process uses " + dir + ": stop it, or start in another folder"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	end()
	_, end = startIn(t, dir)
	end()
}

// A damaged snapshot is refused and left as it is.
func TestDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	client, end := startIn(t, dir)
	if err := client.Set(t.Context(), "k", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	end()
	path := filepath.Join(dir, dataFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string]string{
		"empty": "", "a changed value": strings.Replace(string(whole), "value", "valve", 1), "something behind": string(whole) + "*1\r\n$4\r\nPING\r\n",
		"large numbers": "*999999999\r\n$1\r\n", "no command": "*0\r\n",
	}
	for n := range whole {
		damaged[fmt.Sprint("cut at ", n)] = string(whole[:n])
	}
	for name, content := range damaged {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := StartIn(t.Context(), dir, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "the snapshot "+path+" is damaged") {
			t.Fatalf("%s: %v", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != content {
			t.Fatalf("%s: the snapshot changed: %q, %v", name, after, err)
		}
	}
}
