package publisher_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// onNodes names n destinations for each master of a Cluster, all queues of which lie there.
func onNodes(t *testing.T, rdb redis.UniversalClient, n int) (names [3][]string) {
	t.Helper()
	for i := 0; len(names[0]) < n || len(names[1]) < n || len(names[2]) < n; i++ {
		name := fmt.Sprintf("d%d", i)
		at := map[int64]bool{}
		for _, q := range store.DefaultNamespace.Queues(name) {
			slot, err := rdb.ClusterKeySlot(t.Context(), store.PendingKey(q)).Result()
			if err != nil {
				t.Fatal(err)
			}
			at[slot*3/16384] = true
		}
		for node := range at {
			if len(at) == 1 && len(names[node]) < n {
				names[node] = append(names[node], name)
			}
		}
	}
	return names
}

// While a master of a Cluster hangs, destinations whose queues lie on others go on as before.
func TestHangingNodeHoldsUpItsOwnDestinations(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	// No replica takes over, and nodes do not notice.
	c := redistest.StartCluster(t, redistest.WithArgs("--cluster-node-timeout", "600000"))
	rdb := c.Client(t)
	const perNode = 3
	names := onNodes(t, rdb, perNode)
	var mu sync.Mutex
	ended := map[string]chan struct{}{}
	end := func(id string) chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		if ended[id] == nil {
			ended[id] = make(chan struct{}, 1)
		}
		return ended[id]
	}
	running := make(chan string, 100)
	release := make(chan struct{})
	p, err := publisher.New(rdb, publisher.Options{Logger: redistest.Logger(t), ShutdownTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, of := range names {
		all = append(all, of...)
	}
	for _, name := range all {
		if err := p.Handle(name, publisher.Func(func(ctx context.Context, j *jobs.Job) error {
			if j.Key == "slow" {
				running <- j.ID
				select {
				case <-ctx.Done():
				case <-release:
				}
			}
			select {
			case end(j.ID) <- struct{}{}:
			default:
			}
			return nil
		})); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- p.Run(ctx) }()
	defer func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}()
	<-p.Started()
	client := func(names []string) *jobs.Client {
		c, err := jobs.NewClient(rdb, jobs.WithDestinations(names...))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	enqueue := func(of *jobs.Client, name string, opts ...jobs.Option) string {
		t.Helper()
		j, err := of.Enqueue(t.Context(), jobs.New(name, 1, opts...))
		if err != nil {
			t.Fatal(err)
		}
		return j.ID
	}
	within := func(what string, limit time.Duration, ids ...string) {
		t.Helper()
		start := time.Now()
		timeout := time.After(limit)
		for i, id := range ids {
			select {
			case <-end(id):
			case <-timeout:
				t.Errorf("%s: %d of %d jobs within %s", what, i, len(ids), limit)
				return
			}
		}
		t.Logf("%s: %d jobs within %s", what, len(ids), time.Since(start).Round(time.Millisecond))
	}
	const bound = 30 * time.Second // the subscription may lie on the node; it is renewed after 4 s
	for hanging := range names[:1] {
		ill := client(names[hanging])
		var others []string
		for i, of := range names {
			if i != hanging {
				others = append(others, of...)
			}
		}
		well := client(others)
		var first []string // also registers the queues, in a key of one node
		for _, name := range others {
			first = append(first, enqueue(well, name))
		}
		within("all nodes answer", bound, first...)
		var slow, waits []string
		for _, name := range names[hanging] {
			slow = append(slow, enqueue(ill, name, jobs.Key("slow")))
			waits = append(waits, enqueue(ill, name, jobs.Delay(2*time.Second)))
		}
		for range slow {
			signal(t, "the slow jobs run", running)
		}
		cancelled := enqueue(well, others[0], jobs.Key("slow"))
		signal(t, "the job to cancel runs", running)
		c.Nodes()[hanging].Pause()
		for range slow {
			release <- struct{}{} // their outcomes cannot be applied
		}
		within("outcomes that wait", bound, slow...)
		what := fmt.Sprintf("master %d hangs: ", hanging)
		for range 2 {
			var now, due []string
			for _, name := range others {
				now = append(now, enqueue(well, name))
				due = append(due, enqueue(well, name, jobs.Delay(500*time.Millisecond)))
			}
			within(what+"enqueued", bound, now...)
			within(what+"due", bound, due...)
		}
		queue := store.DefaultNamespace.Queue(others[0], store.Default)
		if _, err := store.PauseQueue(t.Context(), rdb, queue, "", ""); err != nil {
			t.Fatal(err)
		}
		expiring := enqueue(well, others[0], jobs.TTL(500*time.Millisecond))
		if _, err := store.Act(t.Context(), rdb, queue, store.Order{Action: store.Cancel}, []string{cancelled}); err != nil {
			t.Fatal(err)
		}
		within(what+"cancelled", bound, cancelled)
		redistest.Await(t, bound+time.Second, what+"a job expires", func() bool {
			return rdb.HGet(t.Context(), store.TaskKey(queue, expiring), store.FieldState).Val() == store.StateExpired
		})
		if err := rdb.Del(t.Context(), store.PausedKey(queue)).Err(); err != nil {
			t.Fatal(err)
		}
		c.Nodes()[hanging].Resume()
		within(fmt.Sprintf("master %d answers again", hanging), 2*bound, waits...)
	}
}
