package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// destination is what jobs are published to, concurrency how many calls a worker makes
// at once: the default of DESTINATION_<i>_CONCURRENCY.
const (
	destination = "pictures"
	concurrency = 10
)

var silent = slog.New(slog.DiscardHandler)

// check ends a benchmark or test at an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns what a function has returned, or ends a benchmark or test at its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

// progress reports to a person who waits for a benchmark.
func progress(t testing.TB, text string) {
	if _, ok := t.(*testing.B); ok {
		fmt.Fprintln(os.Stderr, text)
	}
}

// pause returns after d, or when the benchmark ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// poll asks every 5 ms until the answer is yes, for 2 minutes.
func poll(t testing.TB, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !yes(); pause(t.Context(), 5*time.Millisecond) {
		if time.Now().After(deadline) || t.Context().Err() != nil {
			t.Fatal("not in time: " + what)
		}
	}
}

// usualPayload is the size of payloads in bytes, unless something else is said.
const usualPayload = 200

// payload returns JSON of size bytes.
func payload(size int) []byte {
	const head, tail = `{"text":"`, `"}`
	return []byte(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
}

func specs(n, size int) []*jobs.Spec {
	out := make([]*jobs.Spec, n)
	body := payload(size)
	for i := range out {
		out[i] = jobs.New(destination, body)
	}
	return out
}

func newClient(t testing.TB, rdb redis.UniversalClient) *jobs.Client {
	t.Helper()
	return must(jobs.NewClient(rdb, jobs.WithDestinations(destination), jobs.WithLogger(silent)))(t)
}

// redisServer is a redis-server with clients.
type redisServer struct {
	*redistest.Server
	rdb    redis.UniversalClient
	client *jobs.Client
}

// startRedis starts a redis-server with an append-only file, as docs/operations.md
// advises, that is synced as appendfsync says.
func startRedis(t testing.TB, appendfsync string) *redisServer {
	t.Helper()
	s := &redisServer{Server: redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", appendfsync))}
	s.rdb = s.Client(t)
	s.client = newClient(t, s.rdb)
	return s
}

// connect returns a client with the options that Tidegate asks for.
func connect(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// fill enqueues n jobs with payloads of size bytes.
func (s *redisServer) fill(t testing.TB, n, size int) {
	t.Helper()
	for _, r := range must(s.client.EnqueueMany(t.Context(), specs(n, size)))(t) {
		check(t, r.Err)
	}
}

// info reads a number from INFO.
func (s *redisServer) info(t testing.TB, section, field string) float64 {
	t.Helper()
	for line := range strings.Lines(must(s.rdb.Info(t.Context(), section).Result())(t)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return must(strconv.ParseFloat(value, 64))(t)
		}
	}
	t.Fatalf("info %s has no %s", section, field)
	return 0
}

// connections counts the workers' connections to Redis.
func (s *redisServer) connections(t testing.TB) float64 {
	t.Helper()
	return float64(strings.Count(must(s.rdb.ClientList(t.Context()).Result())(t), " name=tidegate-worker "))
}

// completed counts completed jobs.
func (s *redisServer) completed(t testing.TB) int64 {
	t.Helper()
	return must(s.rdb.ZCard(t.Context(), store.CompletedKey(store.DefaultNamespace.Queue(destination, store.Default))).Result())(t)
}

// commandsOf sums up the commands that Redis has run since ResetStats, those inside
// scripts included.
func commandsOf(t testing.TB, s *redistest.Server) (total int64) {
	t.Helper()
	for _, n := range s.CommandStats(t) {
		total += n
	}
	return total
}

// memory reads a field of /proc/PID/status, in bytes; 0 where there is none.
func memory(pid int, field string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kb * 1024
		}
	}
	return 0
}

func TestPayloadHasItsSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 200, 1000} {
		if got := len(payload(size)); got != size {
			t.Errorf("payload(%d) has %d bytes", size, got)
		}
	}
}
