package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/bench/rig"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// measureMemory fills Redis with jobs that wait.
func measureMemory(ctx context.Context, t testing.TB, p plan, f *figures) error {
	for _, c := range []struct {
		size int
		into *float64
	}{{100, &f.waitingSmall}, {1000, &f.waitingLarge}} {
		s, err := newStore(t, "")
		if err != nil {
			return err
		}
		// The first jobs bring what comes once, such as scripts.
		if err := s.fill(ctx, 10, c.size); err != nil {
			return err
		}
		before, err := s.info(ctx, "memory", "used_memory")
		if err != nil {
			return err
		}
		if err := s.fill(ctx, p.waiting, c.size); err != nil {
			return err
		}
		after, err := s.info(ctx, "memory", "used_memory")
		if err != nil {
			return err
		}
		*c.into = (after - before) / float64(p.waiting)
		s.Stop()
	}
	return nil
}

// measureLooks looks at idle workers, with an empty Redis and with jobs that wait.
func measureLooks(ctx context.Context, t testing.TB, p plan, f *figures) (err error) {
	empty, err := newStore(t, "")
	if err != nil {
		return err
	}
	four, err := newStore(t, "")
	if err != nil {
		return err
	}
	full, err := newStore(t, "")
	if err != nil {
		return err
	}
	if _, err := full.client.PauseDestination(ctx, destination); err != nil {
		return err
	}
	if err := full.fill(ctx, p.waiting, usualPayload); err != nil {
		return err
	}
	a, err := newAPI(t)
	if err != nil {
		return err
	}
	var workers []*child
	defer func() {
		for _, w := range workers {
			err = errors.Join(err, w.stop())
		}
	}()
	for _, c := range []struct {
		s            *redisServer
		destinations int
	}{{empty, 1}, {four, 4}, {full, 1}} {
		w, err := startWorker(ctx, c.s.URL(), a.url, c.destinations)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	if err := measureQuiet(ctx, t, p, f, empty, four); err != nil {
		return err
	}
	f.workerIdle = memory(workers[0].cmd.Process.Pid, "VmRSS")
	if f.connectionsIdle, err = empty.connections(ctx); err != nil {
		return err
	}
	ofFour, err := four.connections(ctx)
	if err != nil {
		return err
	}
	f.connectionsMore = (ofFour - f.connectionsIdle) / 3
	if err := measureScrapes(ctx, p, f, workers[0].addr, workers[2].addr); err != nil {
		return err
	}
	return measureCommands(p, f, full.URL())
}

// measureQuiet counts the commands that Redis gets of idle workers, with one destination
// and with four.
func measureQuiet(ctx context.Context, t testing.TB, p plan, f *figures, one, four *redisServer) error {
	// What a worker does at its start is not to be counted.
	if err := wait(ctx, p.quiet/5); err != nil {
		return err
	}
	one.ResetStats(t)
	four.ResetStats(t)
	started := time.Now()
	if err := wait(ctx, p.quiet); err != nil {
		return err
	}
	perSecond := func(s *redisServer) float64 {
		total := int64(0)
		for _, n := range s.CommandStats(t) {
			total += n
		}
		return float64(total) / time.Since(started).Seconds()
	}
	f.commandsOne = perSecond(one)
	f.commandsMore = (perSecond(four) - f.commandsOne) / 3
	return nil
}

// measureScrapes reads /metrics of two workers, each time when what was read from Redis
// for the last one is too old to be told again, and once more at once.
func measureScrapes(ctx context.Context, p plan, f *figures, empty, full string) error {
	var none, many, again []float64
	for range p.scrapes {
		if err := wait(ctx, metrics.DefaultMaxAge+100*time.Millisecond); err != nil {
			return err
		}
		for _, c := range []struct {
			addr string
			into *[]float64
		}{{empty, &none}, {full, &many}, {full, &again}} {
			took, size, err := get(ctx, "http://"+c.addr+"/metrics")
			if err != nil {
				return err
			}
			*c.into = append(*c.into, took.Seconds())
			f.scrapeSize = float64(size)
		}
	}
	f.scrapeEmpty, f.scrapeFull, f.scrapeAgain = rig.Median(none), rig.Median(many), rig.Median(again)
	return nil
}

// measureCommands times what people run.
func measureCommands(p plan, f *figures, redisURL string) error {
	for _, c := range []struct {
		into *float64
		args []string
	}{
		{&f.stats, []string{"stats"}},
		{&f.list, []string{"list", "--limit", "100"}},
		{&f.listLong, []string{"list", "--status", "pending", "--limit", "1000"}},
		{&f.version, []string{"version"}},
	} {
		var err error
		*c.into, err = median(p.commands, func() (float64, error) {
			took, err := tidegate(redisURL, c.args...)
			return took.Seconds(), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// wait lets a time pass in which something else works.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
