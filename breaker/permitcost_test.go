package breaker

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// manyCalls is a declared limit that refuses none.
var manyCalls = Rates{{Calls: 1_000_000, Per: time.Second, Burst: 1_000_000}}

// meteredCalls are the kinds of calls that Redis counts, and the most allocations of one: its permit and
// its report, of which go-redis makes 5 for each command that costs nothing else.
var meteredCalls = []struct {
	name        string
	options     Options
	key         string
	outcome     Outcome
	allocations float64
}{
	{name: "fleet concurrency", options: Options{FleetConcurrency: 8}, outcome: Success(), allocations: 32},
	{name: "key concurrency", options: Options{KeyConcurrency: 8}, key: "k", outcome: Success(), allocations: 32},
	{name: "rate", options: Options{Rate: manyCalls}, outcome: Success(), allocations: 30},
	{name: "rate of a key", options: Options{KeyRate: manyCalls}, key: "k", outcome: Success(), allocations: 30},
	{
		name: "all of these", options: Options{FleetConcurrency: 8, KeyConcurrency: 8, Rate: manyCalls, KeyRate: manyCalls},
		key: "k", outcome: Success(), allocations: 32,
	},
	// The next two change the record with each call: most is for that message, which all instances receive. Near the end of a
	// budget the rules decide each call, so it is three scripts.
	{name: "low budget", outcome: Success().WithBudget(Budget{Remaining: 4, Reset: time.Hour}), allocations: 165},
	{name: "slow start", outcome: Neutral(), allocations: 140},
}

// meteredCall makes a call of the kind, of which Redis counts each.
func meteredCall(t testing.TB, o Options, key string, outcome Outcome) (call func(o Outcome)) {
	t.Helper()
	o.Destination, o.RefreshInterval, o.MaxInFlight = "api", time.Hour, 8
	b := start(t, redistest.Start(t).Client(t), o)
	ctx := context.Background()
	call = func(o Outcome) {
		p, err := b.Key(key).Allow(ctx)
		if err == nil {
			_, err = p.Report(ctx, o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if outcome.kind == neutral {
		call(RateLimited(time.Millisecond))
		redistest.Eventually(t, "the probe", func() bool {
			p, err := b.Allow(ctx)
			if err != nil {
				return false
			}
			_, err = p.Report(ctx, Success())
			return err == nil && b.Status().SlowStart > 0
		})
	}
	for range 20 { // then Redis knows the scripts, and the instance the limits
		call(outcome)
	}
	return call
}

// Not parallel: it counts allocations.
func TestMeteredCallAllocates(t *testing.T) {
	for _, m := range meteredCalls {
		t.Run(m.name, func(t *testing.T) {
			call := meteredCall(t, m.options, m.key, m.outcome)
			got := math.Inf(1)
			for range 5 { // on a busy machine what runs beside the calls allocates, too
				got = min(got, testing.AllocsPerRun(200, func() { call(m.outcome) }))
			}
			if got > m.allocations {
				t.Errorf("%v allocations a call, want at most %v", got, m.allocations)
			}
		})
	}
}

func BenchmarkMeteredCall(b *testing.B) {
	for _, m := range meteredCalls {
		b.Run(m.name, func(b *testing.B) {
			call := meteredCall(b, m.options, m.key, m.outcome)
			b.ReportAllocs()
			for b.Loop() {
				call(m.outcome)
			}
		})
	}
}
