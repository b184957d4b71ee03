package breaker

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// ListAll and IncidentsAll read what List and Incidents do: of breakers that were never used, are
// closed, open, and with more open keys than one read brings.
func TestListAll(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) redis.UniversalClient{
		"redis":   func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient { return redistest.StartCluster(t).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, ctx := start(t), t.Context()
			names := []string{"never", "closed", "open", "keyed", "crowded"}
			for _, name := range []string{"closed", "open", "keyed/alice"} {
				if _, err := Trip(ctx, rdb, name, TripOptions{Reason: "test"}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Reset(ctx, rdb, "closed", "ann"); err != nil {
				t.Fatal(err)
			}
			for i := range snapshotPage + 50 {
				if _, err := Trip(ctx, rdb, fmt.Sprintf("crowded/k%03d", i), TripOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			all, err := DefaultNamespace.ListAll(ctx, rdb, names)
			if err != nil {
				t.Fatal(err)
			}
			var own []Status
			for i, name := range names {
				want, err := List(ctx, rdb, name)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, all[i], cmpopts.IgnoreFields(Status{}, "OpenUntil", "Remaining")); diff != "" {
					t.Errorf("%s (-List +ListAll):\n%s", name, diff)
				}
				own = append(own, all[i][0])
			}
			incidents, err := DefaultNamespace.IncidentsAll(ctx, rdb, own)
			if err != nil {
				t.Fatal(err)
			}
			for i, name := range names {
				want, err := Incidents(ctx, rdb, name, 0)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, incidents[i]); diff != "" {
					t.Errorf("incidents of %s (-Incidents +IncidentsAll):\n%s", name, diff)
				}
			}
		})
	}
	if _, err := DefaultNamespace.ListAll(t.Context(), nil, []string{"a"}); err == nil {
		t.Error("a nil client is taken")
	}
}
