package explain

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A job's place is counted in its own queue, from the end that is served first.
func TestPlace(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	worker := fmt.Sprintf(`{"seen_at":%d,"destinations":["shop"]}`, time.Now().UnixMilli())
	if err := rdb.HSet(t.Context(), store.DefaultNamespace.WorkersKey(), "host:1", worker).Err(); err != nil {
		t.Fatal(err)
	}
	const many = farthest + 5
	var specs []*jobs.Spec
	for i := range many {
		specs = append(specs, jobs.New("shop", 1, jobs.ID(fmt.Sprint("job-", i))))
	}
	specs = append(specs, []*jobs.Spec{
		jobs.New("shop", 1, jobs.ID("high"), jobs.Prioritize(jobs.PriorityHigh)), jobs.New("shop", 1, jobs.ID("later"), jobs.Delay(time.Hour)),
		jobs.New("shop", 1, jobs.ID("child"), jobs.After("later")), jobs.New("shop", 1, jobs.ID("paused")),
	}...)
	if _, err := client.EnqueueMany(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	if err := client.Pause(t.Context(), "paused"); err != nil {
		t.Fatal(err)
	}
	number := func(n int) *int { return &n }
	for id, want := range map[string]Waiting{
		"job-0":                        {Reason: Queued, Text: nextInLine, Ahead: number(0)},
		"job-1":                        {Reason: Queued, Text: "waiting for its turn: 1 job is ahead", Ahead: number(1)},
		"job-7":                        {Reason: Queued, Text: "waiting for its turn: 7 jobs are ahead", Ahead: number(7)},
		fmt.Sprint("job-", farthest-1): {Reason: Queued, Text: "waiting for its turn: 9999 jobs are ahead", Ahead: number(farthest - 1)},
		fmt.Sprint("job-", farthest+1): {Reason: Queued, Text: "waiting for its turn: more than 10000 jobs are ahead", AheadAtLeast: number(farthest)},
		"high":                         {Reason: Queued, Text: nextInLine, Ahead: number(0)},
		"later":                        {Reason: Scheduled},
		"child":                        {Reason: Parents},
		"paused":                       {Reason: Paused},
	} {
		job, err := client.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		e := New(rdb, client)
		got, err := e.Waiting(t.Context(), job)
		if err == nil {
			err = e.Place(t.Context(), job, got)
		}
		if err != nil {
			t.Fatal(err)
		}
		if want.Reason != Queued {
			got.Text, got.Until = "", nil
		}
		if diff := cmp.Diff(want, *got, cmpopts.IgnoreUnexported(Waiting{})); diff != "" {
			t.Errorf("%s (-want +got)\n%s", id, diff)
		}
	}

	// Of those that are held by their key's breaker the first one has none ahead.
	for i, id := range []string{"a", "b"} {
		if err := rdb.ZAdd(t.Context(), store.HeldJobsKey(store.DefaultNamespace.Queue("shop", "default"), "alice"), redis.Z{Score: float64(i), Member: id}).Err(); err != nil {
			t.Fatal(err)
		}
		w := &Waiting{}
		job := &jobs.Job{ID: id, Destination: "shop", Key: "alice", Priority: jobs.PriorityDefault, Status: jobs.Pending, ReasonCode: "held shop/alice"}
		if err := New(rdb, client).Place(t.Context(), job, w); err != nil || w.Ahead == nil || *w.Ahead != i {
			t.Errorf("%s: %+v, %v, want %d ahead", id, w, err, i)
		}
	}
	if err := New(rdb, client).Place(t.Context(), &jobs.Job{Status: jobs.Running}, nil); err != nil {
		t.Error(err)
	}
}
