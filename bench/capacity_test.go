package bench

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// capacityPlan is how much is done to measure what a machine carries.
type capacityPlan struct {
	rounds int // of what is repeated; the report has medians
	// Jobs of one round.
	single, many, idle, http, aof int
	waiting                       int           // jobs that wait in Redis while it is measured
	quiet                         time.Duration // before an idle worker is measured
}

// BenchmarkCapacity measures how fast jobs are enqueued and published, what they take in
// Redis, and what a worker costs. It takes less than three minutes.
func BenchmarkCapacity(b *testing.B) {
	p := capacityPlan{
		rounds: 3, single: 20_000, many: 100_000, idle: 80_000, http: 30_000, aof: 15_000,
		waiting: 100_000, quiet: 2 * time.Second,
	}
	report(b, "operations.md", "capacity", measureCapacity(b, p).report(p))
}

// measureCapacity does all of it, one after the other.
func measureCapacity(t testing.TB, p capacityPlan) (f capacityFigures) {
	for _, step := range []struct {
		name string
		do   func(testing.TB, capacityPlan, *capacityFigures)
	}{
		{"enqueue", measureEnqueue},
		{"publish, nothing done", measureIdleHandler},
		{"publish over HTTP", measureHTTP},
		{"append-only file", measureAOF},
		{"memory of waiting jobs", measureMemory},
		{"idle worker", measureIdleWorker},
	} {
		progress(t, "capacity: "+step.name)
		step.do(t, p, &f)
	}
	return f
}

// capacityFigures are what was measured: jobs a second, bytes, connections.
type capacityFigures struct {
	enqueue1, enqueue16, enqueueMany float64
	idle1, idle3, http1, http3       float64

	waitingSmall, waitingLarge, completedJob, aofOfJob float64

	workerIdle, workerPeak           float64
	connectionsIdle, connectionsBusy float64
}

// report is the part of docs/operations.md.
func (f capacityFigures) report(p capacityPlan) string {
	rows := [][]string{
		{"what", "measured"},
		{"enqueue one by one, 1 goroutine", rate(f.enqueue1)},
		{"enqueue one by one, 16 goroutines of a process", rate(f.enqueue16)},
		{"`EnqueueMany`", rate(f.enqueueMany)},
		{"publish, a Go handler that does nothing, 1 process", rate(f.idle1)},
		{"the same, 3 processes", rate(f.idle3)},
		{"publish over HTTP, an API that responds at once, 1 `tidegate worker`", rate(f.http1)},
		{"the same, 3 workers", rate(f.http3)},
		{"Redis memory of a waiting job, payload of 100 bytes", inBytes(f.waitingSmall)},
		{"the same, payload of 1,000 bytes", inBytes(f.waitingLarge)},
		{"Redis memory of a completed job, payload of 200 bytes, short response", inBytes(f.completedJob)},
		{"append-only file, written for a job from enqueue to its end", inBytes(f.aofOfJob)},
		{"memory (RSS) of a `tidegate worker`, idle", megabytes(f.workerIdle)},
		{"the same, at its most while publishing over HTTP", megabytes(f.workerPeak)},
		{"connections to Redis of a worker with one destination, idle / publishing", count(f.connectionsIdle) + " / " + count(f.connectionsBusy)},
	}
	return table(1, rows) + fmt.Sprintf(`
Measured %s with %s on %d CPUs, which the load, the API, the workers and Redis
share; payloads of %d bytes and %d calls at once in each worker unless said otherwise.
Rates are medians of %d rounds.
`, time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), usualPayload, concurrency, p.rounds)
}

func rate(n float64) string    { return count(n) + " jobs/s" }
func inBytes(n float64) string { return count(n) + " bytes" }

func megabytes(n float64) string {
	if n == 0 {
		return "not known on this system"
	}
	return count(n/1e6) + " MB"
}

func TestEveryFigureOfCapacityIsMeasured(t *testing.T) {
	t.Parallel()
	f := measureCapacity(t, capacityPlan{
		rounds: 1, single: 40, many: 200, idle: 200, http: 100, aof: 100,
		waiting: 200, quiet: time.Millisecond,
	})
	for name, v := range map[string]float64{
		"enqueue1": f.enqueue1, "enqueue16": f.enqueue16, "enqueueMany": f.enqueueMany,
		"workerIdle": f.workerIdle, "connectionsIdle": f.connectionsIdle,
	} {
		if name == "workerIdle" && memory(os.Getpid(), "VmRSS") == 0 {
			continue // only Linux tells
		}
		if v <= 0 {
			t.Errorf("%s = %v, want more than 0", name, v)
		}
	}
	// A payload is kept once, and Redis rounds up.
	if got := f.waitingLarge - f.waitingSmall; got < 800 || got > 3000 {
		t.Errorf("900 bytes more of payload take %.0f bytes more", got)
	}
	if f.waitingSmall < 300 || f.waitingSmall > 3000 {
		t.Errorf("a small job takes %.0f bytes", f.waitingSmall)
	}
	if f.aofOfJob < 500 {
		t.Errorf("a job of %d bytes has written %.0f bytes", usualPayload, f.aofOfJob)
	}
}

func TestRateBetweenMarks(t *testing.T) {
	t.Parallel()
	start := mark{time.Unix(0, 0), 100}
	if got := (mark{time.Unix(2, 0), 700}).since(start); got != 300 {
		t.Errorf("600 jobs in 2 s are %v a second", got)
	}
	if got := start.since(start); got != 0 {
		t.Errorf("no time gives %v", got)
	}
}
