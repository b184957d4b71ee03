package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Workers are killed again and again while families run across two destinations, so
// that some die between a parent's end and the release of its children: the others
// finish that, and no job waits for ever. It keeps the machine busy, so it runs
// before the tests that hold instants to milliseconds.
func TestKillsLeaveNoJobWaiting(t *testing.T) {
	t.Parallel()
	const rounds, perRound, workers = 8, 10, 3
	f := newFleet(t, redistest.Start(t), fakeapi.Options{
		Light: true, LatencyFunc: func(int, int) time.Duration { return time.Duration(rand.IntN(20)) * time.Millisecond },
	})
	f.api.SetScript(func(_ int, r *http.Request) *fakeapi.Answer {
		if strings.HasSuffix(r.URL.Path, "/bad") {
			return &fakeapi.Answer{Status: http.StatusUnprocessableEntity}
		}
		return nil
	})
	second := redistest.Name(t, "other")
	f.serveToo(second)
	f.env["MAX_CRASHES"] = "1000" // bad luck must not fail a job
	f.env["CIRCUIT_BREAKER_ENABLED"] = "false"
	var fleet []*worker
	for range workers {
		fleet = append(fleet, f.start())
	}

	var families []family
	killed, untold := 0, 0
	for round := range rounds {
		families = append(families, f.enqueueFamilies(second, round, perRound)...)
		// Somewhere among the 40 calls of this round.
		calls := f.api.Stats().Calls + rand.IntN(30)
		// Those that a worker died with run one at a time: not all need come soon.
		for range 100 {
			f.hurry(f.dest, second)
			if f.api.Stats().Calls > calls {
				break
			}
			<-time.After(20 * time.Millisecond)
		}
		i := rand.IntN(workers)
		pid := fleet[i].pid()
		fleet[i].stop(syscall.SIGKILL)
		killed += len(f.ageLeasesOf(pid, f.dest, second))
		fleet[i] = f.start() // looks for lost leases as it starts
		// The living have told theirs long ago.
		for _, d := range []string{f.dest, second} {
			untold += int(f.rdb.ZCard(context.Background(), store.OutboxKey(store.DefaultNamespace.Queue(d, store.Default))).Val())
		}
	}
	redistest.Await(t, 150*time.Second, "no job is on its way", func() bool {
		f.hurry(f.dest, second)
		for _, s := range f.stats(f.dest, second) {
			if s.Backlog > 0 {
				return false
			}
		}
		return true
	})

	first := map[string]int{} // accepted call by id: its number
	for _, r := range f.api.Receipts() {
		if _, known := first[r.Key]; !known && r.Status < 300 {
			first[r.Key] = r.N
		}
	}
	for _, fam := range families {
		fam.check(f, first)
	}
	for _, s := range f.stats(f.dest, second) {
		if s.Counts[jobs.Waiting] != 0 {
			t.Errorf("%s: %d jobs wait", s.Destination, s.Counts[jobs.Waiting])
		}
	}
	t.Logf("%d families, %d kills: %d jobs in hand, %d parents whose children did not know; %d calls", len(families), rounds, killed, untold, f.api.Stats().Calls)
}

// family is A, then B and C in another destination, then D in the first one.
type family struct {
	a, b, c, d string
	bad        bool // A fails
}

// enqueueFamilies enqueues n families, every fifth a bad one.
func (f *fleet) enqueueFamilies(second string, round, n int) []family {
	f.t.Helper()
	var out []family
	var specs []*jobs.Spec
	for i := range n {
		id := func(name string) string { return fmt.Sprintf("r%d-%d-%s", round, i, name) }
		fam := family{id("a"), id("b"), id("c"), id("d"), i%5 == 4}
		path := "/good"
		if fam.bad {
			path = "/bad"
		}
		specs = append(specs,
			jobs.New(f.dest, i, jobs.ID(fam.a), jobs.Path(path)),
			jobs.New(second, i, jobs.ID(fam.b), jobs.After(fam.a)),
			jobs.New(second, i, jobs.ID(fam.c), jobs.After(fam.a)),
			jobs.New(f.dest, i, jobs.ID(fam.d), jobs.After(fam.b, fam.c)))
		out = append(out, fam)
	}
	results, err := f.client.EnqueueMany(context.Background(), specs)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			f.t.Fatal(r.Err)
		}
	}
	return out
}

