package e2e

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// behind is a failover by Sentinels.
func behind(t *testing.T, s *redistest.Sentinel) failover {
	return failover{
		rs: s, dests: []string{redistest.Name(t, "d"), redistest.Name(t, "d")}, open: redistest.Name(t, "open"),
		kill: func() func() {
			old := s.Master()
			old.Kill()
			return func() { s.AwaitMaster(t, old, 30*time.Second) }
		},
	}
}

// A master whose replica has not got its last writes is killed: what Redis had
// acknowledged meanwhile is gone, and nothing else.
func TestMasterWithAReplicaBehindIsKilled(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	o := behind(t, s)
	o.cut = func() {
		replica := s.Servers()[1].Client(t)
		// It connects again at once, and is refused.
		for _, command := range [][]any{
			{"CONFIG", "SET", "masteruser", "nobody", "masterauth", "wrong"},
			{"CLIENT", "KILL", "TYPE", "master"},
		} {
			if err := replica.Do(t.Context(), command...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	masterIsKilled(t, o)
}
