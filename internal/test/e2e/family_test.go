package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// family is A, then B and C in another destination, then D in the first one.
type family struct {
	a, b, c, d string
	bad        bool // A fails
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
		f.makeDue(d, f.rdb.ZRange(ctx, store.DueKey(store.DefaultNamespace.Queue(d, store.Default)), 0, -1).Val())
	}
}

// makeDue brings jobs forward that wait for a time.
func (f *fleet) makeDue(dest string, ids []string) {
	f.t.Helper()
	for _, id := range ids {
		key := store.DueKey(store.DefaultNamespace.Queue(dest, store.Default))
		if err := f.rdb.ZAddXX(context.Background(), key, redis.Z{Score: 1, Member: id}).Err(); err != nil {
			f.t.Fatal(err)
		}
	}
}
