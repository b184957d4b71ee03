package simulate

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/markdown"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Hints teach: a limit that was met twice is not overrun in later windows. So fewer calls are refused than by a breaker that
// only obeys hints, and the last job ends about as early as without hints, and as by obeying them. Bounds are what the rules
// reach today.
func TestHintsWasteFewCalls(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	rows := [][]string{{"API", "refused: no hint", "obeyed", "learned", "drain: no hint", "obeyed", "learned"}}
	for _, c := range []struct {
		api     string
		jobs    int
		refused int     // calls
		drain   float64 // as a multiple of the earlier of the two others
	}{
		{"window:60/1h", 300, 40, 1.01},
		{"sliding:100/1m", 500, 73, 1.03},
		{"window:50/10s", 300, 42, 1.2},
		{"bucket:60/1h:10", 200, 48, 1.01},
		{"penalty:60/1h+1m", 300, 42, .85}, // each refused call costs a minute
	} {
		play := func(hints string, o breaker.Options) (refused int, drained float64) {
			r, err := Run(t.Context(), Options{
				API: c.api + hints, Breaker: o, Slots: oracleSlots, Latency: oracleLatency, Seed: 1, Arrivals: make([]time.Duration, c.jobs),
				For: 60 * 24 * time.Hour, Steps: 1,
			})
			if err != nil || r.Completed != c.jobs {
				t.Fatal(c.api, hints, err, r.Completed)
			}
			return r.Wasted, *r.Drained
		}
		bare, bareDrain := play("", breaker.Options{})
		obeyed, obeyedDrain := play(",hints:retry-after", breaker.Options{NoLearning: true})
		learned, learnedDrain := play(",hints:retry-after", breaker.Options{})
		row := []string{c.api, fmt.Sprint(bare), fmt.Sprint(obeyed), fmt.Sprint(learned)}
		for _, d := range []float64{bareDrain, obeyedDrain, learnedDrain} {
			row = append(row, time.Duration(d*float64(time.Second)).Round(100*time.Millisecond).String())
		}
		rows = append(rows, row)
		if least := min(bareDrain, obeyedDrain); learned > c.refused || learnedDrain > c.drain*least {
			t.Errorf("%s: %d refused, drained %.2f times as late as without a hint or by obeying it; want at most %d, %v", c.api, learned, learnedDrain/least, c.refused, c.drain)
		}
	}
	t.Log("\n" + markdown.Table(1, rows))
}
