package e2e

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
	everyFeature(t, asUser{c}, scattered(t, c, 4))
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
