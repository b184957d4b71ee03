package forecast

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
)

var start = time.Date(2030, 1, 31, 14, 10, 0, 0, time.UTC)

func in(d time.Duration) time.Time { return start.Add(d) }

func window(text string, used int, resets time.Duration) Window {
	r, err := breaker.ParseRate(text)
	if err != nil {
		panic(err)
	}
	w := breaker.LimitWindow{Limit: r.Calls, Window: r.Per, Burst: r.Burst, Zone: r.Zone, Used: used, Remaining: r.Calls - used}
	if used > 0 {
		w.ResetsAt = in(resets)
	}
	return Window{LimitWindow: w, Words: text, Cost: 1}
}

func queued(high, normal, low int) [Classes]Queue {
	return [Classes]Queue{{Ready: high}, {Ready: normal}, {Ready: low}}
}

// Each limit, when a job at a place starts, when the last one does, and what holds it.
func TestRun(t *testing.T) {
	t.Parallel()
	costly := window("60/1h:10", 0, 0)
	costly.Cost = 3
	announced := Window{LimitWindow: breaker.LimitWindow{Limit: 60, Window: time.Hour, Remaining: 5, ResetsAt: in(20 * time.Minute)}, Words: "announced", Cost: 1, Fixed: true}
	for name, c := range map[string]struct {
		s       Snapshot
		class   int
		place   float64
		starts  time.Duration
		done    time.Duration
		binding string
	}{
		"spaced": {Snapshot{Queues: queued(0, 61, 0), Windows: []Window{window("60/1h", 0, 0)}}, 1, 30, 30 * time.Minute, time.Hour, "60/1h"},
		"spaced, the last call a moment ago": {
			Snapshot{Queues: queued(0, 61, 0), Windows: []Window{window("60/1h", 1, time.Minute)}}, 1, 0, time.Minute, 61 * time.Minute, "60/1h",
		},
		"burst":            {Snapshot{Queues: queued(0, 20, 0), Windows: []Window{window("60/1h:10", 0, 0)}}, 1, 9, 0, 10 * time.Minute, "60/1h:10"},
		"cost":             {Snapshot{Queues: queued(0, 10, 0), Windows: []Window{costly}}, 1, 3, 2 * time.Minute, 20 * time.Minute, "60/1h:10"},
		"calendar":         {Snapshot{Queues: queued(0, 130, 0), Windows: []Window{window("60/1h@UTC", 20, 50*time.Minute)}}, 1, 39, 0, 110 * time.Minute, "60/1h@UTC"},
		"calendar, unused": {Snapshot{Queues: queued(0, 61, 0), Windows: []Window{window("60/1h@UTC", 0, 0)}}, 1, 60, 50 * time.Minute, 50 * time.Minute, "60/1h@UTC"},
		"announced":        {Snapshot{Queues: queued(0, 66, 0), Windows: []Window{announced}}, 1, 5, 20 * time.Minute, 80 * time.Minute, "announced"},
		"two windows": {
			Snapshot{Queues: queued(0, 70, 0), Windows: []Window{window("1/1s", 0, 0), window("60/1h@UTC", 0, 0)}}, 1, 59, 59 * time.Second, 50*time.Minute + 9*time.Second, "60/1h@UTC",
		},
		"workers": {
			Snapshot{Queues: queued(0, 101, 0), Slots: 1, Took: 999 * time.Millisecond}, 1, 50, 50 * time.Second, 100 * time.Second, "1 calls in flight of 999ms each",
		},
		"open": {
			Snapshot{Queues: queued(0, 1, 0), OpensAt: in(5 * time.Minute), Because: "the breaker is OPEN", Windows: []Window{window("60/1h", 0, 0)}},
			1, 0, 5 * time.Minute, 5 * time.Minute, "the breaker is OPEN",
		},
		"a job of later": {
			Snapshot{Queues: [Classes]Queue{{}, {Later: []Bucket{{in(time.Hour), 1}}}}, Windows: []Window{window("60/1h", 0, 0)}}, 1, 0, time.Hour, time.Hour, "",
		},
		"urgent jobs first, but for some turns of the others": {
			Snapshot{Queues: queued(30, 0, 30), Windows: []Window{window("60/1h", 0, 0)}}, 2, 29, 59 * time.Minute, 59 * time.Minute, "60/1h",
		},
		"a million jobs": {
			Snapshot{Queues: queued(0, 1_000_000, 0), Windows: []Window{window("1000/1s@UTC", 0, 0)}}, 1, 500_000, 500 * time.Second, 999 * time.Second, "1000/1s@UTC",
		},
	} {
		c.s.At = start
		f := Run(c.s)
		if got := f.Start(c.class, c.place).Sub(start); (got - c.starts).Abs() > 2*time.Second {
			t.Errorf("%s: the job at place %v starts after %v, want %v", name, c.place, got, c.starts)
		}
		if got := f.Done.Sub(start); (got-c.done).Abs() > 2*time.Second || f.Binding != c.binding {
			t.Errorf("%s: done after %v, held by %q; want %v, %q", name, got, f.Binding, c.done, c.binding)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	s := Snapshot{At: start, Queues: queued(0, 61, 0), Windows: []Window{window("60/1h", 0, 0)}, Slots: 10, PerWorker: 10, Took: 100 * time.Millisecond}
	q := &s.Queues[1]
	q.Entered = []Mark{{0, in(-time.Hour)}, {61, in(0)}}
	for _, minutes := range []int{1, 30, 59} { // of the first, the middle and the last jobs
		since := in(time.Duration(minutes-60) * time.Minute)
		q.Expiring = append(q.Expiring,
			Expiring{ID: "soon", At: in(20 * time.Minute), Since: since, Weight: 1}, Expiring{ID: "late", At: in(3 * time.Hour), Since: since, Weight: 10})
	}
	r := Run(s).Report("shop")
	half, done := in(30*time.Minute), in(58*time.Minute) // two expire
	if r.Expire != 2 || len(r.First) != 2 || r.First[0].StartsAt.Sub(half).Abs() > 2*time.Minute {
		t.Errorf("%d expire, first %+v; want 2, one that would start at %v", r.Expire, r.First, half)
	}
	if r.OneMore != "nothing: 60/1h would still hold the jobs" || r.Backlog != 61 || len(r.Points) != mostPoints || r.Points[mostPoints-1].Backlog != 0 {
		t.Errorf("one more worker: %q, backlog %d, points %v", r.OneMore, r.Backlog, r.Points)
	}
	want := ETA{At: &done, From: instant(in(29*time.Minute - slack/2)), To: instant(in(116*time.Minute + slack)), Because: "60/1h"}
	if diff := cmp.Diff(want, r.EmptyAt); diff != "" {
		t.Errorf("without history (-want +got):\n%s", diff)
	}
	for i := range 100 { // from 5 % early to 5 % late
		s.Errors = append(s.Errors, float64(i-50)/1000)
		s.Inside = 90
	}
	s.Starts = 20
	e := Run(s).Report("shop").EmptyAt
	if early, late := e.At.Sub(*e.From), e.To.Sub(*e.At); early < 2*time.Minute || early > 3*time.Minute || late < 2*time.Minute || late > 3*time.Minute {
		t.Errorf("with errors of 4.5 %%, from %v before to %v after", early, late)
	}
	s.Windows, s.Slots = nil, 1
	s.Took = time.Minute
	if r := Run(s).Report("shop"); r.OneMore == "" || r.OneMore[:18] != "the backlog would " {
		t.Errorf("one more worker where workers are few: %q", r.OneMore)
	}
	for _, none := range []Snapshot{{At: start, Queues: queued(0, 1, 0), Stopped: "shop is paused"}, {At: start, Queues: queued(0, 1, 0)}} {
		want := none.Stopped
		if want == "" {
			want = noThroughput
		}
		if e := Run(none).Report("shop").EmptyAt; e.At != nil || e.Because != want {
			t.Errorf("%+v, want none because %q", e, want)
		}
	}
}

// Where keys take turns, the second job of a key comes behind the first ones of all.
func TestPlaces(t *testing.T) {
	t.Parallel()
	q := Queue{Ready: 104, Keys: []int{1, 1, 2, 100}, AllKeys: 4, Later: []Bucket{{in(time.Hour), 10}, {in(2 * time.Hour), 10}}}
	for before, want := range map[int]float64{0: 1.5, 1: 3.5, 99: 101.5} {
		if got := q.PlaceInTurn(before); got != want {
			t.Errorf("with %d before it in its key: place %v, want %v", before, got, want)
		}
	}
	for after, want := range map[time.Duration]float64{0: 104, time.Hour: 114, 90 * time.Minute: 119, 3 * time.Hour: 124} {
		if got := q.PlaceAt(in(after)); got != want {
			t.Errorf("ready after %v: place %v, want %v", after, got, want)
		}
	}
}
