package redistest

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// patience bounds Eventually. It only passes in a test that fails.
const patience = time.Minute

// Eventually polls until ok returns true, and fails the test if that takes a minute.
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
