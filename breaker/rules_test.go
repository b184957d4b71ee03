package breaker

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

const (
	second = time.Second
	minute = time.Minute
)

func TestRulesInRedis(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		// The six cases of the decision that the breaker was made for.
		{"six cases", Options{}, []row{
			{0, call(RateLimited(0)), "CLOSED failures=1"},
			{1 * second, call(RateLimited(0)), "CLOSED failures=2"},
			{2 * second, call(RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=3"},
			{2 * second, ask("refused"), "OPEN for 5m0s"},
			{5*minute + 2*second - time.Millisecond, ask("refused"), "OPEN for 1ms"},
			{5*minute + 2*second - time.Millisecond, get, "OPEN 1ms failures=3 threshold wasted=3"},
			{5*minute + 2*second, get, "HALF_OPEN failures=3 threshold wasted=3"},
			{5*minute + 2*second, ask("probe"), "probe"},
			{5*minute + 3*second, tell("probe", RateLimited(0)), "OPEN 5m0s failures=3 probe probes=1 wasted=4"},
			{10*minute + 3*second, ask("probe"), "probe"},
			{10*minute + 4*second, tell("probe", Success()), "CLOSED"},
			{10*minute + 4*second, ask("next"), "permit"},
			{10*minute + 4*second, story, "CLOSED→OPEN threshold #1 by worker-1; " +
				"OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→OPEN probe #1 by worker-1; " +
				"OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→CLOSED success #1 by worker-1"},
		}},
		{"success resets failures and other failures do neither", Options{}, []row{
			{0, calls(2, RateLimited(0)), "CLOSED failures=2"},
			{0, call(Success()), "CLOSED"},
			{0, get, "CLOSED"},
			{0, calls(2, RateLimited(0)), "CLOSED failures=2"},
			{0, calls(5, Failure()), "CLOSED failures=2"},
			{0, calls(5, Outcome{}), "CLOSED failures=2"},
			{0, get, "CLOSED failures=2"},
			{0, call(RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=3"},
		}},
		{"threshold of one", Options{FailureThreshold: 1, Cooldown: second}, []row{
			{0, call(RateLimited(0)), "OPEN 1s failures=1 threshold wasted=1"},
			{second, call(Success()), "CLOSED"},
		}},
		{"cooldown grows with failed probes up to the cap", Options{NoLearning: true, FailureThreshold: 1, Cooldown: 10 * second, CooldownMultiplier: 2, CooldownJitter: -1, MaxCooldown: 35 * second}, []row{
			{0, call(RateLimited(0)), "OPEN 10s failures=1 threshold wasted=1"},
			{10 * second, call(RateLimited(0)), "OPEN 20s failures=1 probe probes=1 wasted=2"},
			{30 * second, call(RateLimited(0)), "OPEN 35s failures=1 probe probes=2 wasted=3"},
			{65 * second, call(RateLimited(0)), "OPEN 35s failures=1 probe probes=3 wasted=4"},
			{100 * second, call(Success()), "CLOSED"},
			// It falls back by a step once it has been CLOSED for as long as its last cooldown.
			{135*second - time.Millisecond, call(RateLimited(0)), "OPEN 35s failures=1 threshold wasted=1"},
			{170 * second, call(Success()), "CLOSED"},
			{205 * second, call(RateLimited(0)), "OPEN 20s failures=1 threshold wasted=1"},
			{225 * second, call(Success()), "CLOSED"},
			{245 * second, call(RateLimited(0)), "OPEN 10s failures=1 threshold wasted=1"},
		}},
		{"multiplier overflows to the cap", Options{FailureThreshold: 1, Cooldown: second, CooldownMultiplier: 1000, MaxCooldown: 2 * second}, []row{
			{0, call(RateLimited(0)), "OPEN 1s failures=1 threshold wasted=1"},
			{1 * second, setRule("level", 500), ""},
			{1 * second, call(RateLimited(0)), "OPEN 2s failures=1 probe probes=1 wasted=2"},
		}},
		{"hint opens at once", Options{}, []row{
			{0, call(RateLimited(90 * second)), "OPEN 1m30s failures=1 hint wasted=1"},
			{90 * second, call(RateLimited(0)), "OPEN 5m0s failures=1 probe probes=1 wasted=2"},
			{390 * second, call(RateLimited(30 * second)), "OPEN 30s failures=1 hint probes=2 wasted=3"}, // the first hint of this wait
			{7 * minute, call(Success()), "CLOSED"},
			{7 * minute, call(RateLimited(100 * time.Hour)), "OPEN 1h0m0s failures=1 hint wasted=1"},
		}},
		{"tiny and negative hints", Options{}, []row{
			{0, call(RateLimited(-second)), "CLOSED failures=1"},
			{0, call(RateLimited(time.Nanosecond)), "OPEN 1ms failures=2 hint wasted=2"},
		}},
		{"ignored hints", Options{IgnoreHints: true}, []row{
			{0, calls(2, RateLimited(second)), "CLOSED failures=2"},
			{0, call(RateLimited(second)), "OPEN 5m0s failures=3 threshold wasted=3"},
			{5 * minute, call(RateLimited(second)), "OPEN 5m0s failures=3 probe probes=1 wasted=4"},
		}},
		{"late reports do not move a newer state", Options{NoLearning: true}, []row{
			{0, ask("late 429"), "permit"},
			{0, ask("late success"), "permit"},
			{0, ask("later 429"), "permit"},
			{0, ask("latest 429"), "permit"},
			{0, ask("latest success"), "permit"},
			{0, calls(3, RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=3"},
			// OPEN: the call was wasted, and that is all.
			{second, tell("late 429", RateLimited(0)), "OPEN 4m59s failures=3 threshold wasted=4"},
			{second, tell("late success", Success()), "OPEN 4m59s failures=3 threshold wasted=4"},
			{5 * minute, ask("probe"), "probe"},
			// HALF_OPEN: the probe decides.
			{5 * minute, tell("later 429", RateLimited(0)), "HALF_OPEN failures=3 threshold wasted=5"},
			{5 * minute, tell("probe", Success()), "CLOSED"},
			// CLOSED again: what was limited before is over.
			{5 * minute, tell("latest 429", RateLimited(second)), "CLOSED"},
			{5 * minute, call(RateLimited(0)), "CLOSED failures=1"},
			{5 * minute, tell("latest success", Success()), "CLOSED failures=1"},
			{5 * minute, get, "CLOSED failures=1"},
		}},
		{"late hint extends and never shortens", Options{}, []row{
			{0, ask("a"), "permit"},
			{0, ask("b"), "permit"},
			{0, ask("c"), "permit"},
			{0, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
			{10 * second, tell("a", RateLimited(20*second)), "OPEN 50s failures=1 hint wasted=2"},
			{10 * second, tell("b", RateLimited(2*minute)), "OPEN 2m0s failures=1 hint wasted=3"},
			{10 * second, tell("c", RateLimited(100*time.Hour)), "OPEN 1h0m0s failures=1 hint wasted=4"},
			{10 * second, story, "CLOSED→OPEN hint #1 by worker-1"},
		}},
		{"late hint is ignored if hints are", Options{FailureThreshold: 1, IgnoreHints: true, Cooldown: minute}, []row{
			{0, ask("a"), "permit"},
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{0, tell("a", RateLimited(10*minute)), "OPEN 1m0s failures=1 threshold wasted=2"},
		}},
		{"probe that tells nothing is repeated more and more slowly", Options{FailureThreshold: 1, Cooldown: 3 * second}, []row{
			{0, call(RateLimited(0)), "OPEN 3s failures=1 threshold wasted=1"},
			{3 * second, ask("1"), "probe"},
			{3500 * time.Millisecond, tell("1", Failure()), "HALF_OPEN failures=1 threshold wasted=1"},
			{3500 * time.Millisecond, ask("early"), "HALF_OPEN for 500ms"},
			{4 * second, ask("2"), "probe"},
			{4 * second, tell("2", Failure()), "HALF_OPEN failures=1 threshold wasted=1"},
			{4 * second, ask("early"), "HALF_OPEN for 2s"},
			{6 * second, ask("3"), "probe"},
			{6 * second, tell("3", Failure()), "HALF_OPEN failures=1 threshold wasted=1"},
			{6 * second, ask("early"), "HALF_OPEN for 3s"}, // the cooldown, not 4 s
			{9 * second, ask("4"), "probe"},
			{9 * second, tell("4", RateLimited(0)), "OPEN 3s failures=1 probe probes=1 wasted=2"},
			// The next HALF_OPEN starts anew.
			{12 * second, ask("5"), "probe"},
			{12 * second, tell("5", Failure()), "HALF_OPEN failures=1 probe probes=1 wasted=2"},
			{12 * second, ask("early"), "HALF_OPEN for 1s"},
			{13 * second, call(Success()), "CLOSED"},
		}},
		{"lapsed lease is replaced", Options{FailureThreshold: 1, Cooldown: minute, ProbeTimeout: 5 * second}, []row{
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{60 * second, ask("dead"), "probe"},
			{65*second - time.Millisecond, ask("early"), "HALF_OPEN for 1ms"},
			{65 * second, ask("second"), "probe"},
			// The first prober was only slow: its answers do not count any more.
			{65 * second, tell("dead", Success()), "HALF_OPEN failures=1 threshold wasted=1"},
			{66 * second, ask("third"), "HALF_OPEN for 4s"},
			{66 * second, tell("second", Success()), "CLOSED"},
		}},
		{"lapsed lease shorter than the pause is replaced after the pause", Options{FailureThreshold: 1, Cooldown: minute, ProbeTimeout: 100 * time.Millisecond}, []row{
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{60 * second, ask("dead"), "probe"},
			{60*second + 100*time.Millisecond, ask("early"), "HALF_OPEN for 900ms"},
			{61 * second, ask("dead too"), "probe"},
			{61*second + 500*time.Millisecond, ask("early"), "HALF_OPEN for 1.5s"},
			{63 * second, ask("third"), "probe"},
		}},
		{"report after the lease counts if nobody else probes", Options{FailureThreshold: 1, Cooldown: minute, ProbeTimeout: 5 * second}, []row{
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{60 * second, ask("slow"), "probe"},
			{80 * second, tell("slow", Success()), "CLOSED"},
		}},
		{"released probe lets the next start at once", Options{FailureThreshold: 1, Cooldown: minute}, []row{
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{60 * second, ask("unused"), "probe"},
			{60 * second, release("unused"), "HALF_OPEN failures=1 threshold wasted=1"},
			{60 * second, ask("cancelled"), "probe"},
			{60 * second, tell("cancelled", Outcome{}), "HALF_OPEN failures=1 threshold wasted=1"},
			{60 * second, ask("probe"), "probe"},
			{60 * second, release("unused"), "HALF_OPEN failures=1 threshold wasted=1"}, // not its lease
			{60 * second, ask("other"), "HALF_OPEN for 35s"},
			{60 * second, tell("probe", Success()), "CLOSED"},
			{60 * second, story, "CLOSED→OPEN threshold #1 by worker-1; " +
				"OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→CLOSED success #1 by worker-1"},
		}},
		{"release of an ordinary permit does nothing", Options{}, []row{
			{0, call(RateLimited(0)), "CLOSED failures=1"},
			{0, ask("unused"), "permit"},
			{0, release("unused"), "CLOSED failures=1"},
			{0, get, "CLOSED failures=1"},
		}},
		{"advance", Options{FailureThreshold: 1, Cooldown: minute}, []row{
			{0, advance, "CLOSED"},
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{59 * second, advance, "OPEN 1s failures=1 threshold wasted=1"},
			{60 * second, advance, "HALF_OPEN failures=1 threshold wasted=1"},
			{60 * second, advance, "HALF_OPEN failures=1 threshold wasted=1"},
			{60 * second, story, "CLOSED→OPEN threshold #1 by worker-1; OPEN→HALF_OPEN cooldown #1 by worker-1"},
			{60 * second, ask("probe"), "probe"},
		}},
		{"trip for a time", Options{}, []row{
			{0, ask("late"), "permit"},
			{0, trip(10 * minute), "OPEN 10m0s manual"},
			{0, ask("refused"), "OPEN for 10m0s"},
			{minute, tell("late", RateLimited(second)), "OPEN 9m0s manual wasted=1"},
			{10 * minute, call(Success()), "CLOSED"},
			{10 * minute, story, "CLOSED→OPEN manual #1 by ann; OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→CLOSED success #1 by worker-1"},
		}},
		{"trip until reset", Options{}, []row{
			{0, ask("late"), "permit"},
			{0, trip(0), "OPEN until reset manual"},
			{0, tell("late", RateLimited(minute)), "OPEN until reset manual wasted=1"},
			{1000 * time.Hour, look, "OPEN until reset manual wasted=1"},
			{1000 * time.Hour, ask("refused"), "OPEN for 1h0m0s"},
			{1000 * time.Hour, advance, "OPEN until reset manual wasted=1"},
			{1000 * time.Hour, reset, "CLOSED"},
			{1000 * time.Hour, ask("next"), "permit"},
			{1000 * time.Hour, story, "CLOSED→OPEN manual #1 by ann; OPEN→CLOSED reset #1 by ann"},
		}},
		{"trip of an open breaker keeps the incident", Options{FailureThreshold: 1}, []row{
			{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
			{0, trip(minute), "OPEN 1m0s failures=1 manual wasted=1"},
			{minute, call(RateLimited(0)), "OPEN 5m0s failures=1 probe probes=1 wasted=2"},
			{minute, story, "CLOSED→OPEN threshold #1 by worker-1; OPEN→OPEN manual #1 by ann; " +
				"OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→OPEN probe #1 by worker-1"},
		}},
		{"trip during the probe", Options{FailureThreshold: 1}, []row{
			{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
			{5 * minute, ask("probe"), "probe"},
			{5 * minute, trip(minute), "OPEN 1m0s failures=1 manual wasted=1"},
			{5 * minute, tell("probe", Success()), "OPEN 1m0s failures=1 manual wasted=1"},
			{6 * minute, ask("probe"), "probe"},
		}},
		{"reset from every state", Options{FailureThreshold: 2}, []row{
			{0, reset, "CLOSED"},
			{0, story, ""},
			{0, ask("before"), "permit"},
			{0, call(RateLimited(0)), "CLOSED failures=1"},
			{0, reset, "CLOSED"},
			{0, tell("before", RateLimited(0)), "CLOSED"}, // started before the reset
			{0, calls(2, RateLimited(0)), "OPEN 5m0s failures=2 threshold wasted=2"},
			{0, reset, "CLOSED"},
			{0, calls(2, RateLimited(0)), "OPEN 5m0s failures=2 threshold wasted=2"},
			{5 * minute, ask("probe"), "probe"},
			{5 * minute, reset, "CLOSED"},
			{5 * minute, tell("probe", RateLimited(minute)), "CLOSED"},
			{5 * minute, story, "CLOSED→CLOSED reset #0 by ann; " +
				"CLOSED→OPEN threshold #1 by worker-1; OPEN→CLOSED reset #1 by ann; " +
				"CLOSED→OPEN threshold #2 by worker-1; OPEN→HALF_OPEN cooldown #2 by worker-1; HALF_OPEN→CLOSED reset #2 by ann"},
		}},
		{"reported twice counts once", Options{FailureThreshold: 3}, []row{
			{0, ask("a"), "permit"},
			{0, ask("late"), "permit"},
			{0, tell("a", RateLimited(0)), "CLOSED failures=1"},
			{0, tell("a", RateLimited(0)), "CLOSED failures=1"},
			{0, ask("ok"), "permit"},
			{0, tell("ok", Success()), "CLOSED"},
			{0, call(RateLimited(0)), "CLOSED failures=1"},
			{0, tell("ok", Success()), "CLOSED failures=1"}, // the reset came before
			{0, calls(2, RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=3"},
			{0, tell("late", RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=4"},
			{0, tell("late", RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=4"},
			{5 * minute, ask("probe"), "probe"},
			{5 * minute, tell("probe", RateLimited(10*minute)), "OPEN 10m0s failures=3 hint probes=1 wasted=5"},
			{6 * minute, tell("probe", RateLimited(10*minute)), "OPEN 9m0s failures=3 hint probes=1 wasted=5"},
		}},
		{"lost data means closed", Options{FailureThreshold: 1}, []row{
			{0, ask("old"), "permit"},
			{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
			{5 * minute, ask("probe"), "probe"},
			{5 * minute, lose(), ""},
			{6 * minute, look, "CLOSED"},
			{6 * minute, tell("probe", Success()), "CLOSED"},
			{6 * minute, tell("old", Success()), "CLOSED"},
			{6 * minute, ask("next"), "permit"},
			{6 * minute, tell("next", RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
			// What was issued before the loss is older than what came after. How many
			// calls the instances can make is lost as well: there is a slow start.
			{11 * minute, call(Success()), "CLOSED slow=1"},
			{11 * minute, tell("old", RateLimited(0)), "CLOSED slow=1"},
			{11 * minute, tell("probe", RateLimited(0)), "CLOSED slow=1"},
		}},
		{"loss is noticed by those who ask", Options{FailureThreshold: 1}, []row{
			{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
			{minute, lose(), ""},
			{minute, ask("refused"), "OPEN for 4m0s"}, // the mirror, until its next read
			{5 * minute, ask("next"), "permit"},
			{5 * minute, call(Success()), "CLOSED"},
		}},
		{"lost hash alone", Options{}, []row{
			{0, trip(0), "OPEN until reset manual"},
			{0, lose(0), ""},
			{0, look, "OPEN until reset manual"}, // still mirrored
			{0, advance, "CLOSED"},               // what keepFresh does now and then
			{0, look, "CLOSED"},
			{0, trip(0), "OPEN until reset manual"},
			{0, lose(0), ""},
			{0, reset, "CLOSED"},
			{0, look, "CLOSED"},
		}},
		{"lost mirror alone", Options{FailureThreshold: 1}, []row{
			{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
			{0, lose(1), ""},
			{0, look, "CLOSED"},
			{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=2"}, // one call too many
			{0, look, "OPEN 5m0s failures=1 threshold wasted=2"},
		}},
		{"damaged hash never holds for ever", Options{FailureThreshold: 1}, []row{
			{0, set("record", "{"), ""},
			{0, get, "CLOSED"},
			{0, set("record", `["a"]`), ""},
			{0, get, "CLOSED"},
			{0, set("record", "{}"), ""},
			{0, setRule("state", "open?"), ""},
			{0, get, "CLOSED"},
			{0, setRule("state", "OPEN"), ""},
			{0, setRule("open_until", "soon"), ""},
			{0, get, "HALF_OPEN"},
			{0, setRule("open_until", 1e99), ""},
			{0, get, "HALF_OPEN"},
			{0, setRule("open_until", []int{1}), ""},
			{0, advance, "HALF_OPEN"},
			{0, set("generation", "-1"), ""},
			{0, set("probe_after", "x"), ""},
			{0, call(Success()), "CLOSED"},
			{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		}},
		{"redis clock going back does not wedge", Options{NoLearning: true, FailureThreshold: 1, ProbeTimeout: 30 * second}, []row{
			{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
			{minute, jump(-24 * time.Hour), ""},
			{minute, get, "OPEN 5m0s failures=1 threshold wasted=1"}, // what was left at the last change
			{minute, advance, "OPEN 5m0s failures=1 threshold wasted=1"},
			{3 * minute, look, "OPEN 3m0s failures=1 threshold wasted=1"},
			{6 * minute, ask("probe"), "probe"},
			{6 * minute, jump(-24 * time.Hour), ""},
			{6*minute + 29*second, ask("other"), "HALF_OPEN for 1s"},
			{6*minute + 30*second, ask("other"), "HALF_OPEN for 30s"}, // found to be behind, counted anew
			{7 * minute, ask("other"), "probe"},
			{7 * minute, tell("other", Success()), "CLOSED"},
			{7 * minute, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		}},
		{"redis clock going forward ends the cooldown", Options{FailureThreshold: 1}, []row{
			{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
			{0, jump(24 * time.Hour), ""},
			{0, look, "HALF_OPEN failures=1 threshold wasted=1"},
			{0, call(Success()), "CLOSED"},
		}},
	})
}

// A hint that proves wrong is not obeyed again: the next wait at least doubles, up to the longest.
func TestHintsAreJudged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hint time.Duration
		want []time.Duration
	}{
		"milliseconds":           {40 * time.Millisecond, []time.Duration{40 * time.Millisecond, second, 2 * second, 4 * second, 8 * second, 10 * second}},
		"always a second":        {second, []time.Duration{second, 2 * second, 4 * second, 8 * second, 10 * second, 10 * second}},
		"longer than the double": {5 * second, []time.Duration{5 * second, 10 * second}},
		"longer than allowed":    {minute, []time.Duration{10 * second, minute, 10 * second}}, // believed when it is said twice, until it proves wrong,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused := func(h *harness) string {
				call(RateLimited(test.hint))(h)
				return h.status().Remaining.String()
			}
			var rows []row
			at := time.Duration(0)
			for _, wait := range test.want {
				rows = append(rows, row{at, refused, wait.String()})
				at += wait
			}
			// Accepted, it is over: the next incident's hint counts as it is.
			rows = append(rows, row{at, call(Success()), "CLOSED"},
				row{at, call(RateLimited(test.hint)), fmt.Sprintf("OPEN %v failures=1 hint wasted=1", test.want[0])})
			runRows(t, Options{Cooldown: 10 * second, MaxCooldown: 10 * second}, rows...)
		})
	}
}

func TestOneProbeAtATime(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, Cooldown: minute, ProbeTimeout: 30 * second},
		row{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{60 * second, ask("probe"), "probe"},
		row{60 * second, ask("other"), "HALF_OPEN for 30s"},
		row{70 * second, ask("other"), "HALF_OPEN for 20s"},
		row{80 * second, tell("probe", Success()), "CLOSED"},
		row{80 * second, ask("other"), "permit"},
	)
}

func TestZeroPermitDoesNothing(t *testing.T) {
	t.Parallel()
	s, err := Permit{}.Report(t.Context(), RateLimited(minute))
	if !reflect.DeepEqual(s, Status{}) || err != nil {
		t.Errorf("report of the zero permit: %+v, %v", s, err)
	}
	if err := (Permit{}).Release(t.Context()); err != nil {
		t.Errorf("release of the zero permit: %v", err)
	}
}
