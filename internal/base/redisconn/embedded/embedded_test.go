package embedded

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{})
	goleak.VerifyTestMain(m)
}

func start(t *testing.T) (*Server, *redis.Client) {
	t.Helper()
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	options, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries, options.DialerRetries = -1, 1
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return s, client
}

func TestTTLsFollowTheClock(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	if err := client.Set(t.Context(), "long", "x", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), "short", "x", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for client.Exists(ctx, "short").Val() == 1 {
	}
	if ctx.Err() != nil {
		t.Fatal("the key did not expire")
	}
	if left := client.PTTL(ctx, "long").Val(); left <= 0 || left > time.Hour-50*time.Millisecond {
		t.Errorf("time left of the other key: %s, want an hour less what went by", left)
	}
}

// TestLongPipeline sends more than the buffers on the way hold before it reads an
// answer.
func TestLongPipeline(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	value := strings.Repeat("x", 4096)
	pipe := client.Pipeline()
	for range 5000 {
		pipe.Set(t.Context(), "k", value, 0)
	}
	length := pipe.StrLen(t.Context(), "k")
	cmds, err := pipe.Exec(t.Context())
	if err != nil || len(cmds) != 5001 || length.Val() != 4096 {
		t.Fatalf("%d answers, length %d, %v", len(cmds), length.Val(), err)
	}
}

func TestScriptsAndMessages(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	messages := client.Subscribe(t.Context(), "events")
	t.Cleanup(func() { _ = messages.Close() })
	if _, err := messages.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	script := redis.NewScript(`redis.call("PUBLISH", "events", ARGV[1]); return redis.call("TIME")[1]`)
	seconds, err := script.Run(t.Context(), client, nil, "hello").Int64()
	if err != nil {
		t.Fatal(err)
	}
	if away := time.Since(time.Unix(seconds, 0)); away < 0 || away > 40*time.Second {
		t.Errorf("TIME is %s away", away)
	}
	if m, err := messages.ReceiveMessage(t.Context()); err != nil || m.Payload != "hello" {
		t.Errorf("message %v, %v", m, err)
	}
}

func TestPasswordKeepsOthersOut(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	other := redis.NewClient(&redis.Options{Addr: client.Options().Addr, MaxRetries: -1})
	t.Cleanup(func() { _ = other.Close() })
	if err := other.Get(t.Context(), "k").Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}
}

func TestCloseEndsConnections(t *testing.T) {
	t.Parallel()
	s, client := start(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Error("still answers")
	}
	if err := s.Close(); err != nil {
		t.Error("second Close:", err)
	}
}
