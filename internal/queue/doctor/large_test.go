package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// many enqueues jobs j0, j1, ...
func (p *patient) many(n int, opts ...jobs.Option) {
	p.t.Helper()
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(p.dest, i, append(opts, jobs.ID("j"+strconv.Itoa(i)))...)
	}
	results, err := p.client.EnqueueMany(p.ctx, specs)
	p.must(err)
	for _, r := range results {
		p.must(r.Err)
	}
}

// The pending list itself is gone.
func TestAllPendingLost(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const n = 12_000
	p := newPatient(t)
	p.many(n)
	p.must(p.rdb.Del(p.ctx, store.PendingKey(p.queue)).Err())
	r := p.run(doctor.Options{})
	if len(r.Findings) != 1 || r.Findings[0].Kind != doctor.KindLost || r.Findings[0].Count != n || len(r.Findings[0].Examples) != 5 {
		t.Fatalf("found %+v, want %d lost jobs with five examples", r.Findings, n)
	}
	if r.Checked < n {
		t.Errorf("%d jobs checked of %d", r.Checked, n)
	}
	ids := p.pending()
	distinct := map[string]bool{}
	for _, id := range ids {
		distinct[id] = true
	}
	if len(ids) != n || len(distinct) != n {
		t.Errorf("%d ids are pending, %d different ones, want %d", len(ids), len(distinct), n)
	}
	if again := p.run(doctor.Options{}); len(again.Findings) > 0 {
		t.Errorf("after the repair there is still: %+v", again.Findings)
	}
}

// A list that is too long to be counted in one script.
func TestTombstonesOfALongList(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const n, paused = 3000, 700
	p := newPatient(t)
	p.many(n)
	ids := make([]string, paused)
	for i := range ids {
		ids[i] = "j" + strconv.Itoa(3*i)
	}
	if _, err := p.client.Act(p.ctx, jobs.ActionPause, ids); err != nil {
		t.Fatal(err)
	}
	if r := p.run(doctor.Options{}); len(r.Findings) > 0 {
		t.Fatalf("found %+v before any damage", r.Findings)
	}
	for _, wrong := range []int{0, 3, paused + 1} {
		p.must(p.rdb.Set(p.ctx, store.TombstonesKey(p.queue), wrong, 0).Err())
		p.heal("tombstone_count")
		if got := p.rdb.Get(p.ctx, store.TombstonesKey(p.queue)).Val(); got != strconv.Itoa(paused) {
			t.Errorf("%s tombstones counted, there are %d", got, paused)
		}
	}
	p.must(p.rdb.LRem(p.ctx, store.PendingKey(p.queue), 1, "j1000").Err())
	p.heal("lost j1000")
}

// A sweep is bounded, goes on where it stopped, and looks at what is in flight each
// time.
func TestSweepInPortions(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const n, budget = 4000, 7
	server := redistest.Start(t)
	p := patientOn(t, server.Client(t))
	p.many(n, jobs.Batch("b"))
	var want []string
	for i := 0; i < n; i += 1000 {
		id := "j" + strconv.Itoa(i)
		p.must(p.rdb.LRem(p.ctx, store.PendingKey(p.queue), 1, id).Err())
		want = append(want, id)
	}
	p.zadd(p.index(store.StateFailed), 1, "gone")
	s := doctor.NewSweeper(p.rdb, doctor.Options{By: "worker-1"})
	found := map[string]int{}
	sweeps, checked := 0, 0
	for done := false; !done; sweeps++ {
		p.must(p.rdb.LPush(p.ctx, store.ActiveKey(p.queue), "gone").Err())
		server.ResetStats(t)
		var r *doctor.Report
		var err error
		r, done, err = s.Sweep(p.ctx, budget)
		p.must(err)
		// A step may be a few scripts in one round trip.
		if calls := server.CommandStats(t)["evalsha"]; calls > 4*budget+4 {
			t.Errorf("%d scripts in a sweep of %d steps", calls, budget)
		}
		if len(r.Findings) == 0 || r.Findings[0].Kind != doctor.KindActiveStale {
			t.Fatalf("sweep %d did not look at what is in flight: %+v", sweeps, r.Findings)
		}
		for _, f := range r.Findings[1:] {
			found[f.Kind] += f.Count
		}
		checked += r.Checked
		if sweeps > 10*n/budget {
			t.Fatal("the round does not end")
		}
	}
	if found[doctor.KindLost] != len(want) || found[doctor.KindEntryWithoutJob] != 1 || len(found) != 2 {
		t.Errorf("found %v, want %d lost and one without a job", found, len(want))
	}
	if checked < n || sweeps < 3 {
		t.Errorf("%d jobs checked in %d sweeps", checked, sweeps)
	}
	if r := p.run(doctor.Options{}); len(r.Findings) > 0 {
		t.Errorf("after the round there is still: %+v", r.Findings)
	}
	h, err := p.client.History(p.ctx, want[0])
	p.must(err)
	if last := h[len(h)-1]; last.By != "worker-1" {
		t.Errorf("the history ends with %+v", last)
	}
	// The next round starts by itself.
	p.zadd(p.index(store.StateFailed), 1, "gone")
	for done := false; !done; {
		var r *doctor.Report
		r, done, err = s.Sweep(p.ctx, 0)
		p.must(err)
		for _, f := range r.Findings {
			found[f.Kind] += f.Count
		}
	}
	if found[doctor.KindEntryWithoutJob] != 2 {
		t.Errorf("the second round found %v", found)
	}
}

