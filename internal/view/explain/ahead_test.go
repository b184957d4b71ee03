package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
	const urgent = ", and 1 more urgent job waits"
	for id, want := range map[string]Waiting{
		"job-0":                        {Reason: Queued, Text: "waiting for its turn: next in line" + urgent, Ahead: number(0), MoreUrgent: number(1)},
		"job-1":                        {Reason: Queued, Text: "waiting for its turn: 1 job is ahead" + urgent, Ahead: number(1), MoreUrgent: number(1)},
		"job-7":                        {Reason: Queued, Text: "waiting for its turn: 7 jobs are ahead" + urgent, Ahead: number(7), MoreUrgent: number(1)},
		fmt.Sprint("job-", farthest-1): {Reason: Queued, Text: "waiting for its turn: at least 9998 jobs are ahead" + urgent, AheadAtLeast: number(farthest - 2), MoreUrgent: number(1)},
		fmt.Sprint("job-", farthest+1): {Reason: Queued, Text: "waiting for its turn: at least 9999 jobs are ahead" + urgent, AheadAtLeast: number(farthest - 1), MoreUrgent: number(1)},
		"high":                         {Reason: Queued, Text: nextInLine, Ahead: number(0), MoreUrgent: number(0)},
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
		if diff := cmp.Diff(want, *got, cmpopts.IgnoreUnexported(Waiting{}), cmpopts.IgnoreFields(Waiting{}, "Rank")); diff != "" {
			t.Errorf("%s (-want +got)\n%s", id, diff)
		}
	}

	// Of the jobs that the breaker of their key holds the first one has none ahead.
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

// What is said of jobs ahead is compared with the order in which jobs start, while keys take turns and before, with jobs
// that were cancelled, come later or are more urgent.
func TestPlaceIsThatOfTheStarts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("keyed", "plain"))
	if err != nil {
		t.Fatal(err)
	}
	for _, destination := range []string{"keyed", "plain"} {
		worker := fmt.Sprintf(`{"seen_at":%d,"destinations":["keyed","plain"]}`, time.Now().UnixMilli())
		if err := rdb.HSet(t.Context(), store.DefaultNamespace.WorkersKey(), "host:1", worker).Err(); err != nil {
			t.Fatal(err)
		}
		var specs []*jobs.Spec
		for i := range 40 {
			options := []jobs.Option{jobs.ID(fmt.Sprint(destination, "-", i))}
			switch key := []string{"alice", "alice", "bob", "", "alice", "carol"}[i%6]; {
			case i%10 == 7:
				options = append(options, jobs.Delay(time.Hour))
			case i%10 == 8:
				options = append(options, jobs.Prioritize(jobs.PriorityHigh))
			case destination == "keyed" && key != "" && (key != "carol" || i < 6):
				options = append(options, jobs.Key(key))
			}
			specs = append(specs, jobs.New(destination, 1, options...))
		}
		if _, err := client.EnqueueMany(t.Context(), specs); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{2, 12, 30} {
			if err := client.Cancel(t.Context(), fmt.Sprint(destination, "-", i)); err != nil {
				t.Fatal(err)
			}
		}
		said := []map[string]Waiting{{}, {}} // before and after the first starts
		look := func(round int) {
			for _, s := range specs {
				job, err := client.Get(t.Context(), s.ID)
				if err != nil {
					t.Fatal(err)
				}
				e := New(rdb, client)
				if w, err := e.Waiting(t.Context(), job); err == nil && w != nil && job.Priority == jobs.PriorityDefault && e.Place(t.Context(), job, w) == nil {
					said[round][job.ID] = *w
				}
			}
		}
		var started []string
		fetch := func(n int) {
			reply, err := store.Fetch(t.Context(), rdb, store.FetchArgs{
				Queue: store.DefaultNamespace.Queue(destination, "default"), Run: fmt.Sprint("r", n), Worker: "host:1", Max: n, Lease: time.Minute, Scarce: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range reply.Jobs {
				started = append(started, j.ID)
			}
		}
		look(0)
		fetch(5)
		first := len(started)
		look(1)
		fetch(100)
		if len(started) != 29 {
			t.Fatalf("%d jobs of %s start, want 29", len(started), destination)
		}
		for i, id := range started {
			for round, from := range []int{0, first} {
				w := said[round][id]
				switch before := i - from; {
				case before < 0:
				case w.Ahead == nil && w.AheadAtLeast == nil, w.Ahead == nil && destination == "plain", w.Ahead == nil && before == 0 && round == 1:
					t.Errorf("%s: nothing exact is said of its place: %q", id, w.Text)
				case w.Ahead != nil && *w.Ahead != before, w.AheadAtLeast != nil && *w.AheadAtLeast > before:
					t.Errorf("%s starts after %d others: %q", id, before, w.Text)
				case destination == "keyed" && round == 1 && (w.Reason != Turn || w.KeyAhead == nil || !strings.Contains(w.Text, "keys take turns")):
					t.Errorf("%s: its turn is not said: %+v", id, w)
				case destination == "plain" && *w.MoreUrgent != 4:
					t.Errorf("%s: %+v, want 4 more urgent jobs", id, w)
				}
			}
		}
	}
}

// A job's turn under RATE comes after what the jobs ahead of it cost.
func TestTurnBehindCosts(t *testing.T) {
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
	b, err := breaker.New(t.Context(), rdb, breaker.Options{Destination: "shop", Rate: breaker.Rates{{Calls: 60, Per: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Allow(t.Context()); err != nil { // the next one is due in a minute
		t.Fatal(err)
	}
	large := strings.Repeat("x", 20_000) // is not read
	specs := []*jobs.Spec{
		jobs.New("shop", 1, jobs.ID("first"), jobs.Cost(40)), jobs.New("shop", large, jobs.ID("second"), jobs.Cost(5)),
		jobs.New("shop", 1, jobs.ID("third")),
	}
	for i := range mostRead {
		specs = append(specs, jobs.New("shop", 1, jobs.ID(fmt.Sprint("job-", i))))
	}
	if _, err := client.EnqueueMany(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]struct {
		text    string
		after   time.Duration // of the next call
		vaguely bool
	}{
		"second": {"1 job is ahead (cost 40), its turn is due in ", 40 * time.Minute, false},
		"third":  {"2 jobs are ahead (cost 45), its turn is due in ", 45 * time.Minute, false},
		"job-96": {"99 jobs are ahead (cost 142), its turn is due in ", 142 * time.Minute, false},
		"job-99": {"102 jobs are ahead (cost 145), its turn is not before ", 0, true},
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
		if !strings.HasPrefix(got.Text, "RATE allows 60 calls an hour; "+want.text) || (got.Until == nil) != want.vaguely {
			t.Errorf("%s: %q until %v", id, got.Text, got.Until)
		}
		if left := time.Until(value(got.Until)); !want.vaguely && (left > want.after+time.Minute || left < want.after) {
			t.Errorf("%s: due in %v, want %v after the next call", id, left, want.after)
		}
	}
}

func value(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}
