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

// The six cases of the decision that the breaker was made for.
func TestSixCases(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, call(RateLimited(0)), "CLOSED failures=1"},
		row{1 * second, call(RateLimited(0)), "CLOSED failures=2"},
		row{2 * second, call(RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=3"},
		row{2 * second, ask("refused"), "OPEN for 5m0s"},
		row{5*minute + 2*second - time.Millisecond, ask("refused"), "OPEN for 1ms"},
		row{5*minute + 2*second - time.Millisecond, get, "OPEN 1ms failures=3 threshold wasted=3"},
		row{5*minute + 2*second, get, "HALF_OPEN failures=3 threshold wasted=3"},
		row{5*minute + 2*second, ask("probe"), "probe"},
		row{5*minute + 3*second, tell("probe", RateLimited(0)), "OPEN 5m0s failures=3 probe probes=1 wasted=4"},
		row{10*minute + 3*second, ask("probe"), "probe"},
		row{10*minute + 4*second, tell("probe", Success()), "CLOSED"},
		row{10*minute + 4*second, ask("next"), "permit"},
		row{10*minute + 4*second, story, "CLOSED→OPEN threshold #1 by worker-1; " +
			"OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→OPEN probe #1 by worker-1; " +
			"OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→CLOSED success #1 by worker-1"},
	)
}

func TestSuccessResetsFailuresAndOtherFailuresDoNeither(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, calls(2, RateLimited(0)), "CLOSED failures=2"},
		row{0, call(Success()), "CLOSED"},
		row{0, get, "CLOSED"},
		row{0, calls(2, RateLimited(0)), "CLOSED failures=2"},
		row{0, calls(5, Failure()), "CLOSED failures=2"},
		row{0, calls(5, Outcome{}), "CLOSED failures=2"},
		row{0, get, "CLOSED failures=2"},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=3"},
	)
}

func TestThresholdOfOne(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, Cooldown: second},
		row{0, call(RateLimited(0)), "OPEN 1s failures=1 threshold wasted=1"},
		row{second, call(Success()), "CLOSED"},
	)
}

func TestCooldownGrowsWithFailedProbesUpToTheCap(t *testing.T) {
	t.Parallel()
	runRows(t, Options{NoLearning: true, FailureThreshold: 1, Cooldown: 10 * second, CooldownMultiplier: 2, CooldownJitter: -1, MaxCooldown: 35 * second},
		row{0, call(RateLimited(0)), "OPEN 10s failures=1 threshold wasted=1"},
		row{10 * second, call(RateLimited(0)), "OPEN 20s failures=1 probe probes=1 wasted=2"},
		row{30 * second, call(RateLimited(0)), "OPEN 35s failures=1 probe probes=2 wasted=3"},
		row{65 * second, call(RateLimited(0)), "OPEN 35s failures=1 probe probes=3 wasted=4"},
		row{100 * second, call(Success()), "CLOSED"},
		// It falls back by a step once it has been CLOSED for as long as its last cooldown.
		row{135*second - time.Millisecond, call(RateLimited(0)), "OPEN 35s failures=1 threshold wasted=1"},
		row{170 * second, call(Success()), "CLOSED"},
		row{205 * second, call(RateLimited(0)), "OPEN 20s failures=1 threshold wasted=1"},
		row{225 * second, call(Success()), "CLOSED"},
		row{245 * second, call(RateLimited(0)), "OPEN 10s failures=1 threshold wasted=1"},
	)
}

func TestMultiplierOverflowsToTheCap(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, Cooldown: second, CooldownMultiplier: 1000, MaxCooldown: 2 * second},
		row{0, call(RateLimited(0)), "OPEN 1s failures=1 threshold wasted=1"},
		row{1 * second, set("level", "500"), ""},
		row{1 * second, call(RateLimited(0)), "OPEN 2s failures=1 probe probes=1 wasted=2"},
	)
}