// Jobs that wait for their parents have them asked again, once they have waited
// for a while.
func TestChildrenAreRegisteredAgain(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	long := float64(time.Now().Add(-61 * time.Second).UnixMilli())
	for i := range 35 {
		id := p.in(store.StateWaiting, fmt.Sprintf("old%02d", i))
		p.zadd(p.index(store.StateWaiting), long-float64(i%3), id)
	}
	p.in(store.StateWaiting, "new")
	// A job that waits behind another one of its key has no parents any more.
	p.zadd(p.index(store.StateWaiting), long, p.in(store.StateWaiting, "inline"))
	p.set("inline", store.FieldLine, "skip key")
	p.zadd(store.LineKey(p.queue, "key"), 1, p.in(store.StatePaused, "first"))
	p.set("first", store.FieldLine, "skip key")
	p.zadd(store.LineKey(p.queue, "key"), 2, "inline")
	asked := map[string]int{}
	o := doctor.Options{Family: func(_ context.Context, queue, id string) error {
		asked[queue+" "+id]++
		return nil
	}}
	if r := p.run(o); len(r.Findings) > 0 {
		t.Errorf("found %+v", r.Findings)
	}
	if len(asked) != 35 {
		t.Errorf("asked for %d jobs, want 35: %v", len(asked), asked)
	}
	for caller, times := range asked {
		if times != 1 || caller == p.queue+" new" {
			t.Errorf("asked %d times for %s", times, caller)
		}
	}
	o.DryRun = true
	clear(asked)
	p.run(o)
	if len(asked) > 0 {
		t.Errorf("asked in a dry run: %v", asked)
	}
	// What fails there keeps neither the others from being asked nor the rest from
	// being looked at.
	p.alive(p.dest, time.Hour)
	boom := errors.New("boom")
	calls := 0
	r, err := doctor.Run(p.ctx, p.rdb, doctor.Options{Family: func(context.Context, string, string) error {
		calls++
		return boom
	}})
	if !errors.Is(err, boom) || calls != 35 || len(r.Findings) != 1 || r.Findings[0].Kind != doctor.KindNoWorker {
		t.Errorf("error %v after %d calls, found %+v", err, calls, r.Findings)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := patientOn(t, server.Client(t))
	p.many(2000)
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	if r, err := doctor.Run(ctx, p.rdb, doctor.Options{}); !errors.Is(err, context.Canceled) || r == nil {
		t.Errorf("with a context that has ended: %v, %v", r, err)
	}
	s := doctor.NewSweeper(p.rdb, doctor.Options{})
	if _, _, err := s.Sweep(p.ctx, 4); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	if _, done, err := s.Sweep(p.ctx, 4); err == nil || done {
		t.Errorf("without Redis: done %t, %v", done, err)
	}
	server.Restart() // with nothing in it, and no scripts
	p = patientOn(t, server.Client(t))
	p.enqueue("a")
	p.must(p.rdb.Del(p.ctx, store.PendingKey(p.queue)).Err())
	r, done, err := s.Sweep(p.ctx, 0)
	if err != nil || !done || len(r.Findings) != 1 || r.Findings[0].ID != "a" {
		t.Errorf("after the outage: done %t, %v, %+v", done, err, r)
	}
}

// Jobs on each master of a Cluster are looked at.
func TestCluster(t *testing.T) {
	t.Parallel()
	a := redistest.Start(t, redistest.WithArgs("--cluster-enabled", "yes"))
	b := redistest.Start(t, redistest.WithArgs("--cluster-enabled", "yes"))
	ctx := context.Background()
	one, two := a.Client(t), b.Client(t)
	for _, err := range []error{
		one.ClusterAddSlotsRange(ctx, 0, 8191).Err(),
		two.ClusterAddSlotsRange(ctx, 8192, 16383).Err(),
		two.Do(ctx, "cluster", "set-config-epoch", 2).Err(),
		one.ClusterMeet(ctx, "127.0.0.1", strings.TrimPrefix(b.Addr(), "127.0.0.1:")).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{a.Addr(), b.Addr()}, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	deadline := time.Now().Add(2 * time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		up := 0
		for _, c := range []redis.UniversalClient{one, two} {
			nodes, err := c.ClusterSlots(ctx).Result()
			state := c.ClusterInfo(ctx).Val()
			if err == nil && len(nodes) == 2 && len(state) > 16 && state[:16] == "cluster_state:ok" {
				up++
			}
		}
		if up == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the Cluster is not up within 2 minutes")
		}
		<-tick.C
	}
	rdb.ReloadState(ctx)
	p := patientOn(t, rdb)
	var want []string
	for _, dest := range []string{"shop", "other"} {
		p.dest, p.queue = dest, store.DefaultNamespace.Queue(dest, store.Default)
		p.alive(dest, 0)
		id := p.enqueue("lost-in-" + dest)
		p.must(rdb.Del(ctx, store.PendingKey(p.queue)).Err())
		p.in(store.StateFailed, "fine-in-"+dest)
		want = append(want, id)
	}
	slots := map[bool]bool{}
	for _, dest := range []string{"shop", "other"} {
		slots[rdb.ClusterKeySlot(ctx, store.PendingKey(store.DefaultNamespace.Queue(dest, store.Default))).Val() < 8192] = true
	}
	if len(slots) != 2 {
		t.Fatal("both destinations are on one master: the test shows nothing")
	}
	r := p.run(doctor.Options{})
	got := map[string]bool{}
	for _, f := range r.Findings {
		if f.Kind != doctor.KindLost || !f.Repaired {
			t.Errorf("finding %+v", f)
		}
		got[f.ID] = true
	}
	if len(got) != 2 || !got[want[0]] || !got[want[1]] || r.Checked != 4 {
		t.Errorf("found %v in %d jobs, want %v in 4", got, r.Checked, want)
	}
	if again := p.run(doctor.Options{}); len(again.Findings) > 0 {
		t.Errorf("after the repair there is still: %+v", again.Findings)
	}
}
