package breaker

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// putOff counts jobs that were put off because of the last incident but ago.
func putOff(n, ago int) action {
	return func(h *harness) string {
		incidents, err := incidentsOf(h.t.Context(), h.rdb, h.name(), 0)
		if err != nil {
			h.t.Fatal(err)
		}
		h.b.Rescheduled(incidents[len(incidents)-1-ago].ID, n)
		return ""
	}
}

// flush tells Redis of them, as happens once a second.
func flush(h *harness) string {
	h.b.flushRescheduled(h.t.Context())
	return episodes(h)
}

func TestIncidents(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"incident from start to end", Options{FailureThreshold: 2, Cooldown: minute}, []row{
			{0, episodes, ""},
			{0, call(RateLimited(0)), "CLOSED failures=1"},
			{0, episodes, ""},
			{0, on("worker-2", ask("late")), "permit"},
			{0, call(RateLimited(0)), "OPEN 1m0s failures=2 threshold wasted=2"},
			{0, episodes, "lasts threshold→ probes=0 wasted=2 rescheduled=0 [worker-1]"},
			{second, on("worker-2", tell("late", RateLimited(0))), "OPEN 59s failures=2 threshold wasted=3"},
			{second, episodes, "lasts threshold→ probes=0 wasted=3 rescheduled=0 [worker-1 worker-2]"},
			{minute, on("worker-3", call(RateLimited(0))), "OPEN 1m0s failures=2 probe probes=1 wasted=4"},
			{minute, episodes, "lasts threshold→ probes=1 wasted=4 rescheduled=0 [worker-1 worker-2 worker-3]"},
			{2 * minute, on("worker-2", call(Success())), "CLOSED"},
			{2 * minute, episodes, "2m0s threshold→success probes=1 wasted=4 rescheduled=0 [worker-1 worker-2 worker-3]"},
			{2 * minute, trip(0), "OPEN until reset manual"},
			{3 * minute, reset, "CLOSED"},
			{3 * minute, episodes, "2m0s threshold→success probes=1 wasted=4 rescheduled=0 [worker-1 worker-2 worker-3]; " +
				"1m0s manual→reset probes=0 wasted=0 rescheduled=0 [] ann maintenance"},
		}},
		{"rescheduled jobs are counted also after the end", Options{NoLearning: true, FailureThreshold: 1, Cooldown: minute}, []row{
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{0, putOff(3, 0), ""},
			{0, putOff(4, 0), ""},
			{0, episodes, "lasts threshold→ probes=0 wasted=1 rescheduled=0 [worker-1]"},
			{0, flush, "lasts threshold→ probes=0 wasted=1 rescheduled=7 [worker-1]"},
			{0, flush, "lasts threshold→ probes=0 wasted=1 rescheduled=7 [worker-1]"},
			{0, on("worker-2", putOff(10, 0)), ""},
			{0, on("worker-2", flush), "lasts threshold→ probes=0 wasted=1 rescheduled=17 [worker-1]"},
			{minute, call(Success()), "CLOSED"},
			{minute, putOff(100, 0), ""},
			{minute, flush, "1m0s threshold→success probes=0 wasted=1 rescheduled=117 [worker-1]"},
			{minute, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{minute, both(putOff(1000, 1), putOff(5, 0)), ""},
			{minute, flush, "1m0s threshold→success probes=0 wasted=1 rescheduled=1117 [worker-1]; " +
				"lasts threshold→ probes=0 wasted=1 rescheduled=5 [worker-1]"},
			{minute, of("k", call(RateLimited(minute))), "OPEN for 1m0s"},
			{2 * minute, call(Success()), "CLOSED"},
			{2 * minute, of("k", call(RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
			{2 * minute, of("k", putOff(9, 0)), ""},
			{2 * minute, of("k", flush), "lasts hint→ probes=0 wasted=1 rescheduled=9 [worker-1]"},
		}},
	})
}

func TestRescheduledWithoutAnIncidentIsIgnored(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{FailureThreshold: 1})
		h.b.Rescheduled("", 1)
		h.b.Rescheduled("unknown", 1)
		h.b.Rescheduled("unknown", 0)
		h.b.Rescheduled("unknown", -5)
		if got := flush(h); got != "" {
			t.Error(got)
		}
		if n := len(h.b.tally.counts); n != 0 {
			t.Errorf("%d counts are kept", n)
		}
	})
}