func TestHintOpensAtOnce(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, call(RateLimited(90 * second)), "OPEN 1m30s failures=1 hint wasted=1"},
		row{90 * second, call(RateLimited(0)), "OPEN 5m0s failures=1 probe probes=1 wasted=2"},
		row{390 * second, call(RateLimited(30 * second)), "OPEN 30s failures=1 hint probes=2 wasted=3"}, // the first hint of this wait
		row{7 * minute, call(Success()), "CLOSED"},
		row{7 * minute, call(RateLimited(100 * time.Hour)), "OPEN 1h0m0s failures=1 hint wasted=1"},
	)
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
		"longer than allowed":    {minute, []time.Duration{10 * second, 10 * second}},
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

func TestTinyAndNegativeHints(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, call(RateLimited(-second)), "CLOSED failures=1"},
		row{0, call(RateLimited(time.Nanosecond)), "OPEN 1ms failures=2 hint wasted=2"},
	)
}

func TestIgnoredHints(t *testing.T) {
	t.Parallel()
	runRows(t, Options{IgnoreHints: true},
		row{0, calls(2, RateLimited(second)), "CLOSED failures=2"},
		row{0, call(RateLimited(second)), "OPEN 5m0s failures=3 threshold wasted=3"},
		row{5 * minute, call(RateLimited(second)), "OPEN 5m0s failures=3 probe probes=1 wasted=4"},
	)
}

func TestLateReportsDoNotMoveANewerState(t *testing.T) {
	t.Parallel()
	runRows(t, Options{NoLearning: true},
		row{0, ask("late 429"), "permit"},
		row{0, ask("late success"), "permit"},
		row{0, ask("later 429"), "permit"},
		row{0, ask("latest 429"), "permit"},
		row{0, ask("latest success"), "permit"},
		row{0, calls(3, RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=3"},
		// OPEN: the call was wasted, and that is all.
		row{second, tell("late 429", RateLimited(0)), "OPEN 4m59s failures=3 threshold wasted=4"},
		row{second, tell("late success", Success()), "OPEN 4m59s failures=3 threshold wasted=4"},
		row{5 * minute, ask("probe"), "probe"},
		// HALF_OPEN: the probe decides.
		row{5 * minute, tell("later 429", RateLimited(0)), "HALF_OPEN failures=3 threshold wasted=5"},
		row{5 * minute, tell("probe", Success()), "CLOSED"},
		// CLOSED again: what was limited before is over.
		row{5 * minute, tell("latest 429", RateLimited(second)), "CLOSED"},
		row{5 * minute, call(RateLimited(0)), "CLOSED failures=1"},
		row{5 * minute, tell("latest success", Success()), "CLOSED failures=1"},
		row{5 * minute, get, "CLOSED failures=1"},
	)
}

func TestLateHintExtendsAndNeverShortens(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, ask("a"), "permit"},
		row{0, ask("b"), "permit"},
		row{0, ask("c"), "permit"},
		row{0, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
		row{10 * second, tell("a", RateLimited(20*second)), "OPEN 50s failures=1 hint wasted=2"},
		row{10 * second, tell("b", RateLimited(2*minute)), "OPEN 2m0s failures=1 hint wasted=3"},
		row{10 * second, tell("c", RateLimited(100*time.Hour)), "OPEN 1h0m0s failures=1 hint wasted=4"},
		row{10 * second, story, "CLOSED→OPEN hint #1 by worker-1"},
	)
}

func TestLateHintIsIgnoredIfHintsAre(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, IgnoreHints: true, Cooldown: minute},
		row{0, ask("a"), "permit"},
		row{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{0, tell("a", RateLimited(10*minute)), "OPEN 1m0s failures=1 threshold wasted=2"},
	)
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

func TestProbeThatTellsNothingIsRepeatedMoreAndMoreSlowly(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, Cooldown: 3 * second},
		row{0, call(RateLimited(0)), "OPEN 3s failures=1 threshold wasted=1"},
		row{3 * second, ask("1"), "probe"},
		row{3500 * time.Millisecond, tell("1", Failure()), "HALF_OPEN failures=1 threshold wasted=1"},
		row{3500 * time.Millisecond, ask("early"), "HALF_OPEN for 500ms"},
		row{4 * second, ask("2"), "probe"},
		row{4 * second, tell("2", Failure()), "HALF_OPEN failures=1 threshold wasted=1"},
		row{4 * second, ask("early"), "HALF_OPEN for 2s"},
		row{6 * second, ask("3"), "probe"},
		row{6 * second, tell("3", Failure()), "HALF_OPEN failures=1 threshold wasted=1"},
		row{6 * second, ask("early"), "HALF_OPEN for 3s"}, // the cooldown, not 4 s
		row{9 * second, ask("4"), "probe"},
		row{9 * second, tell("4", RateLimited(0)), "OPEN 3s failures=1 probe probes=1 wasted=2"},
		// The next HALF_OPEN starts anew.
		row{12 * second, ask("5"), "probe"},
		row{12 * second, tell("5", Failure()), "HALF_OPEN failures=1 probe probes=1 wasted=2"},
		row{12 * second, ask("early"), "HALF_OPEN for 1s"},
		row{13 * second, call(Success()), "CLOSED"},
	)
}

func TestLapsedLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, Cooldown: minute, ProbeTimeout: 5 * second},
		row{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{60 * second, ask("dead"), "probe"},
		row{65*second - time.Millisecond, ask("early"), "HALF_OPEN for 1ms"},
		row{65 * second, ask("second"), "probe"},
		// The first prober was only slow: its answers do not count any more.
		row{65 * second, tell("dead", Success()), "HALF_OPEN failures=1 threshold wasted=1"},
		row{66 * second, ask("third"), "HALF_OPEN for 4s"},
		row{66 * second, tell("second", Success()), "CLOSED"},
	)
}

func TestLapsedLeaseShorterThanThePauseIsReplacedAfterThePause(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, Cooldown: minute, ProbeTimeout: 100 * time.Millisecond},
		row{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{60 * second, ask("dead"), "probe"},
		row{60*second + 100*time.Millisecond, ask("early"), "HALF_OPEN for 900ms"},
		row{61 * second, ask("dead too"), "probe"},
		row{61*second + 500*time.Millisecond, ask("early"), "HALF_OPEN for 1.5s"},
		row{63 * second, ask("third"), "probe"},
	)
}

func TestReportAfterTheLeaseCountsIfNobodyElseProbes(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, Cooldown: minute, ProbeTimeout: 5 * second},
		row{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{60 * second, ask("slow"), "probe"},
		row{80 * second, tell("slow", Success()), "CLOSED"},
	)
}

func TestReleasedProbeLetsTheNextStartAtOnce(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, Cooldown: minute},
		row{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{60 * second, ask("unused"), "probe"},
		row{60 * second, release("unused"), "HALF_OPEN failures=1 threshold wasted=1"},
		row{60 * second, ask("cancelled"), "probe"},
		row{60 * second, tell("cancelled", Outcome{}), "HALF_OPEN failures=1 threshold wasted=1"},
		row{60 * second, ask("probe"), "probe"},
		row{60 * second, release("unused"), "HALF_OPEN failures=1 threshold wasted=1"}, // not its lease
		row{60 * second, ask("other"), "HALF_OPEN for 35s"},
		row{60 * second, tell("probe", Success()), "CLOSED"},
		row{60 * second, story, "CLOSED→OPEN threshold #1 by worker-1; " +
			"OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→CLOSED success #1 by worker-1"},
	)
}

func TestReleaseOfAnOrdinaryPermitDoesNothing(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, call(RateLimited(0)), "CLOSED failures=1"},
		row{0, ask("unused"), "permit"},
		row{0, release("unused"), "CLOSED failures=1"},
		row{0, get, "CLOSED failures=1"},
	)
}

func TestAdvance(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, Cooldown: minute},
		row{0, advance, "CLOSED"},
		row{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{59 * second, advance, "OPEN 1s failures=1 threshold wasted=1"},
		row{60 * second, advance, "HALF_OPEN failures=1 threshold wasted=1"},
		row{60 * second, advance, "HALF_OPEN failures=1 threshold wasted=1"},
		row{60 * second, story, "CLOSED→OPEN threshold #1 by worker-1; OPEN→HALF_OPEN cooldown #1 by worker-1"},
		row{60 * second, ask("probe"), "probe"},
	)
}