// check holds the statuses of a family and the order of its calls against what they
// must be.
func (fam family) check(f *fleet, first map[string]int) {
	f.t.Helper()
	want := [4]jobs.Status{jobs.Completed, jobs.Completed, jobs.Completed, jobs.Completed}
	if fam.bad {
		want = [4]jobs.Status{jobs.Failed, jobs.Cancelled, jobs.Cancelled, jobs.Cancelled}
	}
	for i, id := range []string{fam.a, fam.b, fam.c, fam.d} {
		j, err := f.client.Get(context.Background(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		if j.Status != want[i] {
			f.t.Errorf("job %s is %s, want %s (%s)", id, j.Status, want[i], j.LastError)
		}
		if n, called := first[id]; called != (want[i] == jobs.Completed) {
			f.t.Errorf("job %s is %s; its first accepted call is %d", id, j.Status, n)
		}
	}
	for _, pair := range [][2]string{{fam.a, fam.b}, {fam.a, fam.c}, {fam.b, fam.d}, {fam.c, fam.d}} {
		if parent, child := first[pair[0]], first[pair[1]]; child != 0 && (parent == 0 || child < parent) {
			f.t.Errorf("job %s was accepted as call %d, its parent %s as %d", pair[1], child, pair[0], parent)
		}
	}
}

// serveToo makes the workers that are started from now on serve another destination.
func (f *fleet) serveToo(dest string) {
	f.t.Helper()
	f.env["DESTINATION_1_NAME"] = dest
	f.env["DESTINATION_1_URL"] = f.url
	var err error
	f.client, err = jobs.NewClient(f.rdb, jobs.WithDestinations(f.dest, dest), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) stats(dests ...string) []jobs.DestinationStats {
	f.t.Helper()
	var out []jobs.DestinationStats
	for _, d := range dests {
		s, err := f.client.Stats(context.Background(), d)
		if err != nil {
			f.t.Fatal(err)
		}
		out = append(out, s...)
	}
	return out
}

// ageLeasesOf makes the leases of jobs that a dead worker had in hand look lost, and
// returns their ids.
func (f *fleet) ageLeasesOf(pid int, dests ...string) (ids []string) {
	f.t.Helper()
	ctx := context.Background()
	for _, d := range dests {
		q := store.DefaultNamespace.Queue(d, store.Default)
		for _, id := range f.rdb.LRange(ctx, store.ActiveKey(q), 0, -1).Val() {
			if !strings.HasSuffix(f.rdb.HGet(ctx, store.TaskKey(q, id), store.FieldBy).Val(), fmt.Sprintf(":%d", pid)) {
				continue
			}
			z := redis.Z{Score: float64(time.Now().Add(-2 * time.Minute).Unix()), Member: id}
			if err := f.rdb.ZAddXX(ctx, store.LeaseKey(q), z).Err(); err != nil {
				f.t.Fatal(err)
			}
			ids = append(ids, id)
		}
	}
	return ids
}

// hurry brings forward what waits for a time: workers spread the jobs of a dead one
// over half a minute.
func (f *fleet) hurry(dests ...string) {
	f.t.Helper()
	ctx := context.Background()
	for _, d := range dests {
		key := store.DueKey(store.DefaultNamespace.Queue(d, store.Default))
		for _, id := range f.rdb.ZRange(ctx, key, 0, -1).Val() {
			if err := f.rdb.ZAddXX(ctx, key, redis.Z{Score: 1, Member: id}).Err(); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}
