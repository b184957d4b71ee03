package publisher_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// queue is the destination's queue of the default priority.
func (b *fixture) queue() string { return store.DefaultNamespace.Queue(b.dest, store.Default) }

// enqueueMany enqueues n jobs alike and returns their ids.
func (b *fixture) enqueueMany(n int, opts ...jobs.Option) []string {
	b.t.Helper()
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i, opts...)
	}
	return b.enqueueAll(specs)
}

// enqueueAll enqueues jobs and returns their ids.
func (b *fixture) enqueueAll(specs []*jobs.Spec) []string {
	b.t.Helper()
	results, err := b.client.EnqueueMany(context.Background(), specs)
	if err != nil {
		b.t.Fatal(err)
	}
	ids := make([]string, len(results))
	for i, r := range results {
		if r.Err != nil {
			b.t.Fatal(r.Err)
		}
		ids[i] = r.Job.ID
	}
	return ids
}

// record reads a job as it stands. Client.Get would first end it if its time is
// over, which is for the workers to do where it matters who does it.
func (b *fixture) record(id string) *jobs.Job {
	b.t.Helper()
	fields, err := b.rdb.HGetAll(context.Background(), store.TaskKey(b.queue(), id)).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := store.JobOf[jobs.Job](nil, fields)
	if err != nil {
		b.t.Fatalf("job %s: %v", id, err)
	}
	return j
}

// waitStatus waits until the workers have brought a job to a status.
func (b *fixture) waitStatus(id string, want jobs.Status) *jobs.Job {
	b.t.Helper()
	var j *jobs.Job
	redistest.Eventually(b.t, "job "+id+" is "+string(want), func() bool {
		j = b.record(id)
		return j.Status == want
	})
	return j
}

// makeDue brings a job forward that waits for its next call.
func (b *fixture) makeDue(id string) {
	b.t.Helper()
	n, err := b.rdb.ZAddArgs(context.Background(), store.DueKey(b.queue()), redis.ZAddArgs{
		XX: true, Ch: true, Members: []redis.Z{{Score: 1, Member: id}},
	}).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	if n != 1 {
		b.t.Fatalf("job %s waits for no time: it is %s", id, b.record(id).Status)
	}
	if err := b.rdb.Publish(context.Background(), store.DefaultNamespace.WakeChannel(), b.queue()+" 0").Err(); err != nil {
		b.t.Fatal(err)
	}
}

// want waits for the next event and checks its result.
func (b *fixture) want(result string) publisher.JobEvent {
	b.t.Helper()
	e := b.event()
	if e.Result != result {
		b.t.Fatalf("job %s: %s (reason %q, error %v), want %s", e.Job.ID, e.Result, e.Reason, e.Err, result)
	}
	return e
}

// once has a job's second call wait for the end of the test, which looks at the job meanwhile.
func (b *fixture) once(f func(context.Context, *jobs.Job) error) func(context.Context, *jobs.Job) error {
	var calls tally
	return func(ctx context.Context, j *jobs.Job) error {
		if calls.add(j.ID) == 1 {
			return f(ctx, j)
		}
		select {
		case <-b.t.Context().Done():
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

// mustBeEmpty checks that nothing is left of jobs on the way: none in hand, no
// ghosts beyond those in the list, nobody marked, nobody to be told.
func (b *fixture) mustBeEmpty() {
	b.t.Helper()
	stats, err := b.client.Stats(context.Background(), b.dest)
	if err != nil {
		b.t.Fatal(err)
	}
	if stats[0].Backlog != 0 {
		b.t.Errorf("a backlog of %d is left: %v", stats[0].Backlog, stats[0].Counts)
	}
	var left string
	deadline := time.Now().Add(time.Minute)
	for left = b.leftovers(); left != "" && time.Now().Before(deadline); left = b.leftovers() {
		<-time.After(10 * time.Millisecond)
	}
	if left != "" {
		b.t.Errorf("left over: %s", left)
	}
}

// leftovers names what the queue's bookkeeping still holds.
func (b *fixture) leftovers() string {
	b.t.Helper()
	ctx, q := context.Background(), b.queue()
	var out []string
	ghosts, _ := strconv.ParseInt(b.rdb.Get(ctx, store.TombstonesKey(q)).Val(), 10, 64)
	if n := b.queueLen(); n != ghosts {
		out = append(out, fmt.Sprintf("%d ghosts by the count, %d ids in the list", ghosts, n))
	}
	for _, key := range []string{store.ActionsKey(q), store.OutboxKey(q), store.LeaseKey(q), store.ActiveKey(q), store.ScheduledKey(q), store.RetryKey(q), store.DueKey(q)} {
		if b.rdb.Exists(ctx, key).Val() == 1 {
			out = append(out, key)
		}
	}
	return strings.Join(out, "; ")
}

// tally counts calls by job.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[id]++
	return c.n[id]
}

func (c *tally) of(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[id]
}

func (c *tally) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := 0
	for _, n := range c.n {
		total += n
	}
	return total
}

// signal receives from c, or ends the test.
func signal[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
		panic("unreachable")
	}
}
