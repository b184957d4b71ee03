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
	// tellEvery is how often failed jobs are counted together.
	tellEvery = time.Second
	// callRedis bounds what is told to Redis at once.
	callRedis = 5 * time.Second
	// repeatAfter is the pause after Redis has not taken something.
	repeatAfter = time.Second
	// restFor is the least time between two times that Redis is told of what happens.
	restFor = 100 * time.Millisecond
	// lookEvery is how often one of the workers looks for what nobody has told.
	lookEvery = time.Minute
)

// Run watches until ctx ends: it turns what [Alerts.OnEvent], [Alerts.OnJob] and
// [Alerts.OnAnswer] have taken note of into alerts, and looks for what nobody reports.
// At its start it checks what is configured, and makes up for what happened while
// nobody watched. Whatever goes wrong is logged; it returns nil.
func (a *Alerts) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { a.sayProblems(ctx) })
	work.Go(func() { a.watchRedis(ctx) })
	work.Go(func() { a.repeat(ctx, a.ends.wake, tellEvery, a.sendAnswers) })
	work.Go(func() { a.repeat(ctx, nil, tellEvery, a.sendEnds) })
	work.Go(func() { a.repeat(ctx, nil, lookForOverdue, a.tellOverdue) })
	work.Go(func() { a.repeat(ctx, nil, lookForOverdue, a.notifyUnreachable) })
	work.Go(func() { a.repeat(ctx, nil, lookEvery, a.lookAround) })
	work.Go(func() { a.repeat(ctx, nil, lookEvery, a.notifyUnserved) })
	a.repeat(ctx, a.due.wake, time.Hour, a.sendTriggers)
	// What has just happened is somebody else's to deliver.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), repeatAfter)
	defer cancel()
	_ = errors.Join(a.sendTriggers(last), a.sendAnswers(last), a.sendEnds(last)) // others know, or will find out
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

// lookAround has people brought up to date about what nobody may have told: what has
// happened while no worker watched, or got lost on the way; and about numbers that have
// changed. One of the workers does so each minute, and notes that somebody watches.
func (a *Alerts) lookAround(ctx context.Context) error {
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	since, err := a.store.firstRun(ctx, now)
	if err != nil {
		return err
	}
	a.mu.Lock()
	first := !a.looked
	a.looked = true
	a.mu.Unlock()
	var errs []error
	for _, destination := range a.o.Destinations {
		// Each worker looks when it starts: what happened just before nobody may have heard.
		mine, err := a.store.once(ctx, lookEvery-time.Second, "look", destination)
		if err == nil && (mine || first) {
			err = a.lookAt(ctx, destination, since, now)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// lookAt has people brought up to date about a destination if there is anything to tell.
func (a *Alerts) lookAt(ctx context.Context, destination string, since, now time.Time) error {
	all, err := breaker.List(ctx, a.rdb, destination)
	if err != nil {
		return err
	}
	last, err := breaker.Incidents(ctx, a.rdb, destination, 1)
	if err != nil {
		return err
	}
	known, _, err := load[subject](ctx, a.store, key("subject", destination))
	if err != nil {
		return err
	}
	c := known.last()
	untold := c != nil && (a.o.slack() && !c.Told || a.pages() && !c.Paged)
	for _, in := range last {
		unheard := c == nil || in.ID != c.Incident
		untold = untold || unheard && (in.Ended.IsZero() || in.Ended.After(since) && now.Sub(in.Ended) < news)
	}
	if untold || all[0].State != breaker.Closed {
		a.due.add(a.incidentTriggers(destination, destination, "look-"+timeID(now), time.Time{})...)
	}
	keys, _, err := load[keysSubject](ctx, a.store, key("subject", destination+allKeys))
	if err != nil {
		return err
	}
	if a.o.slack() && (len(all) > 1 || keys.Case != nil && !keys.Case.Told) {
		a.due.add(keysTrigger(destination, time.Time{}, now))
	}
	return nil
}
