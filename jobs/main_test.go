package jobs_test

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// bench is a client and one destination of its own.
type bench struct {
	*jobs.Client
	t    *testing.T
	rdb  redis.UniversalClient
	dest string
}

func newBench(t *testing.T, opts ...jobs.ClientOption) *bench {
	t.Helper()
	return benchOn(t, redistest.Database(t).Client(t), opts...)
}

func benchOn(t *testing.T, rdb redis.UniversalClient, opts ...jobs.ClientOption) *bench {
	t.Helper()
	b := &bench{t: t, rdb: rdb, dest: redistest.Name(t, "d")}
	opts = append([]jobs.ClientOption{jobs.WithDestinations(b.dest), jobs.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	var err error
	if b.Client, err = jobs.NewClient(rdb, opts...); err != nil {
		t.Fatal(err)
	}
	return b
}

// enqueue accepts a job with the payload {}.
func (b *bench) enqueue(opts ...jobs.Option) *jobs.Job {
	b.t.Helper()
	j, err := b.Enqueue(context.Background(), jobs.New(b.dest, struct{}{}, opts...))
	if err != nil {
		b.t.Fatal(err)
	}
	return j
}

func (b *bench) get(id string) *jobs.Job {
	b.t.Helper()
	j, err := b.Get(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return j
}

// queue is the destination's queue of default priority.
func (b *bench) queue() string { return store.DefaultNamespace.Queue(b.dest, store.Default) }

// waiting returns the ids of a queue, the next one to run first.
func (b *bench) waiting(queue string) []string {
	b.t.Helper()
	ids, err := b.rdb.LRange(context.Background(), store.PendingKey(queue), 0, -1).Result()
	b.must(err)
	slices.Reverse(ids)
	return ids
}

// set writes fields of a job's record as a worker would.
func (b *bench) set(id string, fields ...any) {
	b.t.Helper()
	b.must(b.rdb.HSet(context.Background(), store.TaskKey(b.queue(), id), fields...).Err())
}

// take moves the job that is next into a worker's hands.
func (b *bench) take() (id string) {
	b.t.Helper()
	id, err := b.rdb.LMove(context.Background(), store.PendingKey(b.queue()), store.ActiveKey(b.queue()), "RIGHT", "LEFT").Result()
	b.must(err)
	b.set(id, store.FieldState, store.StateActive)
	return id
}

// end takes a job out of a worker's hands into one of the sets.
func (b *bench) end(id, key, state string, score float64) {
	b.t.Helper()
	ctx := context.Background()
	b.must(b.rdb.LRem(ctx, store.ActiveKey(b.queue()), 1, id).Err())
	b.must(b.rdb.ZAdd(ctx, key, redis.Z{Score: score, Member: id}).Err())
	b.set(id, store.FieldState, state)
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func idsOf(js []*jobs.Job) []string {
	out := make([]string, len(js))
	for i, j := range js {
		out[i] = j.ID
	}
	return out
}
