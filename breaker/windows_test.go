package breaker

import (
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func windowed(rate, keyRate string) Options {
	o := Options{FailureThreshold: 1, Cooldown: minute}
	for text, to := range map[string]*Rates{rate: &o.Rate, keyRate: &o.KeyRate} {
		if text == "" {
			continue
		}
		r, err := ParseRates(text)
		if err != nil {
			panic(err)
		}
		*to = r
	}
	return o
}

func TestWindows(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"a call takes from all windows or none", windowed("10/1s:2,6/1m:6", ""), []row{
			{0, tries(9, "a"), "2, then D CLOSED rate 10/1s:2 for 100ms"},
			{second, tries(9, "b"), "2, then D CLOSED rate 10/1s:2 for 100ms"},
			{2 * second, tries(9, "c"), "2, then D CLOSED rate 6/1m:6 for 8s"}, // the longest wait
			{10 * second, tries(9, "d"), "1, then D CLOSED rate 6/1m:6 for 10s"},
			// What the longer window refuses takes nothing of the shorter one.
			{30 * second, tries(9, "e"), "2, then D CLOSED rate 6/1m:6 for 10s"},
		}},
		// A burst above the calls of a window: what is given back is one call.
		{"release of a large burst", windowed("10/1s:50", ""), []row{
			{0, tries(99, "a"), "50, then D CLOSED rate for 100ms"},
			{0, release("a7"), "CLOSED"},
			{0, tries(99, "b"), "1, then D CLOSED rate for 100ms"},
		}},
		{"keys have windows of their own", windowed("10/1s:3", "2/1h:2"), []row{
			{0, of("k", tries(9, "a")), "2, then D/k CLOSED rate 2/1h:2 for 30m0s"},
			{0, of("l", tries(9, "b")), "1, then D CLOSED rate 10/1s:3 for 100ms"}, // k took none in vain
			{second, of("l", try("c")), "key-rate rate"},
			{second, of("l", try("x")), "D/l CLOSED rate 2/1h:2 for 29m59s"},
			{second, tries(9, "d"), "2, then D CLOSED rate 10/1s:3 for 100ms"},
			// One that was granted before the key was known.
			{2 * second, try("e"), "rate"},
			{2 * second, forKey("e", "k", "x"), "D/k CLOSED rate 2/1h:2 for 29m58s"},
			{2 * second, forKey("e", "m", "em"), "key-rate rate"},
			{2 * second, tries(9, "f"), "2, then D CLOSED rate 10/1s:3 for 100ms"},
			{2 * second, of("m", release("em")), "CLOSED"},
			{2 * second, of("m", tries(9, "g")), "1, then D CLOSED rate 10/1s:3 for 100ms"},
			{3 * second, of("m", tries(9, "h")), "1, then D/m CLOSED rate 2/1h:2 for 29m59s"},
		}},
		{"key rate alone", windowed("", "2/1h"), []row{
			{0, try("a"), "permit"},
			{0, of("k", try("b")), "key-rate"},
			{0, of("k", try("x")), "D/k CLOSED rate 2/1h for 30m0s"},
			{0, forKey("a", "k", "x"), "D/k CLOSED rate 2/1h for 30m0s"},
			{0, forKey("a", "l", "al"), "key-rate"},
			{0, of("l", try("x")), "D/l CLOSED rate 2/1h for 30m0s"},
			{0, of("l", release("al")), "CLOSED"},
			{0, of("l", try("c")), "key-rate"},
		}},
	})
}

// A rolling change of one of several windows: what the others count stays.
func TestAWindowThatIsAdded(t *testing.T) {
	t.Parallel()
	with := func(text string, do action) action {
		return func(h *harness) string {
			other := *h
			o := h.options
			o.Instance, o.Rate = "worker "+text, windowed(text, "").Rate
			b, err := newTestBreaker(h.rdb, o, h.clock.clock())
			if err != nil {
				return err.Error()
			}
			closeAtEnd(h.t, b)
			other.b = b
			look(&other)
			return do(&other)
		}
	}
	const before, after = "6/1m:6", "6/1m:6,100/1h:50"
	runRows(t, Options{},
		row{0, with(before, tries(4, "a")), "4"},
		row{0, with(after, tries(9, "b")), "2, then D CLOSED rate 6/1m:6 for 10s"},
		row{0, with(before, try("x")), "D CLOSED rate for 10s"},
		row{10 * second, with(before, try("c")), "rate"},
		row{10 * second, with(after, try("x")), "D CLOSED rate 6/1m:6 for 10s"},
	)
}

func TestFixedWindowsBeginAtBoundaries(t *testing.T) {
	t.Parallel()
	// The clock of the rows begins on 2025-11-21 at 02:00:00.123 UTC, 03:00 in Paris.
	const next = 59*minute + 59*second + 877*time.Millisecond
	runRows(t, windowed("3/1h@Europe/Paris,5/1d@America/Caracas", ""), // midnight there is 04:00 UTC
		row{0, tries(9, "a"), "3, then D CLOSED rate 3/1h@Europe/Paris for 59m59.877s"},
		row{0, release("a0"), "CLOSED"},
		row{0, tries(9, "b"), "1, then D CLOSED rate 3/1h@Europe/Paris for 59m59.877s"},
		row{next, tries(9, "c"), "2, then D CLOSED rate 5/1d@America/Caracas for 1h0m0s"},
		// A call of the last window gives nothing back to this one.
		row{next + time.Hour, tries(9, "d"), "3, then D CLOSED rate 3/1h@Europe/Paris for 1h0m0s"},
		row{next + time.Hour, release("c0"), "CLOSED"},
		row{next + time.Hour, try("x"), "D CLOSED rate 3/1h@Europe/Paris for 1h0m0s"},
	)
}

// What a permit costs by the number of windows, key's included: one script.
//
//	go test ./breaker -run '^$' -bench Windows -benchtime 3s
func BenchmarkWindows(b *testing.B) {
	rdb := redistest.Database(b).Client(b)
	for _, n := range []int{1, 2, 4, 8} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var rate Rates
			for i := range n {
				rate = append(rate, Rate{Calls: 100_000_000 + i, Per: time.Duration(i+1) * second, Burst: 1_000_000_000})
			}
			br, err := New(b.Context(), rdb, Options{Destination: redistest.Name(b, "windows"), Rate: rate})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = br.Close() })
			for b.Loop() {
				if _, err := br.Allow(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
