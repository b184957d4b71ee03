package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
)

// Pages of breakers have destinations with their limited keys first, then other keys, each breaker once.
func TestPageOfBreakers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var all []breaker.Status
	for _, d := range []string{"a", "b"} {
		all = append(all, breaker.Status{Name: d})
		for i := range 5 {
			all = append(all, breaker.Status{Name: fmt.Sprintf("%s/k%d", d, i)})
		}
	}
	all = append(all, breaker.Status{Name: "b-2"})
	all[3].State = breaker.Open                                 // a/k2
	all[10].State = breaker.HalfOpen                            // b/k3
	all[7].Forced = "closed"                                    // b/k0
	all[8].Budget = &breaker.Budget{}                           // b/k1: used up
	all[9].Budget = &breaker.Budget{Remaining: 1}               // b/k2: one call is left
	all[11].Concurrency, all[11].InFlight = 2, 2                // b/k4
	all[1].Rate = &breaker.RateStatus{Next: now.Add(time.Hour)} // a/k0
	want := strings.Fields("a a/k0 a/k2 b b/k0 b/k1 b/k3 b/k4 b-2 a/k1 a/k3 a/k4 b/k2")
	for _, limit := range []int{1, 2, 5, 13, 100} {
		var got []string
		cursor := ""
		for pages := 0; ; pages++ {
			page, next, err := PageOfBreakers(all, cursor, limit, now)
			if err != nil || len(page) > limit || pages > len(all) {
				t.Fatalf("page %d of %d after %q: %d breakers, %v", pages, limit, cursor, len(page), err)
			}
			for _, b := range page {
				got = append(got, b.Name)
			}
			if cursor = next; next == "" {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in pages of %d (-want +got):\n%s", limit, diff)
		}
	}
	if page, next, err := PageOfBreakers(nil, "", 10, now); err != nil || page == nil || len(page) > 0 || next != "" {
		t.Errorf("of none: %v, %q, %v", page, next, err)
	}
	for _, cursor := range []string{"a", "x:a", ":a", "other:", "limited:/", "limitedother:a"} {
		if _, _, err := PageOfBreakers(all, cursor, 10, now); !errors.Is(err, ErrInvalidCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	keys := slices.Clone(all[6:12])
	LimitedFirst(keys, now)
	var got []string
	for _, b := range keys {
		got = append(got, b.Name)
	}
	if diff := cmp.Diff(strings.Fields("b/k3 b/k1 b/k4 b/k0 b b/k2"), got); diff != "" {
		t.Errorf("limited first (-want +got):\n%s", diff)
	}
}
