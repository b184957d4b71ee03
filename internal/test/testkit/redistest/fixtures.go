package redistest

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// patience bounds Eventually. It only passes in a test that fails.
const patience = 3 * time.Minute

// Eventually polls until ok returns true, and fails the test if that takes three minutes.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Await(t, patience, what, ok)
}

// Await polls until ok returns true, and fails the test if that takes too long.
func Await(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		<-poll.C
	}
}

// Slow leaves a test of more than two seconds out of a run with -short, as make quick has.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes more than two seconds")
	}
}

// Logger returns a logger whose records are printed if the test fails.
func Logger(t testing.TB) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Embedded returns a client of an empty Redis in this process, which belongs to the test.
func Embedded(t testing.TB) redis.UniversalClient {
	t.Helper()
	return ClientOf(t, miniredis.RunT(t).Addr())
}

// Both runs a test twice: on a [Database] and on an [Embedded] Redis, which the demo uses.
func Both(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, Database(t).Client(t))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, Embedded(t))
	})
}

// ClientOf returns a client of an address that is closed when the test ends. It honours
// contexts and does not repeat commands.
func ClientOf(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	return clientOf(t, addr, "", 0)
}

func clientOf(t testing.TB, addr, password string, db int) redis.UniversalClient {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:                     addr,
		Password:                 password,
		DB:                       db,
		ContextTimeoutEnabled:    true,
		MaxRetries:               -1,
		DialTimeout:              10 * time.Second, // the machine may be busy
		ReadTimeout:              10 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	closeLater(t, client)
	return client
}

// closeLater closes a client when the test ends.
func closeLater(t testing.TB, client redis.UniversalClient) {
	t.Cleanup(func() {
		if err := client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("redistest: close client: %v", err)
		}
	})
}

// UnusableClients returns clients that no constructor takes, by what they are.
func UnusableClients(t testing.TB) map[string]redis.UniversalClient {
	t.Helper()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, NewClient: func(o *redis.Options) *redis.Client {
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		return redis.NewClient(o)
	}})
	failover := func(o redis.FailoverOptions) redis.UniversalClient {
		o.MasterName, o.SentinelAddrs = "main", []string{"127.0.0.1:1"}
		return redis.NewFailoverClusterClient(&o)
	}
	cluster := func(o redis.ClusterOptions) redis.UniversalClient {
		o.Addrs = []string{"127.0.0.1:1"}
		return redis.NewClusterClient(&o)
	}
	open := map[string]redis.UniversalClient{
		"a ring":                        ring,
		"a cluster that is read-only":   cluster(redis.ClusterOptions{ReadOnly: true}),
		"a cluster by latency":          cluster(redis.ClusterOptions{RouteByLatency: true}),
		"a cluster at random":           cluster(redis.ClusterOptions{RouteRandomly: true}),
		"a failover by latency":         failover(redis.FailoverOptions{RouteByLatency: true}),
		"a failover at random":          failover(redis.FailoverOptions{RouteRandomly: true}),
		"a universal client by latency": redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}, RouteByLatency: true}),
	}
	for _, c := range open {
		closeLater(t, c)
	}
	clients := maps.Clone(open)
	maps.Copy(clients, map[string]redis.UniversalClient{
		"nil":                         nil,
		"a nil client":                (*redis.Client)(nil),
		"a nil cluster":               (*redis.ClusterClient)(nil),
		"a nil ring":                  (*redis.Ring)(nil),
		"a zero client":               &redis.Client{},
		"a zero cluster":              &redis.ClusterClient{},
		"a nil wrapper":               (*wrapped)(nil),
		"a wrapper of nil":            wrapped{},
		"a wrapper of a nil client":   wrapped{(*redis.Client)(nil)},
		"a wrapper of a ring":         &wrapped{ring},
		"a wrapper of a wrapped ring": wrapped{wrapped{ring}},
		"a ring in a struct":          struct{ *redis.Ring }{ring},
	})
	return clients
}

type wrapped struct{ redis.UniversalClient }

// SetRecord sets fields of what the rules have written of a breaker, by names and values. hash is the breaker's key.
func SetRecord(t testing.TB, rdb redis.Cmdable, hash string, pairs ...any) {
	t.Helper()
	fields := map[string]any{}
	text, err := rdb.HGet(t.Context(), hash, "record").Result()
	if err == nil {
		err = json.Unmarshal([]byte(text), &fields)
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(pairs, 2) {
		fields[pair[0].(string)] = pair[1] //nolint:forcetypeassert // a test's own
	}
	record, err := json.Marshal(fields)
	if err == nil {
		err = rdb.HSet(t.Context(), hash, "record", record).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}
