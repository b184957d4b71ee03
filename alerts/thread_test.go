package alerts

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
)

var day = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return day.Add(d) }

// incidents makes incidents of pairs of instants, counted from noon; an end of 0 is none.
func incidents(pairs ...[2]time.Duration) (out []breaker.Incident) {
	for i, p := range pairs {
		in := breaker.Incident{ID: fmt.Sprint("i", i+1), Name: "shop", Started: at(p[0]), Cause: breaker.CauseThreshold, Wasted: 3}
		if p[1] > 0 {
			in.Ended = at(p[1])
		}
		out = append(out, in)
	}
	return out
}

const (
	second = time.Second
	minute = time.Minute
)

// Which incidents share a message.
func TestThreads(t *testing.T) {
	t.Parallel()
	type opened struct {
		ID       string
		Openings int
		Open     bool
	}
	tests := map[string]struct {
		cooldown  time.Duration
		incidents []breaker.Incident
		want      []opened
	}{
		"none":           {minute, nil, nil},
		"one":            {minute, incidents([2]time.Duration{0, 0}), []opened{{"i1", 1, true}}},
		"one that ended": {minute, incidents([2]time.Duration{0, 5 * minute}), []opened{{"i1", 1, false}}},
		"two, closed for a cooldown between them": {
			minute, incidents([2]time.Duration{0, 5 * minute}, [2]time.Duration{6 * minute, 0}),
			[]opened{{"i1", 1, false}, {"i2", 1, true}},
		},
		"opened again before it was closed for a cooldown": {
			minute, incidents([2]time.Duration{0, 5 * minute}, [2]time.Duration{6*minute - second, 0}),
			[]opened{{"i1", 2, true}},
		},
		"a cooldown of an hour is no reason to join after ten minutes": {
			time.Hour, incidents([2]time.Duration{0, 5 * minute}, [2]time.Duration{15 * minute, 0}),
			[]opened{{"i1", 1, false}, {"i2", 1, true}},
		},
		"the third within ten minutes": {
			second, incidents([2]time.Duration{0, 1 * minute}, [2]time.Duration{4 * minute, 5 * minute}, [2]time.Duration{9 * minute, 0}),
			[]opened{{"i1", 1, false}, {"i2", 2, true}},
		},
		"the third after ten minutes": {
			second, incidents([2]time.Duration{0, 1 * minute}, [2]time.Duration{4 * minute, 5 * minute}, [2]time.Duration{10 * minute, 0}),
			[]opened{{"i1", 1, false}, {"i2", 1, true}, {"i3", 1, true}},
		},
	}
	tests["the third after ten minutes"].want[1].Open = false
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cooldowns := map[string]time.Duration{}
			for _, in := range test.incidents {
				cooldowns[in.ID] = test.cooldown
			}
			all, step := &subject{}, &subject{}
			all.merge(test.incidents, cooldowns, day, at(time.Hour))
			// One by one, as they begin and as they end, the result is the same.
			for i := range test.incidents {
				running := append([]breaker.Incident{}, test.incidents[:i+1]...)
				running[i].Ended = time.Time{}
				step.merge(running, cooldowns, day, running[i].Started)
				step.merge(test.incidents[:i+1], cooldowns, day, at(time.Hour))
			}
			if diff := cmp.Diff(all, step, cmp.AllowUnexported(thread{})); diff != "" {
				t.Errorf("merged at once (-) and one by one (+):\n%s", diff)
			}
			var got []opened
			for _, c := range all.Threads {
				got = append(got, opened{c.ID, c.Openings, c.open()})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("cases (-want +got):\n%s", diff)
			}
			if all.merge(test.incidents, cooldowns, day, at(time.Hour)) {
				t.Error("the same again is news")
			}
		})
	}
}

// Twenty openings, however far apart within the hour, are one message or two.
func TestFlappingIsOneThread(t *testing.T) {
	t.Parallel()
	for gap, want := range map[time.Duration]int{second: 1, 30 * second: 2, 2 * minute: 2, 4 * minute: 2} {
		var list []breaker.Incident
		for i := range 20 {
			in := breaker.Incident{ID: fmt.Sprint("i", i), Started: at(time.Duration(i) * (5*second + gap)), Wasted: 2, Probes: 1}
			in.Ended = in.Started.Add(5 * second)
			list = append(list, in)
		}
		cooldowns := map[string]time.Duration{}
		for _, in := range list {
			cooldowns[in.ID] = 5 * second
		}
		got := &subject{}
		for i := range list {
			got.merge(list[:i+1], cooldowns, day, list[i].Ended)
		}
		if len(got.Threads) != want {
			t.Errorf("closed for %v between openings: %d cases, want %d", gap, len(got.Threads), want)
		}
		last := got.last()
		if sum := last.Before.plus(last.Last); sum.Wasted != 2*last.Openings || sum.Probes != last.Openings {
			t.Errorf("closed for %v: sums %+v of %d openings", gap, sum, last.Openings)
		}
		if !last.overAt().Equal(last.Ended.Add(time.Minute)) {
			t.Errorf("closed for %v: over %v after the end, want a minute", gap, last.overAt().Sub(last.Ended))
		}
	}
}

