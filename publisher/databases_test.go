package publisher_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// fixtureOfDatabase is a fixture in another database of the server of b, with the same
// destination.
func (b *fixture) fixtureOfDatabase(s *redistest.Server, db int) *fixture {
	b.t.Helper()
	other := *b
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), DB: db})
	b.t.Cleanup(func() { _ = rdb.Close() })
	other.rdb = rdb
	var err error
	other.client, err = jobs.NewClient(rdb, jobs.WithDestinations(b.dest), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		b.t.Fatal(err)
	}
	return &other
}

// Channels are common to all databases of a server: the cancel of a job does not cut
// the call of the job with the same id in another database.
func TestCancelInAnotherDatabase(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	production := fixtureOn(t, s)
	staging := production.fixtureOfDatabase(s, 1)
	running, cut := make(chan string, 10), make(chan string, 10)
	call := func(where string) func(context.Context, *jobs.Job) error {
		return func(ctx context.Context, job *jobs.Job) error {
			running <- where + job.ID
			<-ctx.Done()
			cut <- where + job.ID
			return ctx.Err()
		}
	}
	production.run(production.options(), call("production "))
	staging.run(staging.options(), call("staging "))
	await := func(c chan string, want string) {
		t.Helper()
		if got := signal(t, want, c); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	production.enqueue(jobs.ID("same"))
	await(running, "production same")
	staging.enqueue(jobs.ID("same"))
	await(running, "staging same")
	production.enqueue(jobs.ID("last"))
	await(running, "production last")

	if err := staging.client.Cancel(t.Context(), "same"); err != nil {
		t.Fatal(err)
	}
	await(cut, "staging same")
	// Messages come in order: after this one, the other one has been heard.
	if err := production.client.Cancel(t.Context(), "last"); err != nil {
		t.Fatal(err)
	}
	await(cut, "production last")
	if err := production.client.Cancel(t.Context(), "same"); err != nil {
		t.Fatal(err)
	}
	await(cut, "production same")
}
