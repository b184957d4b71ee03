package bench

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// goroutines that call at once.
const few, many = 1, 8

// slowCall is how long a call takes in the last columns, and slowRound how long that
// is measured: pauses of a lock that is taken even out.
const (
	slowCall  = 20 * time.Millisecond
	slowRound = 4 * time.Second
)

// BenchmarkPeers compares calls under Tidegate's closed breaker with those under other
// breakers.
func BenchmarkPeers(b *testing.B) {
	const rounds, length = 5, 400 * time.Millisecond
	report(b, "benchmarks.md", "peers", reportPeers(comparePeers(b, rounds, length, slowRound), rounds, length))
}

// peerResult is all that was measured of one peer.
type peerResult struct {
	peer
	few, many []peerFigures
	slow      peerFigures // 8 goroutines, calls that take time
}

func comparePeers(t testing.TB, rounds int, length, slow time.Duration) []peerResult {
	t.Helper()
	server := redistest.Start(t)
	var results []peerResult
	for _, c := range peers() {
		results = append(results, peerResult{peer: c})
	}
	for n := range rounds {
		progress(t, fmt.Sprintf("peers: round %d of %d", n+1, rounds))
		for i := range results {
			r := &results[i]
			r.few = append(r.few, round(t, server, r.peer, few, length, nothing, false))
			r.many = append(r.many, round(t, server, r.peer, many, length, nothing, false))
		}
	}
	progress(t, "peers: calls that take time")
	takesTime := func() error {
		pause(t.Context(), slowCall)
		return nil
	}
	for i := range results {
		results[i].slow = round(t, server, results[i].peer, many, slow, takesTime, true)
	}
	return results
}

func reportPeers(results []peerResult, rounds int, length time.Duration) string {
	rows := [][]string{{
		"a call that succeeds", "shared", "1 goroutine", "8 goroutines", "allocations", "Redis commands",
		fmt.Sprintf("8 × %s", slowCall), "the longest",
	}}
	for _, r := range results {
		rows = append(rows, []string{
			r.name, yesNo(r.shared), nanoseconds(median(r.few, func(f peerFigures) float64 { return f.ns })),
			nanoseconds(median(r.many, func(f peerFigures) float64 { return f.ns })),
			perCall(median(r.few, func(f peerFigures) float64 { return f.allocs })),
			perCall(median(r.few, func(f peerFigures) float64 { return f.commands })),
			fmt.Sprintf("%.0f calls/s", r.slow.perSec), fmt.Sprintf("%d ms", r.slow.slowest.Milliseconds()),
		})
	}
	return table(2, rows) + fmt.Sprintf(`
Medians of %d rounds of %s run in turn, %s on %d CPUs. The times are of the clock per
call, all goroutines together; the call itself does nothing. Commands inside scripts
count. "8 × %s": 8 goroutines whose calls take that long (400 calls/s would be no
delay at all), and the longest that one call took.
`, rounds, length, runtime.Version(), runtime.NumCPU(), slowCall)
}

// nanoseconds writes a time with its significant figures.
func nanoseconds(ns float64) string {
	switch {
	case ns < 1000:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < 10_000:
		return fmt.Sprintf("%.1f µs", ns/1000)
	default:
		return fmt.Sprintf("%.0f µs", ns/1000)
	}
}

// perCall writes allocations or commands per call; a few in a million calls are none.
func perCall(n float64) string {
	text := strconv.FormatFloat(n, 'f', 1, 64)
	if n < 0.05 {
		return "0"
	}
	return text
}

func TestEveryPeerIsMeasured(t *testing.T) {
	t.Parallel()
	for _, r := range comparePeers(t, 1, 20*time.Millisecond, 100*time.Millisecond) {
		if r.few[0].ns <= 0 || r.many[0].ns <= 0 || r.slow.perSec <= 0 || r.slow.slowest < slowCall {
			t.Errorf("%s: %+v", r.name, r)
		}
	}
}