func TestOldIncidentsStartNoThread(t *testing.T) {
	t.Parallel()
	got := &subject{}
	got.merge(incidents([2]time.Duration{0, minute}, [2]time.Duration{20 * minute, 22 * minute}, [2]time.Duration{40 * minute, 0}), nil, at(21*minute), at(41*minute))
	var ids []string
	for _, c := range got.Threads {
		ids = append(ids, c.ID)
	}
	if diff := cmp.Diff([]string{"i2", "i3"}, ids); diff != "" {
		t.Errorf("cases of a watch that began in the second incident (-want +got):\n%s", diff)
	}
}

// The thread of a breaker whose data was lost does not stay open for ever.
func TestLostIncidentEnds(t *testing.T) {
	t.Parallel()
	got := &subject{}
	got.merge(incidents([2]time.Duration{0, 0}), nil, day, at(second))
	if !got.merge(nil, nil, day, at(minute)) || got.last().open() || !got.last().Ended.Equal(at(minute)) {
		t.Errorf("case %+v after its incident was lost", got.last())
	}
}

func TestPageIsDue(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		list []breaker.Incident
		now  time.Duration
		want bool
	}{
		"not yet":                                {incidents([2]time.Duration{0, 0}), 15*minute - 1, false},
		"now":                                    {incidents([2]time.Duration{0, 0}), 15 * minute, true},
		"closed before":                          {incidents([2]time.Duration{0, 15*minute - 1}), time.Hour, false},
		"closed after, and nothing was sent yet": {incidents([2]time.Duration{0, 15 * minute}), time.Hour, true},
		"open again, not for as long": {
			incidents([2]time.Duration{0, 8 * minute}, [2]time.Duration{8*minute + second, 0}), 23*minute + second - 1, false,
		},
		"open again for as long": {
			incidents([2]time.Duration{0, 8 * minute}, [2]time.Duration{8*minute + second, 0}), 23*minute + second, true,
		},
		"flapped, and closed before": {
			incidents([2]time.Duration{0, 8 * minute}, [2]time.Duration{8*minute + second, 14 * minute}), time.Hour, false,
		},
	} {
		got := &subject{}
		got.merge(test.list, map[string]time.Duration{"i1": minute, "i2": minute}, day, at(test.now))
		if due := got.last().pageDue(at(test.now), 15*minute); due != test.want {
			t.Errorf("%second: due %v, want %v", name, due, test.want)
		}
		if got.last().pageDue(at(test.now), -1) {
			t.Errorf("%second: paged though paging is off", name)
		}
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	list := incidents([2]time.Duration{0, minute}, [2]time.Duration{20 * minute, 22 * minute}, [2]time.Duration{40 * minute, 41 * minute})
	got := &subject{}
	got.merge(list, nil, day, at(time.Hour))
	for i, name := range []string{"slack", "slack", "slack", "pagerduty", "", "pagerduty"} {
		got.Threads[i%3].Done.add(name)
	}
	both := []string{"slack", "pagerduty"}
	if got.forget(both, at(minute)) {
		t.Error("a thread of the last hour is forgotten")
	}
	if !got.forget(both, at(time.Hour)) || len(got.Threads) != 2 || got.Threads[0].ID != "i2" || got.Threads[1].ID != "i3" {
		t.Errorf("left are %+v, want the one that PagerDuty does not know all of, and the last", got.Threads)
	}
	if got.merge(list, nil, day, at(time.Hour)) {
		t.Error("a forgotten case comes back")
	}
}

func TestKeysThread(t *testing.T) {
	t.Parallel()
	key := func(name string, since time.Duration) breaker.Status {
		return breaker.Status{Name: "shop/" + name, State: breaker.Open, OpenedAt: at(since)}
	}
	names := []string{"slack"}
	got := &keysSubject{}
	if got.merge("keys", nil, time.Time{}, at(0), names) || got.Thread != nil {
		t.Fatal("a case of nothing")
	}
	if !got.merge("keys", []breaker.Status{key("b", 20*second), key("a", 10*second)}, time.Time{}, at(30*second), names) {
		t.Fatal("two limited keys are no news")
	}
	first := *got.Thread
	if !first.Since.Equal(at(10*second)) || first.Open != 2 || first.Most != 2 {
		t.Errorf("case %+v", first)
	}
	got.merge("keys", nil, time.Time{}, at(minute), names)
	got.merge("keys", []breaker.Status{key("c", minute+50*second)}, time.Time{}, at(minute+55*second), names)
	if got.Thread.ID != first.ID || !got.Thread.Ended.IsZero() || got.Thread.Most != 2 {
		t.Errorf("a key within a minute of the end: %+v, want the same case", got.Thread)
	}
	got.merge("keys", nil, time.Time{}, at(2*minute), names)
	if got.Thread.over(at(3*minute-1)) || !got.Thread.over(at(3*minute)) {
		t.Error("it is over a minute after the last key")
	}
	got.Thread.Done.add("slack")
	if got.merge("keys", nil, time.Time{}, at(4*minute), names) {
		t.Error("news of a case that is over")
	}
	// One that opened and closed between two looks.
	if !got.merge("keys", nil, at(5*minute-second), at(5*minute), names) || got.Thread.ID == first.ID || got.Thread.Ended.IsZero() {
		t.Errorf("a short incident: %+v", got.Thread)
	}
}
