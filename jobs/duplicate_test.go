package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// An id that exists enqueues nothing, wherever the job is and whatever the new
// one would be: the existing job is the answer.
func TestDuplicateIDs(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b, other := benchOn(t, rdb), benchOn(t, rdb)
		ctx := context.Background()
		id := func(name string) jobs.Option { return jobs.ID(b.dest + "-" + name) }
		first := b.enqueue(id("a"), jobs.Key("alice"))
		high := b.enqueue(id("high"), jobs.Prioritize(jobs.PriorityHigh))
		running := b.enqueue(id("running"))
		b.set(running.ID, store.FieldState, store.StateActive, store.FieldReschedules, 3)
		running = b.get(running.ID)
		done := b.enqueue(id("done"))
		b.set(done.ID, store.FieldState, store.StateCompleted, store.FieldEndedAt, "1700000000000")
		done = b.get(done.ID)

		again := func(b *bench, opts ...jobs.Option) *jobs.Job {
			t.Helper()
			j, err := b.Enqueue(ctx, jobs.New(b.dest, "another payload", opts...))
			b.must(err)
			return j
		}
		for _, tc := range []struct {
			name string
			got  *jobs.Job
			want *jobs.Job
		}{
			{"same queue", again(b, id("a")), first},
			{"for later", again(b, id("a"), jobs.Delay(1e12)), first},
			{"another priority", again(b, id("a"), jobs.Prioritize(jobs.PriorityLow)), first},
			{"from another priority", again(b, id("high")), high},
			{"another destination", again(other, id("a")), first},
			{"another destination and priority", again(other, id("high"), jobs.Prioritize(jobs.PriorityLow)), high},
			{"running", again(b, id("running")), running},
			{"completed", again(b, id("done")), done},
		} {
			want := *tc.want
			want.Duplicate = true
			if diff := cmp.Diff(&want, tc.got); diff != "" {
				t.Errorf("%s (-existing +answer):\n%s", tc.name, diff)
			}
		}
		if got := b.get(first.ID); got.Duplicate || got.Key != "alice" || string(got.Payload) != "{}" {
			t.Errorf("the existing job has become %+v", got)
		}
		for _, queue := range append(store.DefaultNamespace.Queues(b.dest), store.DefaultNamespace.Queues(other.dest)...) {
			want := map[string]int{b.queue(): 3, store.DefaultNamespace.Queue(b.dest, store.High): 1}[queue]
			if got := len(b.waiting(queue)) + int(rdb.ZCard(ctx, store.ScheduledKey(queue)).Val()); got != want {
				t.Errorf("%d jobs in %s, want %d", got, queue, want)
			}
		}
	})
}

// The same id more than once in one call: the first job counts, also where the
// others are for other queues that happen to be written first.
func TestDuplicateIDsWithinOneCall(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		id := b.dest + ":1"
		specs := []*jobs.Spec{
			jobs.New(b.dest, 0, jobs.Prioritize(jobs.PriorityLow)), // its queue comes first
			jobs.New(b.dest, 1, jobs.ID(id)),
			jobs.New(b.dest, 2, jobs.ID(id)),
			jobs.New(b.dest, 3, jobs.ID(id), jobs.Prioritize(jobs.PriorityLow)),
			jobs.New(b.dest, 4, jobs.ID(id), jobs.Prioritize(jobs.PriorityHigh)),
			jobs.New(b.dest, 5, jobs.ID(id+"5")),
		}
		results, err := b.EnqueueMany(context.Background(), specs)
		b.must(err)
		var got []string
		for i, r := range results {
			if r.Err != nil {
				t.Fatalf("result %d: %v", i, r.Err)
			}
			got = append(got, fmt.Sprintf("%s %s %t", r.Job.Payload, r.Job.Priority, r.Job.Duplicate))
		}
		want := []string{"0 low false", "1 default false", "1 default true", "1 default true", "1 default true", "5 default false"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("payload, priority, duplicate (-want +got):\n%s", diff)
		}
		for queue, want := range map[string]int{b.queue(): 2, store.DefaultNamespace.Queue(b.dest, store.Low): 1, store.DefaultNamespace.Queue(b.dest, store.High): 0} {
			if got := len(b.waiting(queue)); got != want {
				t.Errorf("%d jobs in %s, want %d", got, queue, want)
			}
		}
	})
}

// A record that is in the way but cannot be read is said, and keeps no other job.
func TestDuplicateOfGarbage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.must(b.rdb.HSet(context.Background(), store.TaskKey(b.queue(), b.dest+"-x"), store.FieldMsg, "garbage", store.FieldState, "pending").Err())
	b.must(b.rdb.HSet(context.Background(), store.TaskKey(b.queue(), b.dest+"-y"), "foreign", 1).Err())
	results, err := b.EnqueueMany(context.Background(), []*jobs.Spec{
		jobs.New(b.dest, 1, jobs.ID(b.dest+"-x")), jobs.New(b.dest, 2, jobs.ID(b.dest+"-y")), jobs.New(b.dest, 3),
	})
	b.must(err)
	if err := results[0].Err; err == nil || !strings.HasPrefix(err.Error(), "jobs: enqueue: id "+b.dest+"-x exists: store: decode task message") {
		t.Errorf("a record that cannot be read: %v", err)
	}
	if err := results[1].Err; err == nil || err.Error() != "jobs: enqueue: id "+b.dest+"-y was just deleted; try again" {
		t.Errorf("a record without a job: %v", err)
	}
	if results[2].Err != nil {
		t.Errorf("the other job: %v", results[2].Err)
	}
}

// However many enqueue the same id at once, one of them wins.
func TestConcurrentDuplicates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n = 20
	var mu sync.Mutex
	fresh, payloads := 0, map[string]bool{}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			j, err := b.Enqueue(context.Background(), jobs.New(b.dest, i, jobs.ID(b.dest)))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			payloads[string(j.Payload)] = true
			if !j.Duplicate {
				fresh++
			}
		})
	}
	wg.Wait()
	if fresh != 1 || len(payloads) != 1 {
		t.Errorf("%d of %d were accepted, and the answers have payloads %v; want one", fresh, n, payloads)
	}
	if got := len(b.waiting(b.queue())); got != 1 {
		t.Errorf("%d jobs wait", got)
	}
}
