package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestSameError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"answered 422: item 81723 does not exist":      "answered 422: item # does not exist",
		"answered 422: item 7 does not exist":          "answered 422: item # does not exist",
		"no user 0190a6c2-7d1e-7c52-8f0e-6a2f4b1f9d10": "no user #",
		"dial tcp 127.0.0.1:8080: connection refused":  "dial tcp #: connection refused",
		"HTTP/1.1 v2 refused after 2026-11-27":         "HTTP/# v2 refused after #",
		"Müller47 gesperrt, Vorgang 99":                "# gesperrt, Vorgang #",
		strings.Repeat("ä", 300):                       strings.Repeat("ä", 100),
	} {
		if got := store.SameError(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Of many texts the most frequent are kept, whichever came first; a later hour has the last job.
func TestTopErrors(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ns, d := store.DefaultNamespace, redistest.Name(t, "d")
		now := time.Date(2026, 11, 27, 14, 5, 0, 0, time.UTC)
		count := func(at time.Time, counts ...store.ErrorCount) {
			t.Helper()
			for i := range counts {
				counts[i].At = at
			}
			if err := ns.CountErrors(t.Context(), rdb, d, at, counts); err != nil {
				t.Fatal(err)
			}
		}
		early := now.Add(-50 * time.Minute)
		var rare []store.ErrorCount
		for i := range store.MostErrors {
			rare = append(rare, store.ErrorCount{Error: fmt.Sprint("rare ", i), Count: 2, Job: "r"})
		}
		count(early, rare...)
		count(early, store.ErrorCount{Error: "often", Count: 30, Job: "a"}, store.ErrorCount{Error: "once", Count: 1, Job: "b"})
		count(now, store.ErrorCount{Error: "often", Count: 5, Job: "c"})
		count(now.Add(-26*time.Hour), store.ErrorCount{Error: "old", Count: 99, Job: "o"})

		got, err := ns.TopErrors(t.Context(), rdb, d, time.Time{}, now)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != store.MostErrors {
			t.Fatalf("%d texts: %+v", len(got), got)
		}
		if diff := cmp.Diff(store.ErrorCount{Error: "often", Match: "often", Count: 35, Job: "c", At: now}, got[0]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got, err = ns.TopErrors(t.Context(), rdb, d, now.Add(-time.Minute), now); err != nil || len(got) != 1 || got[0].Count != 5 {
			t.Errorf("of the last hour: %+v, %v", got, err)
		}
	})
}
