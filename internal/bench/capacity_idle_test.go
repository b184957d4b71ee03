package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tidegate/tidegate/publisher/metrics"
)

// measureMemory fills Redis with jobs that wait.
func measureMemory(t testing.TB, p capacityPlan, f *capacityFigures) {
	for _, c := range []struct {
		size int
		into *float64
	}{{100, &f.waitingSmall}, {1000, &f.waitingLarge}} {
		s := startRedis(t, "everysec")
		s.fill(t, 10, c.size) // brings what comes once, such as scripts
		before := s.info(t, "memory", "used_memory")
		s.fill(t, p.waiting, c.size)
		*c.into = (s.info(t, "memory", "used_memory") - before) / float64(p.waiting)
		s.Stop()
	}
}

// measureIdleWorkers measures idle workers, with an empty Redis and with jobs that wait.
func measureIdleWorkers(t testing.TB, p capacityPlan, f *capacityFigures) {
	empty, four, full := startRedis(t, "everysec"), startRedis(t, "everysec"), startRedis(t, "everysec")
	must(full.client.PauseDestination(t.Context(), destination))(t)
	full.fill(t, p.waiting, usualPayload)
	url, _ := startSink(t)
	idle, emptyAddr := startWorker(t, empty.URL(), url, 1)
	ofFour, _ := startWorker(t, four.URL(), url, 4)
	ofFull, fullAddr := startWorker(t, full.URL(), url, 1)

	measureQuiet(t, p, f, empty, four)
	f.workerIdle = memory(idle.cmd.Process.Pid, "VmRSS")
	f.connectionsIdle = empty.connections(t)
	f.connectionsMore = (four.connections(t) - f.connectionsIdle) / 3
	measureScrapes(t, p, f, emptyAddr, fullAddr)
	for _, c := range []struct {
		into *float64
		args []string
	}{
		{&f.stats, []string{"stats"}},
		{&f.list, []string{"list", "--limit", "100"}},
		{&f.listLong, []string{"list", "--status", "pending", "--limit", "1000"}},
		{&f.version, []string{"version"}},
	} {
		*c.into = medianOf(p.commands, func() float64 { return tidegate(t, full.URL(), c.args...).Seconds() })
	}
	for _, w := range []*process{idle, ofFour, ofFull} {
		w.stop(t)
	}
}

// measureQuiet counts the commands that Redis gets of idle workers, with one destination
// and with four.
func measureQuiet(t testing.TB, p capacityPlan, f *capacityFigures, one, four *redisServer) {
	pause(t.Context(), p.quiet/5) // what a worker does at its start is not counted
	one.ResetStats(t)
	four.ResetStats(t)
	started := time.Now()
	pause(t.Context(), p.quiet)
	perSecond := func(s *redisServer) float64 {
		return float64(commandsOf(t, s.Server)) / time.Since(started).Seconds()
	}
	f.commandsOne = perSecond(one)
	f.commandsMore = (perSecond(four) - f.commandsOne) / 3
}

// measureScrapes reads /metrics of two workers, each time when what was read from Redis
// for the last one is too old to be served again, and once more at once.
func measureScrapes(t testing.TB, p capacityPlan, f *capacityFigures, empty, full string) {
	var none, many, again []float64
	for range p.scrapes {
		pause(t.Context(), metrics.DefaultMaxAge+100*time.Millisecond)
		for _, c := range []struct {
			addr string
			into *[]float64
		}{{empty, &none}, {full, &many}, {full, &again}} {
			took, size, err := get(t.Context(), "http://"+c.addr+"/metrics")
			check(t, err)
			*c.into = append(*c.into, took.Seconds())
			f.scrapeSize = float64(size)
		}
	}
	f.scrapeEmpty, f.scrapeFull, f.scrapeAgain = median(none, itself), median(many, itself), median(again, itself)
}

// scraper asks without keeping connections, as an orchestrator does.
var scraper = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get returns how long an answer took and its length; another status than 200 is an
// error.
func get(ctx context.Context, url string) (took time.Duration, size int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	started := time.Now()
	resp, err := scraper.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	size, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return time.Since(started), size, err
}