func TestIncidentsAreKeptInBounds(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		d := redistest.Name(t, "bounds")
		for name, want := range map[string]int{d: 200, d + "/k": 20} {
			for i := range want + 3 {
				if _, err := DefaultNamespace.Trip(t.Context(), rdb, name, TripOptions{Reason: fmt.Sprint(i)}); err != nil {
					t.Fatal(err)
				}
				if _, err := DefaultNamespace.Reset(t.Context(), rdb, name, "ann"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := DefaultNamespace.Trip(t.Context(), rdb, name, TripOptions{Reason: "now", By: "bob"}); err != nil {
				t.Fatal(err)
			}
			all, err := incidentsOf(t.Context(), rdb, name, 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(all) != want+1 || all[0].Reason != "3" || all[want-1].Reason != fmt.Sprint(want+2) || all[want].Reason != "now" {
				t.Errorf("%s: %d incidents, from %q to %q", name, len(all), all[0].Reason, all[len(all)-1].Reason)
			}
			if !slices.IsSortedFunc(all, func(a, b Incident) int { return a.Started.Compare(b.Started) }) {
				t.Errorf("%s: the incidents are not in order", name)
			}
			two, err := incidentsOf(t.Context(), rdb, name, 2)
			if diff := cmp.Diff(all[len(all)-2:], two); err != nil || diff != "" {
				t.Errorf("%s: the last two: %v\n%s", name, err, diff)
			}
		}
	})
}

func TestInstancesOfAnIncidentAreKeptInBounds(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{FailureThreshold: 1})
		var late []string
		for i := range 60 {
			name := fmt.Sprintf("worker,%02d", i) // a comma would part the names
			on(name, ask(name))(h)
			late = append(late, name)
		}
		call(RateLimited(0))(h)
		for _, name := range late {
			on(name, tell(name, RateLimited(0)))(h)
		}
		s, err := DefaultNamespace.Get(t.Context(), rdb, h.name())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(s.Instances); n != 50 || s.Instances[0] != "worker-1" || s.Instances[49] != "worker;48" || s.Wasted != 61 {
			t.Errorf("%d instances: %v; %d wasted", n, s.Instances, s.Wasted)
		}
	})
}

func TestIncidentAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 12, 21, 14, 30, 0, 5e6, time.UTC)
	for _, c := range []struct {
		in   Incident
		want string
	}{
		{
			Incident{
				ID: "d-1", Name: "d/k", Started: at, Ended: at.Add(minute), Cause: CauseHint, EndedBy: CauseSuccess,
				Reason: "r", By: "ann", Probes: 1, Wasted: 2, Rescheduled: 3, Instances: []string{"a", "b"},
			},
			`{"id":"d-1","name":"d/k","cause":"hint","ended_by":"success","reason":"r","by":"ann","probes":1,"wasted":2,"rescheduled":3,` +
				`"instances":["a","b"],"started":"2025-12-21T14:30:00.005Z","ended":"2025-12-21T14:31:00.005Z"}`,
		},
		{
			Incident{ID: "d-2", Name: "d", Started: at},
			`{"id":"d-2","name":"d","cause":"","ended_by":"","reason":"","by":"","probes":0,"wasted":0,"rescheduled":0,` +
				`"instances":[],"started":"2025-12-21T14:30:00.005Z","ended":null}`,
		},
	} {
		data, err := json.Marshal(c.in)
		if err != nil || string(data) != c.want {
			t.Errorf("got\n%s, %v\nwant\n%s", data, err, c.want)
		}
		var back Incident
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if len(back.Instances) == 0 {
			back.Instances = nil
		}
		if diff := cmp.Diff(c.in, back); diff != "" {
			t.Errorf("read back:\n%s", diff)
		}
	}
}

func TestCloseTellsOfWhatWasPutOff(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	d := redistest.Name(t, "tally")
	b, err := New(t.Context(), rdb, Options{Destination: d, FailureThreshold: 1, RefreshInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	incident := report(t, b, RateLimited(0)).Incident
	b.Rescheduled(incident, 5)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := DefaultNamespace.Get(t.Context(), rdb, d); err != nil || s.Rescheduled != 5 {
		t.Errorf("status: %+v, %v", s, err)
	}
}