func TestTripForATime(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, ask("late"), "permit"},
		row{0, trip(10 * minute), "OPEN 10m0s manual"},
		row{0, ask("refused"), "OPEN for 10m0s"},
		row{minute, tell("late", RateLimited(second)), "OPEN 9m0s manual wasted=1"},
		row{10 * minute, call(Success()), "CLOSED"},
		row{10 * minute, story, "CLOSED→OPEN manual #1 by ann; OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→CLOSED success #1 by worker-1"},
	)
}

func TestTripUntilReset(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, ask("late"), "permit"},
		row{0, trip(0), "OPEN until reset manual"},
		row{0, tell("late", RateLimited(minute)), "OPEN until reset manual wasted=1"},
		row{1000 * time.Hour, look, "OPEN until reset manual wasted=1"},
		row{1000 * time.Hour, ask("refused"), "OPEN for 1h0m0s"},
		row{1000 * time.Hour, advance, "OPEN until reset manual wasted=1"},
		row{1000 * time.Hour, reset, "CLOSED"},
		row{1000 * time.Hour, ask("next"), "permit"},
		row{1000 * time.Hour, story, "CLOSED→OPEN manual #1 by ann; OPEN→CLOSED reset #1 by ann"},
	)
}

func TestTripOfAnOpenBreakerKeepsTheIncident(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		row{0, trip(minute), "OPEN 1m0s failures=1 manual wasted=1"},
		row{minute, call(RateLimited(0)), "OPEN 5m0s failures=1 probe probes=1 wasted=2"},
		row{minute, story, "CLOSED→OPEN threshold #1 by worker-1; OPEN→OPEN manual #1 by ann; " +
			"OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→OPEN probe #1 by worker-1"},
	)
}

func TestTripDuringTheProbe(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		row{5 * minute, ask("probe"), "probe"},
		row{5 * minute, trip(minute), "OPEN 1m0s failures=1 manual wasted=1"},
		row{5 * minute, tell("probe", Success()), "OPEN 1m0s failures=1 manual wasted=1"},
		row{6 * minute, ask("probe"), "probe"},
	)
}

func TestResetFromEveryState(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 2},
		row{0, reset, "CLOSED"},
		row{0, story, ""},
		row{0, ask("before"), "permit"},
		row{0, call(RateLimited(0)), "CLOSED failures=1"},
		row{0, reset, "CLOSED"},
		row{0, tell("before", RateLimited(0)), "CLOSED"}, // started before the reset
		row{0, calls(2, RateLimited(0)), "OPEN 5m0s failures=2 threshold wasted=2"},
		row{0, reset, "CLOSED"},
		row{0, calls(2, RateLimited(0)), "OPEN 5m0s failures=2 threshold wasted=2"},
		row{5 * minute, ask("probe"), "probe"},
		row{5 * minute, reset, "CLOSED"},
		row{5 * minute, tell("probe", RateLimited(minute)), "CLOSED"},
		row{5 * minute, story, "CLOSED→CLOSED reset #0 by ann; " +
			"CLOSED→OPEN threshold #1 by worker-1; OPEN→CLOSED reset #1 by ann; " +
			"CLOSED→OPEN threshold #2 by worker-1; OPEN→HALF_OPEN cooldown #2 by worker-1; HALF_OPEN→CLOSED reset #2 by ann"},
	)
}

func TestReportedTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 3},
		row{0, ask("a"), "permit"},
		row{0, ask("late"), "permit"},
		row{0, tell("a", RateLimited(0)), "CLOSED failures=1"},
		row{0, tell("a", RateLimited(0)), "CLOSED failures=1"},
		row{0, ask("ok"), "permit"},
		row{0, tell("ok", Success()), "CLOSED"},
		row{0, call(RateLimited(0)), "CLOSED failures=1"},
		row{0, tell("ok", Success()), "CLOSED failures=1"}, // the reset came before
		row{0, calls(2, RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=3"},
		row{0, tell("late", RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=4"},
		row{0, tell("late", RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=4"},
		row{5 * minute, ask("probe"), "probe"},
		row{5 * minute, tell("probe", RateLimited(10*minute)), "OPEN 10m0s failures=3 hint probes=1 wasted=5"},
		row{6 * minute, tell("probe", RateLimited(10*minute)), "OPEN 9m0s failures=3 hint probes=1 wasted=5"},
	)
}

func TestLostDataMeansClosed(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1},
		row{0, ask("old"), "permit"},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		row{5 * minute, ask("probe"), "probe"},
		row{5 * minute, lose(), ""},
		row{6 * minute, look, "CLOSED"},
		row{6 * minute, tell("probe", Success()), "CLOSED"},
		row{6 * minute, tell("old", Success()), "CLOSED"},
		row{6 * minute, ask("next"), "permit"},
		row{6 * minute, tell("next", RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		// What was issued before the loss is older than what came after. How many
		// calls the instances can make is lost as well: there is a slow start.
		row{11 * minute, call(Success()), "CLOSED slow=1"},
		row{11 * minute, tell("old", RateLimited(0)), "CLOSED slow=1"},
		row{11 * minute, tell("probe", RateLimited(0)), "CLOSED slow=1"},
	)
}

func TestLossIsNoticedByThoseWhoAsk(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		row{minute, lose(), ""},
		row{minute, ask("refused"), "OPEN for 4m0s"}, // the mirror, until its next read
		row{5 * minute, ask("next"), "permit"},
		row{5 * minute, call(Success()), "CLOSED"},
	)
}

func TestLostHashAlone(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, trip(0), "OPEN until reset manual"},
		row{0, lose(0), ""},
		row{0, look, "OPEN until reset manual"}, // still mirrored
		row{0, advance, "CLOSED"},               // what keepFresh does now and then
		row{0, look, "CLOSED"},
		row{0, trip(0), "OPEN until reset manual"},
		row{0, lose(0), ""},
		row{0, reset, "CLOSED"},
		row{0, look, "CLOSED"},
	)
}

func TestLostMirrorAlone(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		row{0, lose(1), ""},
		row{0, look, "CLOSED"},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=2"}, // one call too many
		row{0, look, "OPEN 5m0s failures=1 threshold wasted=2"},
	)
}

func TestDamagedHashNeverHoldsForEver(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1},
		row{0, set("state", "open?"), ""},
		row{0, get, "CLOSED"},
		row{0, set("state", "OPEN"), ""},
		row{0, set("open_until", "soon"), ""},
		row{0, get, "HALF_OPEN"},
		row{0, set("open_until", "1e99"), ""},
		row{0, get, "HALF_OPEN"},
		row{0, set("open_until", "nan"), ""},
		row{0, advance, "HALF_OPEN"},
		row{0, set("generation", "-1"), ""},
		row{0, set("probe_after", "x"), ""},
		row{0, call(Success()), "CLOSED"},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
	)
}

func TestRedisClockGoingBackDoesNotWedge(t *testing.T) {
	t.Parallel()
	runRows(t, Options{NoLearning: true, FailureThreshold: 1, ProbeTimeout: 30 * second},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		row{minute, jump(-24 * time.Hour), ""},
		row{minute, get, "OPEN 5m0s failures=1 threshold wasted=1"}, // what was left at the last change
		row{minute, advance, "OPEN 5m0s failures=1 threshold wasted=1"},
		row{3 * minute, look, "OPEN 3m0s failures=1 threshold wasted=1"},
		row{6 * minute, ask("probe"), "probe"},
		row{6 * minute, jump(-24 * time.Hour), ""},
		row{6*minute + 29*second, ask("other"), "HALF_OPEN for 1s"},
		row{6*minute + 30*second, ask("other"), "HALF_OPEN for 30s"}, // found to be behind, counted anew
		row{7 * minute, ask("other"), "probe"},
		row{7 * minute, tell("other", Success()), "CLOSED"},
		row{7 * minute, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
	)
}

func TestRedisClockGoingForwardEndsTheCooldown(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		row{0, jump(24 * time.Hour), ""},
		row{0, look, "HALF_OPEN failures=1 threshold wasted=1"},
		row{0, call(Success()), "CLOSED"},
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
