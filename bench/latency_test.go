package bench

import (
	"cmp"
	"fmt"
	"testing"
	"time"
)

// latencyCase is a worker with a limit, whose round trip to Redis takes 2 oneWay and what the machine
// takes.
type latencyCase struct {
	oneWay       time.Duration
	rate         string
	fleet        int
	warmup, jobs int
}

var latencyCases = []latencyCase{
	{0, "1000/1s", 0, 300, 2000},
	{5 * time.Millisecond, "1000/1s", 0, 300, 2000},
	{5 * time.Millisecond, "", 50, 300, 2000},
	{5 * time.Millisecond, "1000/1s", 50, 300, 2000},
	{50 * time.Millisecond, "100/1s", 0, 50, 250},
	{150 * time.Millisecond, "10/1s", 0, 30, 80},
}

// BenchmarkLatency measures how fast one worker with a declared limit empties a queue, with HTTP calls
// and 50 jobs at once, by the time that Redis is away. `-rounds 3` measures less often.
func BenchmarkLatency(b *testing.B) {
	rows := [][]string{{"round trip", "RATE", "FLEET_CONCURRENCY", "jobs/s", "commands a job"}}
	for _, c := range latencyCases {
		figures := measureLatency(b, c, *drainRounds)
		row := []string{"–", cmp.Or(c.rate, "–"), "–"}
		if c.oneWay > 0 {
			row[0] = (2 * c.oneWay).String()
		}
		if c.fleet > 0 {
			row[2] = fmt.Sprint(c.fleet)
		}
		rate := func(f drainFigures) float64 { return f.rate }
		commands := func(f drainFigures) float64 { return f.commands }
		rows = append(rows, append(row, fmt.Sprintf("%.1f", median(figures, rate)), fmt.Sprintf("%.1f", median(figures, commands))))
	}
	report(b, "benchmarks.md", "latency", table(3, rows))
}

func measureLatency(t testing.TB, c latencyCase, rounds int) (figures []drainFigures) {
	t.Helper()
	task := drainTask{Queue: destination, Concurrency: 50, Retention: int(retention.Seconds()), Payload: payload(usualPayload), Rate: c.rate, Fleet: c.fleet}
	task.URL, _ = startSink(t)
	p := drainPlan{warmup: c.warmup, jobs: c.jobs, oneWay: c.oneWay}
	for i := range rounds {
		progress(t, fmt.Sprintf("latency: %v, round %d", c, i+1))
		figures = append(figures, drainOnce(t, p, tidegateDrain(), task))
	}
	return figures
}

func TestEveryFigureOfTheLatencyIsMeasured(t *testing.T) {
	t.Parallel()
	for _, c := range []latencyCase{{oneWay: time.Millisecond, rate: "1000/1s", warmup: 5, jobs: 20}, {fleet: 2, warmup: 5, jobs: 20}} {
		for _, f := range measureLatency(t, c, 1) {
			if f.rate <= 0 || f.commands <= 0 {
				t.Errorf("%v: %+v, want figures above 0", c, f)
			}
		}
	}
}
