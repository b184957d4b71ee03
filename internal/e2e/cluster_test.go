package e2e

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// scattered returns names of n destinations whose queues lie on the masters in turn.
func scattered(t *testing.T, c *redistest.Cluster, n int) []string {
	t.Helper()
	owner := func(name string) *redistest.Server {
		return c.Owner(store.PendingKey(store.DefaultNamespace.Queue(name, store.Default)))
	}
	masters := c.Nodes()[:3]
	var out []string
	for tries := 0; len(out) < n; tries++ {
		if tries == 1000 {
			t.Fatal("no names for all masters")
		}
		if name := redistest.Name(t, "d"); owner(name) == masters[len(out)%len(masters)] {
			out = append(out, name)
		}
	}
	return out
}

// onMaster returns names of n destinations whose queues lie on one master.
func onMaster(t *testing.T, c *redistest.Cluster, master *redistest.Server, n int) []string {
	t.Helper()
	var out []string
	for tries := 0; len(out) < n; tries++ {
		if tries == 1000 {
			t.Fatal("no names for the master")
		}
		name := redistest.Name(t, "d")
		if c.Owner(store.PendingKey(store.DefaultNamespace.Queue(name, store.Default))) == master {
			out = append(out, name)
		}
	}
	return out
}

// On a Cluster everything works as on one server, though queues, breakers, parents
// and children lie on different nodes; and it works for a user with the least rights.
func TestEveryFeatureOnACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	rights := leastRights(t)
	c.SetUser(t, aclUser, aclPassword, rights...)
	everyFeature(t, asUser{c}, scattered(t, c, 5))
	checkRights(t, c.Nodes(), rights)
}

// A master of a Cluster is killed while workers publish.
func TestMasterOfAClusterIsKilled(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	victim := c.Nodes()[1]
	names := onMaster(t, c, victim, 3)
	masterIsKilled(t, failover{rs: c, dests: names[1:], open: names[0], kill: func() func() {
		victim.Kill()
		return func() {
			c.AwaitOwner(t, store.PendingKey(store.DefaultNamespace.Queue(names[1], store.Default)), victim, 30*time.Second)
		}
	}})
}

// A slot moves from node to node while workers publish what lies in it: nothing is
// lost, nothing is sent twice, and there is nothing to repair.
func TestSlotMovesWhilePublishing(t *testing.T) {
	t.Parallel()
	const waiting = 5000 // that the move has more to do
	c := redistest.StartCluster(t)
	names := scattered(t, c, 3)
	w := newWide(t, c, names)
	w.api.SetLatency(30 * time.Millisecond)
	w.rdb = open(t, c.URL())
	var err error
	if w.client, err = jobs.NewClient(w.rdb, jobs.WithDestinations(names...), jobs.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	var specs []*jobs.Spec
	for i := range waiting {
		specs = append(specs, jobs.New(w.dest, i, jobs.Delay(time.Hour)))
	}
	w.enqueueSpecs(specs)
	w.start()
	w.start()
	p := produce(w, w.dests, 3)
	w.waitAccepted(100, 20*time.Second)
	for _, key := range []string{
		store.PendingKey(store.DefaultNamespace.Queue(w.dest, store.Default)), "tidegate:{" + w.dest + "}:breaker",
	} {
		to := c.Nodes()[0]
		if c.Owner(key) == to {
			to = c.Nodes()[1]
		}
		began := time.Now()
		moved := c.MoveSlot(t, key, to, 10, nil)
		t.Logf("%d keys moved in %s", moved, time.Since(began).Round(time.Millisecond))
		w.waitAccepted(w.api.Stats().Accepted+100, 20*time.Second)
	}
	var ids []string
	for _, a := range p.finish() {
		ids = append(ids, a.id)
	}
	w.waitCompleted(ids, 20*time.Second)
	w.exactlyOnce(ids)
	if out := w.say("doctor"); !strings.Contains(out, "all is well") {
		t.Errorf("the doctor says:\n%s", out)
	}
}
