package alerts

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

const (
	// countEvery is how often failed jobs are counted together.
	countEvery = time.Second
	// callRedis bounds one write to Redis.
	callRedis = 5 * time.Second
	// repeatAfter is the pause after Redis has refused something.
	repeatAfter = time.Second
	// restFor is the least time between two writes of what happens.
	restFor = 100 * time.Millisecond
	// scanEvery is how often one of the workers looks for alerts that were missed and for
	// destinations without workers, and each for keys that Redis drops; checkEvery for jobs that
	// wait too long.
	scanEvery  = time.Minute
	checkEvery = 30 * time.Second
)

// Run watches until ctx ends: it turns what observed publishers have reported into
// alerts, and scans for what no event reports. At its
// start it checks the settings, and reports what happened while no worker watched.
// Errors are logged; it returns nil, or an error if New got no Redis client.
func (a *Alerts) Run(ctx context.Context) error {
	if err := a.needsRedis("run"); err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { a.logProblems(ctx) })
	work.Go(func() { a.watchRedis(ctx) })
	work.Go(func() { a.repeat(ctx, a.observed.wake, countEvery, a.sendAnswers) })
	work.Go(func() { a.repeat(ctx, nil, countEvery, a.sendFailed) })
	work.Go(func() { a.repeat(ctx, nil, checkEvery, a.notifyOverdue) })
	work.Go(func() { a.repeat(ctx, nil, checkEvery, a.notifyUnreachable) })
	work.Go(func() { a.repeat(ctx, nil, checkEvery, a.notifyRefusedAlone) })
	work.Go(func() { a.repeat(ctx, nil, scanEvery, a.scan) })
	work.Go(func() { a.repeat(ctx, nil, scanEvery, a.notifyUnserved) })
	work.Go(func() { a.repeat(ctx, nil, scanEvery, a.notifyEviction) })
	a.repeat(ctx, a.due.wake, time.Hour, a.sendTriggers)
	// Another worker delivers what has just happened.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), repeatAfter)
	defer cancel()
	_ = errors.Join(a.sendTriggers(last), a.sendAnswers(last), a.sendFailed(last)) // others know, or will find out
	return nil
}

// repeat calls f whenever it is woken, and every so often, until ctx ends. Where Redis
// fails, it is repeated after a pause.
func (a *Alerts) repeat(ctx context.Context, wake <-chan struct{}, every time.Duration, f func(context.Context) error) {
	for {
		call, cancel := context.WithTimeout(ctx, callRedis)
		err := f(call)
		cancel()
		pause := every
		if err != nil && ctx.Err() == nil {
			a.log.DebugContext(ctx, "alerting could not reach Redis", "error", err)
			pause = min(every, repeatAfter+rand.N(repeatAfter)) //nolint:gosec // it spreads calls
		}
		if err != nil || wake == nil {
			if !wait(ctx, pause, nil) {
				return
			}
			continue
		}
		if !wait(ctx, restFor, nil) || !wait(ctx, pause, wake) {
			return
		}
	}
}

// wait waits for a time, or until it is woken. It returns false if ctx ends.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// scan makes alerts that were missed or lost, and updates numbers. One of the workers does
// so each minute.
func (a *Alerts) scan(ctx context.Context) error {
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	since, err := a.store.firstRun(ctx, now)
	if err != nil {
		return err
	}
	first := !a.scanned.Swap(true)
	var errs []error
	for _, destination := range a.o.Destinations {
		// Each worker scans when it starts: what happened just before may have been missed.
		mine, err := a.store.once(ctx, scanEvery-time.Second, "scan", destination)
		if err == nil && (mine || first) {
			err = a.scanDestination(ctx, destination, since, now)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// scanDestination makes alerts of a destination if there is anything new.
func (a *Alerts) scanDestination(ctx context.Context, destination string, since, now time.Time) error {
	all, err := a.breakers.List(ctx, a.rdb, destination)
	if err != nil {
		return err
	}
	last, err := a.breakers.Incidents(ctx, a.rdb, destination, 1)
	if err != nil {
		return err
	}
	known, _, err := load[subject](ctx, a.store, a.store.key("subject", destination))
	if err != nil {
		return err
	}
	t := known.last()
	followers := a.o.followers()
	missing := t != nil && !t.Done.all(followers)
	for _, in := range last {
		unknown := t == nil || in.ID != t.Incident
		missing = missing || unknown && (in.Ended.IsZero() || in.Ended.After(since) && now.Sub(in.Ended) < news)
	}
	if missing || all[0].State != breaker.Closed {
		a.due.add(a.incidentTriggers(followers, destination, destination, "scan-"+timeID(now), time.Time{})...)
	}
	for name, refused := range map[string]bool{allKeys: false, refusedKeys: true} {
		keys, _, err := load[keysSubject](ctx, a.store, a.store.key("subject", destination+name))
		if err != nil {
			return err
		}
		if len(openKeys(all, refused)) > 0 || keys.Thread != nil && !keys.Thread.Done.all(a.o.keyFollowers(refused)) {
			a.due.add(a.keysTriggers(destination, refused, time.Time{}, now)...)
		}
	}
	return nil
}
