package main

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/bench/rig"
)

// figures are what was measured: jobs a second, bytes, seconds, commands a second.
type figures struct {
	enqueue1, enqueue16, enqueueMany float64
	idle1, idle3, http1, http3       float64
	everysec, always, never          synced

	waitingSmall, waitingLarge, completedJob, aofOfJob float64

	workerIdle, workerPeak           float64
	connectionsIdle, connectionsBusy float64
	connectionsMore                  float64
	commandsOne, commandsMore        float64

	scrapeEmpty, scrapeFull, scrapeAgain, scrapeSize float64
	stats, list, listLong, version                   float64
}

// synced is what is possible with a setting of appendfsync, in jobs a second.
type synced struct{ enqueue1, enqueue16, drain float64 }

// report is the part of docs/operations.md.
func (f figures) report(p plan) string {
	jobs := group(float64(p.waiting))
	rows := [][]string{
		{"what", "measured"},
		{"enqueue one by one, 1 goroutine", rate(f.enqueue1)},
		{"enqueue one by one, 16 goroutines of a process", rate(f.enqueue16)},
		{"`EnqueueMany`", rate(f.enqueueMany)},
		{"publish, a Go publisher that does nothing, 1 process", rate(f.idle1)},
		{"the same, 3 processes", rate(f.idle3)},
		{"publish over HTTP, an API that answers at once, 1 `tidegate worker`", rate(f.http1)},
		{"the same, 3 workers", rate(f.http3)},
		{"Redis memory of a waiting job, payload of 100 bytes", inBytes(f.waitingSmall)},
		{"the same, payload of 1,000 bytes", inBytes(f.waitingLarge)},
		{"Redis memory of a completed job, payload of 200 bytes, short answer", inBytes(f.completedJob)},
		{"append-only file, written for a job from enqueue to its end", inBytes(f.aofOfJob)},
		{"memory (RSS) of a `tidegate worker`, idle", megabytes(f.workerIdle)},
		{"the same, at its most while publishing over HTTP", megabytes(f.workerPeak)},
		{"connections to Redis of a worker with one destination, idle / publishing", group(f.connectionsIdle) + " / " + group(f.connectionsBusy)},
		{"the same, for each further destination, idle", group(f.connectionsMore)},
		{"Redis commands of an idle worker with one destination", strconv.FormatFloat(f.commandsOne, 'f', 1, 64) + " a second"},
		{"the same, for each further destination", strconv.FormatFloat(f.commandsMore, 'f', 1, 64) + " a second"},
		{"`/metrics`, no jobs", millis(f.scrapeEmpty)},
		{"`/metrics`, " + jobs + " jobs waiting", millis(f.scrapeFull)},
		{"the same again within 5 s (Redis is not asked); size", millis(f.scrapeAgain) + "; " + group(f.scrapeSize/1000) + " kB"},
		{"`tidegate stats`, " + jobs + " jobs waiting", millis(f.stats)},
		{"`tidegate list --limit 100`, likewise", millis(f.list)},
		{"`tidegate list --status pending --limit 1000`, likewise", millis(f.listLong)},
		{"of which the start of the process", millis(f.version)},
	}
	fsync := [][]string{{"`appendfsync`", "enqueue, 1 goroutine", "enqueue, 16 goroutines", "publish, nothing done, 1 process"}}
	for _, s := range []struct {
		name string
		synced
	}{{"`everysec`", f.everysec}, {"`always`", f.always}, {"`no`", f.never}} {
		fsync = append(fsync, []string{s.name, rate(s.enqueue1), rate(s.enqueue16), rate(s.drain)})
	}
	return rig.Table(1, rows) + "\n" + rig.Table(1, fsync) + fmt.Sprintf(`
Measured %s with %s on %d CPUs, which the load, the API, the workers and Redis
share; payloads of %d bytes and %d calls at once in each worker unless said otherwise.
Rates are medians of %d rounds, those of the second table of one.
`, time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), usualPayload, concurrency, p.rounds)
}

func rate(n float64) string    { return group(n) + " jobs/s" }
func inBytes(n float64) string { return group(n) + " bytes" }

func megabytes(n float64) string {
	if n == 0 {
		return "not known on this system"
	}
	return group(n/1e6) + " MB"
}

func millis(seconds float64) string {
	ms := seconds * 1000
	digits := 0
	if ms < 10 {
		digits = 1
	}
	return strconv.FormatFloat(ms, 'f', digits, 64) + " ms"
}

// group writes a number rounded to three digits, and with commas.
func group(n float64) string {
	for unit := 1.0; ; unit *= 10 {
		if n/unit < 1000 {
			n = float64(int64(n/unit+0.5)) * unit
			break
		}
	}
	text := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
