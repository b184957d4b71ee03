package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestOtherNamespaces(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.Database(t).Client(t), t.Context()
	others := func(n store.Namespace, want ...store.Namespace) {
		t.Helper()
		got, err := n.Others(ctx, rdb)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("others than %s: %v (-want +got):\n%s", n, err, diff)
		}
	}
	others("a")
	rdb.SAdd(ctx, store.QueuesKey, "emails", "emails:high", "a-b:shop", "a-b:shop:low", "c:blog")
	others("a") // they may be of programs that are not Tidegate
	rdb.HSet(ctx, store.Namespace("a-b").DestinationsKey(), "shop", 1)
	rdb.HSet(ctx, store.Namespace("c").DestinationsKey(), "blog", 1)
	others("a", "a-b", "c")
	others("c")
	rdb.SAdd(ctx, store.QueuesKey, "a:shop")
	others("a")
}

// How many queues there may be is counted in each namespace.
func TestAddQueueCountsItsNamespace(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.Database(t).Client(t), t.Context()
	rdb.SAdd(ctx, store.QueuesKey, "emails", "a-b:x", "a-b:y", "a-b:z", "a:x")
	for _, row := range []struct {
		queue string
		want  bool
	}{{"a:y", true}, {"a:z", false}, {"a:x", true}, {"a-b:w", false}, {"c:x", true}} {
		if added, err := store.AddQueue(ctx, rdb, row.queue, 2); added != row.want || err != nil {
			t.Errorf("%s: added %t, %v; want %t", row.queue, added, err, row.want)
		}
	}
}
