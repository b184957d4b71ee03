package redistest

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	clusterMasters = 3
	clusterSlots   = 16384
	// nodeTimeout is how long a node may be silent before the others take it for
	// dead, which they must not do because a machine is busy.
	nodeTimeout = 3 * time.Second
)

// Cluster is a Redis Cluster of three masters, each with a replica.
type Cluster struct {
	t     testing.TB
	nodes []*Server // the masters of the start, then their replicas in the same order
}

// StartCluster runs a Redis Cluster of three masters with a replica each, which
// replaces its master four to six seconds after that has died. It returns when
// all nodes agree on everything and the replicas have their masters' data. The
// options are for all nodes; one that sets a password is not supported.
func StartCluster(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	opts = append([]Option{WithArgs(
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
		// A replica that has heard nothing from its master for long gives up its
		// claim; that must not come of a busy machine.
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
	)}, opts...)
	for range 2 * clusterMasters {
		c.nodes = append(c.nodes, Start(t, opts...))
	}
	ids := make([]string, len(c.nodes))
	for i, node := range c.nodes {
		ids[i] = mustAsk(t, node, "CLUSTER", "MYID")
		// Different from the start, so that they need not be made so.
		mustAsk(t, node, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < clusterMasters {
			mustAsk(t, node, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*clusterSlots/clusterMasters),
				strconv.Itoa((i+1)*clusterSlots/clusterMasters-1))
		}
		for _, other := range c.nodes[:i] {
			mustAsk(t, node, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port))
		}
	}
	for i, node := range c.nodes {
		Await(t, formTimeout, "the nodes know each other", func() bool {
			nodes, err := node.ask("CLUSTER", "NODES")
			return err == nil && strings.Count(nodes, " connected") == len(c.nodes) && !strings.Contains(nodes, "handshake")
		})
		if i >= clusterMasters {
			mustAsk(t, node, "CLUSTER", "REPLICATE", ids[i-clusterMasters])
		}
	}
	for i, node := range c.nodes {
		Await(t, formTimeout, "the Cluster has formed", func() bool {
			info, err := node.ask("CLUSTER", "INFO")
			if err != nil || !strings.Contains(info, "cluster_state:ok") {
				return false
			}
			nodes, err := node.ask("CLUSTER", "NODES")
			return err == nil && strings.Count(nodes, "slave ") == len(c.nodes)-clusterMasters && (i < clusterMasters || inStep(node))
		})
	}
	return c
}

// URL returns the address in the form of REDIS_URL.
func (c *Cluster) URL() string {
	u := url.URL{Scheme: "redis-cluster", Host: strings.Join(addrs(c.nodes[:clusterMasters]), ",")}
	return u.String()
}

// Client returns a client of the Cluster. It is closed when the test ends and
// honours contexts. As any client of a Cluster it follows redirections, and repeats
// a command whose connection broke.
func (c *Cluster) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 addrs(c.nodes),
		ContextTimeoutEnabled: true,
		// Of itself it would ask who owns the slots of a dead master once a minute.
		ClusterStateReloadInterval: 500 * time.Millisecond,
		MaintNotificationsConfig:   &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	closeLater(t, client)
	return client
}

// Nodes returns all nodes, for tests to kill, pause and restart: the masters of the
// start, then their replicas in the same order.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Owner returns the master that a key lies on, as the nodes that run say, nil while
// there is none.
func (c *Cluster) Owner(key string) *Server {
	for _, node := range c.nodes {
		if node.PID() == 0 {
			continue
		}
		slot, err := node.ask("CLUSTER", "KEYSLOT", key)
		if err != nil {
			continue
		}
		nodes, err := node.ask("CLUSTER", "NODES")
		if err != nil {
			continue
		}
		if owner := c.ownerIn(nodes, slot); owner != nil && isMaster(owner) {
			return owner
		}
	}
	return nil
}

// ownerIn finds the owner of a slot in an answer to CLUSTER NODES, whose lines are
//
//	id 127.0.0.1:20001@30001 myself,master - 0 0 1 connected 0-5460
func (c *Cluster) ownerIn(nodes, slot string) *Server {
	n, err := strconv.Atoi(slot)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.Contains(fields[2], "master") || strings.Contains(fields[2], "fail") {
			continue
		}
		for _, slots := range fields[8:] {
			var from, to int
			if k, _ := fmt.Sscanf(slots, "%d-%d", &from, &to); k == 1 {
				to = from
			}
			if n < from || n > to {
				continue
			}
			addr, _, _ := strings.Cut(fields[1], "@")
			for _, node := range c.nodes {
				if node.Addr() == addr {
					return node
				}
			}
		}
	}
	return nil
}

// AwaitOwner waits until another node than the given one owns a key and the whole
// Cluster is at work, and returns it.
func (c *Cluster) AwaitOwner(t testing.TB, key string, other *Server, within time.Duration) *Server {
	t.Helper()
	var found *Server
	Await(t, within, "another node has taken the slots over", func() bool {
		found = c.Owner(key)
		if found == nil || found == other {
			return false
		}
		info, err := found.ask("CLUSTER", "INFO")
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	return found
}

// MoveSlot moves the slot of a key to another master, with all that is in it, up to
// atOnce keys at a time and in any order, as resharding does. between, unless nil, is
// called after each time. It returns how many keys were moved.
func (c *Cluster) MoveSlot(t testing.TB, key string, to *Server, atOnce int, between func()) int {
	t.Helper()
	from := c.Owner(key)
	if from == nil || from == to {
		t.Fatalf("redistest: the slot of %s cannot be moved to %s", key, to.Addr())
	}
	slot := mustAsk(t, from, "CLUSTER", "KEYSLOT", key)
	fromID, toID := mustAsk(t, from, "CLUSTER", "MYID"), mustAsk(t, to, "CLUSTER", "MYID")
	mustAsk(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	mustAsk(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	client := from.Client(t)
	moved := 0
	for {
		keys, err := client.Do(t.Context(), "CLUSTER", "GETKEYSINSLOT", slot, 1000).StringSlice()
		if err != nil {
			t.Fatalf("redistest: list the keys of slot %s: %v", slot, err)
		}
		if len(keys) == 0 {
			break
		}
		rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] }) //nolint:gosec // no secret
		keys = keys[:min(len(keys), atOnce)]
		mustAsk(t, from, append([]string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.port), "", "0", "5000", "KEYS"}, keys...)...)
		moved += len(keys)
		if between != nil {
			between()
		}
	}
	// First the new owner, so that there is one at any time.
	mustAsk(t, to, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	mustAsk(t, from, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	return moved
}
