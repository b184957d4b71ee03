package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// What each model says to calls at these seconds, of half a second each: a is accepted, a number refused for so long.
func TestAPIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"window:2/10s,hints:retry-after":                  "0a 0.2a 0.4 10 9 1 10a 10.5a 11 9",
		"window:2/10s@UTC,hints:retry-after":              "7a 8a 9 1 10a",
		"sliding:2/10s,hints:retry-after":                 "0a 4a 9 1 10a 10.1 4 14a",
		"bucket:1/5s:2,hints:retry-after":                 "0a 0.1a 0.2 5 5a 5.1 5 20a 20a 20 5",
		"penalty:1/10s+5s,hints:retry-after":              "0a 9 6 14 6 20a",
		"concurrency:2,hints:retry-after":                 "0a 0.1a 0.2 1 0.5a",
		"window:1/2s,window:2/10s":                        "0a 1 0 2a 4 0 10a",
		"outage:1s+2s,outage:4s+1s":                       "0a 1x 2.9x 3a 4x 5a",
		"window:2/10s,hints:ratelimit":                    "0a=1/10 1a=0/9 2=0/8 0",
		"sliding:2/10s,hints:retry-after,hints:ratelimit": "0a=1/10 4a=0/6 5=0/5 5",
	} {
		a, err := ParseAPI(text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for fields := strings.Fields(want); len(fields) > 0; fields = fields[1:] {
			var at float64
			if _, err := fmt.Sscan(strings.TrimRight(strings.Split(fields[0], "=")[0], "ax"), &at); err != nil {
				t.Fatal(err)
			}
			since := time.Duration(at * float64(time.Second))
			r := a.call(Start.Add(since), Start.Add(since+500*time.Millisecond), since)
			budget := ""
			if r.budget != nil {
				budget = fmt.Sprintf("=%d/%v", r.budget.Remaining, r.budget.Reset.Seconds())
			}
			switch r.status {
			case 200:
				got = append(got, fmt.Sprint(at, "a", budget))
			case 502:
				got = append(got, fmt.Sprint(at, "x"))
			default:
				got = append(got, fmt.Sprint(at, budget), fmt.Sprint(r.hint.Seconds()))
				fields = fields[1:]
			}
		}
		if got := strings.ReplaceAll(strings.Join(got, " "), " =", "="); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
	for _, wrong := range []string{"", "window", "60/1h", "sliding:1000001/1h", "window:60", "leaky:1/1s", "penalty:60/1h", "penalty:60/1h+9000h", "outage:1h", "concurrency:0", "hints:no", "sliding:1/1h@UTC"} {
		if _, err := ParseAPI(wrong); err == nil || !strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), "zone") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// An hour is played in seconds, the same for the same seed; what is declared is not wasted.
func TestRun(t *testing.T) {
	t.Parallel()
	reactive := breaker.Options{NoLearning: true, FailureThreshold: 2, Cooldown: 5 * time.Minute, CooldownJitter: .1}
	run := func(o Options) Result {
		t.Helper()
		o.Slots, o.Latency, o.Seed = 10, 200*time.Millisecond, max(1, o.Seed)
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		accepted, wasted, last := 0, 0, r.Points[len(r.Points)-1].Backlog
		for _, p := range r.Points {
			accepted, wasted = accepted+p.Accepted, wasted+p.Wasted
		}
		r.Points = r.Points[:1]
		if accepted != r.Completed || wasted != r.Wasted || last != r.Left || r.Calls != accepted+wasted+r.Down || r.Jobs != r.Completed+r.Failed+r.Expired+r.Left {
			t.Errorf("it does not add up: %+v", r)
		}
		return r
	}
	jobsAtOnce := make([]time.Duration, 100)
	first := run(Options{API: "window:20/10m", Breaker: reactive, Arrivals: jobsAtOnce, For: time.Hour})
	if first.Drained == nil || *first.Drained < 2400 || first.Wasted < 2*first.Opened || first.Opened < 4 {
		t.Errorf("reactive: %+v", first)
	}
	if again := run(Options{API: "window:20/10m", Breaker: reactive, Arrivals: jobsAtOnce, For: time.Hour}); !cmp.Equal(first, again) {
		t.Error("not repeatable:", cmp.Diff(first, again))
	}
	declared := run(Options{API: "sliding:20/10m", Breaker: breaker.Options{Rate: breaker.Rates{{Calls: 20, Per: 10 * time.Minute}}}, Arrivals: jobsAtOnce, For: time.Hour, ExpireIn: 30 * time.Minute})
	if declared.Wasted != 0 || declared.Completed != 60 || declared.Expired != 40 || *declared.Drained != 1800 || declared.Max != 1770 {
		t.Errorf("declared: %+v", declared)
	}
	hinted := run(Options{API: "window:20/10m,hints:ratelimit", Breaker: breaker.Options{}, Arrivals: jobsAtOnce, For: 20 * time.Minute})
	if hinted.Wasted != 0 || hinted.Completed != 40 || hinted.Drained != nil {
		t.Errorf("hinted: %+v", hinted)
	}
	down := run(Options{API: "concurrency:10,outage:5m+5m", Breaker: reactive, Retry: &jobs.RetryPolicy{MaxRetries: 2}, Arrivals: Poisson(breaker.Rate{Calls: 10, Per: time.Minute}, 20*time.Minute, 1), For: time.Hour})
	if down.Opened != 1 || down.Failed > 3 || down.Left != 0 || down.Down < 10 || down.Down > 30 || down.Max < 120 {
		t.Errorf("outage: %+v", down)
	}
	if other := Poisson(breaker.Rate{Calls: 10, Per: time.Minute}, 20*time.Minute, 2); len(other) == down.Jobs && len(other) < 150 || len(other) > 250 {
		t.Error(len(other), "arrivals")
	}
}
