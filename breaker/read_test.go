package breaker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// One call reads breakers that were never used, are closed, open, and with more open keys than one page brings, in the
// order of their names, and of each what the query asks for.
func TestRead(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) redis.UniversalClient{
		"redis":   func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient { return redistest.StartCluster(t).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, ctx, n := start(t), t.Context(), DefaultNamespace
			for _, name := range []string{"closed", "open", "keyed/alice"} {
				if _, err := n.Trip(ctx, rdb, name, TripOptions{Reason: "test"}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second one ends the slow start
				if _, err := n.Reset(ctx, rdb, "closed", "ann"); err != nil {
					t.Fatal(err)
				}
			}
			const crowd = snapshotPage + 50
			for i := range crowd {
				if _, err := n.Trip(ctx, rdb, fmt.Sprintf("crowded/k%03d", i), TripOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			all, err := n.Read(ctx, rdb, Query{Keys: true, Incidents: All, History: All}, "open", "never", "closed", "keyed", "crowded", "keyed/alice")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range all {
				names := make([]string, len(r.Keys))
				for i, s := range r.Keys {
					names[i] = s.Name
				}
				if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
					t.Errorf("keys of %s: %v", r.Status.Name, names)
				}
				line := fmt.Sprintf("%s %v: %d keys, %d incidents,", r.Status.Name, r.Status.State, len(r.Keys), len(r.Incidents))
				for _, e := range r.History {
					line += " " + e.To.String()
				}
				got = append(got, line)
			}
			want := []string{
				"open OPEN: 0 keys, 1 incidents, OPEN", "never CLOSED: 0 keys, 0 incidents,", "closed CLOSED: 0 keys, 1 incidents, OPEN CLOSED CLOSED",
				"keyed CLOSED: 1 keys, 0 incidents,", fmt.Sprintf("crowded CLOSED: %d keys, 0 incidents,", crowd), "keyed/alice OPEN: 0 keys, 1 incidents, OPEN",
			}
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			one, err := n.ReadOne(ctx, rdb, Query{History: 1}, "closed")
			if err != nil || len(one.History) != 1 || one.History[0].To != Closed || one.Keys != nil || one.Incidents != nil {
				t.Errorf("the last transition alone: %+v, %v", one, err)
			}
			if none, err := n.Read(ctx, rdb, Query{Limits: true}); err != nil || len(none) != 0 {
				t.Errorf("no names: %v, %v", none, err)
			}
			if _, err := n.Read(ctx, rdb, Query{}, "open", "no/t a name"); err == nil || !strings.Contains(err.Error(), "no/t a name") {
				t.Errorf("a name that is not valid: %v", err)
			}
		})
	}
}
