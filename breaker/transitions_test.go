package breaker

import (
	"errors"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A reader that goes on after its last read gets each transition once, and learns where
// some are missing.
func TestReadTransitions(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	trip := func(name string) {
		t.Helper()
		if _, err := DefaultNamespace.Trip(t.Context(), rdb, name, TripOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(after uint64, limit int, missed bool, want ...string) uint64 {
		t.Helper()
		got, last, lost, err := DefaultNamespace.ReadTransitions(t.Context(), rdb, "api", after, limit)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range got {
			names = append(names, e.Name)
		}
		if len(names) != len(want) || lost != missed {
			t.Fatalf("after %d: %v, missed: %t; want %v, %t", after, names, lost, want, missed)
		}
		for i := range want {
			if names[i] != want[i] {
				t.Errorf("after %d: %v, want %v", after, names, want)
			}
		}
		return last
	}
	if last := read(0, 10, false); last != 0 {
		t.Errorf("generation %d before the first transition", last)
	}
	trip("api/a")
	trip("api")
	last := read(0, 10, false, "api/a", "api")
	s.ResetStats(t)
	read(last, 10, false)
	if stats := s.CommandStats(t); stats["hget"] != 1 || stats["lrange"] != 0 {
		t.Errorf("nothing new cost %v", stats)
	}
	for range 100 {
		trip("api/b")
	}
	trip("api/c")
	if all, _, lost, err := DefaultNamespace.ReadTransitions(t.Context(), rdb, "api", last, 1000); err != nil || len(all) != 101 || lost {
		t.Errorf("%d of 101, missed: %t, %v", len(all), lost, err)
	}
	newest := read(last, 2, true, "api/b", "api/c")
	// Redis has lost the last of them.
	if err := rdb.HSet(t.Context(), placeOf("api", "").keys[1], ":transition", last).Err(); err != nil {
		t.Fatal(err)
	}
	if back := read(newest, 10, true); back != last {
		t.Errorf("to go on after %d, want %d", back, last)
	}
	for _, wrong := range []struct {
		name  string
		limit int
	}{{"no name", 1}, {"api/a", 1}, {"api", 0}} {
		if _, _, _, err := DefaultNamespace.ReadTransitions(t.Context(), rdb, wrong.name, 0, wrong.limit); err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
