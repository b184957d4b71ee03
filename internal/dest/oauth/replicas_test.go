package oauth_test

import (
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/fakeoauth"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

const late = "a rotated refresh token is on no replica of Redis yet"

// A rotated refresh token is on a replica, if there is one, before its access token is used; a replica
// that is late is named in the log and holds nothing up. Without a replica nothing is awaited.
func TestRotatedTokenIsOnAReplica(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name             string
		replica, hangs   bool
		waits            int64
		logged, onOthers bool
	}{
		{name: "no replica"},
		{name: "in step", replica: true, waits: 1, onOthers: true},
		{name: "hangs", replica: true, hangs: true, waits: 1, logged: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fakeoauth.Options{})
			r.rdb.ConfigSet(t.Context(), "repl-diskless-sync-delay", "0")
			var replica *redistest.Server
			if row.replica {
				replica = redistest.Start(t, redistest.WithArgs("--replicaof", strings.Replace(r.redis.Addr(), ":", " ", 1)))
				redistest.Eventually(t, "the replica follows", func() bool {
					return strings.Contains(replica.Client(t).Info(t.Context(), "replication").Val(), "master_link_status:up") &&
						r.rdb.Do(t.Context(), "WAIT", 1, 100).Val() == int64(1)
				})
			}
			if row.hangs {
				replica.Pause()
			}
			r.redis.ResetStats(t)
			r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
			if got := token(t, r.source(t, keyA), "alice"); !r.valid(got) {
				t.Errorf("token %q is not valid", got)
			}
			if row.onOthers {
				// Without waiting: it is there.
				if n := replica.Client(t).Exists(t.Context(), "tidegate:{art}:oauth:alice").Val(); n != 1 {
					t.Error("the replica has no record")
				}
			}
			if n := r.redis.CommandStats(t)["wait"]; n != row.waits {
				t.Errorf("%d WAIT, want %d", n, row.waits)
			}
			if got := strings.Contains(r.log.String(), late); got != row.logged {
				t.Errorf("logged %v, want %v: %s", got, row.logged, r.log)
			}
			if row.hangs {
				replica.Resume()
			}
		})
	}
}

// On a Cluster the node that holds the record is asked.
func TestRotatedTokenOnACluster(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	r := newRig(t, fakeoauth.Options{})
	cluster := redistest.StartCluster(t)
	r.rdb = cluster.Client(t)
	r.write(t, map[string]string{"alice": r.fake.Grant("alice")})
	s := r.source(t, keyA)
	first := token(t, s, "alice")
	if got, err := s.Renew(t.Context(), "alice", first); err != nil || got == first || !r.valid(got) {
		t.Errorf("renewed: %q, %v", got, err)
	}
}
