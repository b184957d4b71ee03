package alerts

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// flushEvery is how often what was observed is written, if nothing happens, flushFor bounds that, flushRest
	// is the least time between two writes.
	flushEvery = time.Second
	flushFor   = 5 * time.Second
	flushRest  = 100 * time.Millisecond
	// checkEvery is how often one of the workers looks for destinations that no worker reaches or serves, scanEvery
	// for alerts that were missed; checkFor bounds that.
	checkEvery = 30 * time.Second
	scanEvery  = time.Minute
	checkFor   = 20 * time.Second
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
	work.Go(func() { a.repeat(ctx, nil, checkEvery, checkFor, a.check) })
	a.repeat(ctx, a.buffer.wake, flushEvery, flushFor, a.flush)
	// Another worker delivers what has just happened.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushEvery)
	defer cancel()
	_ = a.flush(last) // others know, or will find out
	return nil
}

// repeat calls f whenever it is woken, and every so often, until ctx ends. Where Redis
// fails, it is repeated after a second or two.
func (a *Alerts) repeat(ctx context.Context, wake <-chan struct{}, every, bound time.Duration, f func(context.Context) error) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, bound)
		err := f(call)
		cancel()
		woken, pause := wake, every
		if err != nil && ctx.Err() == nil {
			a.log.DebugContext(ctx, "alerting could not reach Redis", "error", err)
			woken, pause = nil, time.Second+rand.N(time.Second) //nolint:gosec // it spreads calls
		}
		wait(ctx, flushRest, nil)
		wait(ctx, pause, woken)
	}
}

// wait waits for a time, until it is woken, or until ctx ends.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// check looks for what no event reports. One of the workers does.
func (a *Alerts) check(ctx context.Context) error {
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	return errors.Join(a.scan(ctx, now), a.lookAtWorkers(ctx, now))
}

const (
	unreachedFor = 2 * time.Minute
	unservedFor  = 10 * time.Minute
)

// lookAtWorkers notifies once when no worker reaches a destination, or when jobs wait for one that no worker serves;
// and once when that is over. One of the workers looks.
func (a *Alerts) lookAtWorkers(ctx context.Context, now time.Time) error {
	mine, err := a.store.once(ctx, checkEvery-time.Second, "scan", "workers")
	if err != nil || !mine {
		return err
	}
	workers, err := a.client.Workers(ctx)
	if err != nil {
		return err
	}
	unserved, err := a.client.Unserved(ctx)
	if err != nil {
		return err
	}
	known, err := a.client.Destinations(ctx)
	if err != nil {
		return err
	}
	var errs []error
	waits := map[string]store.Unserved{}
	for _, u := range unserved {
		if waits[u.Destination] = u; !slices.ContainsFunc(known, func(d jobs.Destination) bool { return d.Name == u.Destination }) {
			known = append(known, jobs.Destination{Name: u.Destination})
		}
	}
	for _, d := range known {
		s := single{Kind: unreached, Destination: d.Name, At: now, Backlog: -1, Problem: "reached"}
		u, on := workers.Unreached(d.Name)
		if on {
			s.Since, s.Problem = u.Since, u.Problem
		} else if !workers.Serve(d.Name) {
			s.Problem = "left"
		}
		errs = append(errs, a.turned(ctx, s, on && now.Sub(u.Since) >= unreachedFor, now))
		w, on := waits[d.Name]
		s = single{Kind: unservedJobs, Destination: d.Name, At: now, Since: w.SeenAt, Backlog: w.Backlog, Problem: "empty"}
		if workers.Serve(d.Name) {
			s.Problem = "served"
		}
		errs = append(errs, a.turned(ctx, s, on && now.Sub(w.SeenAt) >= unservedFor, now))
	}
	return errors.Join(errs...)
}

// turned notifies by s when its condition begins, and by [flows] when it ends.
func (a *Alerts) turned(ctx context.Context, s single, on bool, now time.Time) error {
	name := s.Destination + "." + s.Kind
	return a.store.turn(ctx, a.store.key(s.Kind, s.Destination), on, now, func(since time.Time) {
		s.ID = a.singleID(name, now)
		if !on {
			s.Kind, s.Since, s.Opened, s.ID = flows, since, a.singleID(name, since), a.singleID(name+"-over", now)
		}
		a.trigger(a.o.receivers(), s.ID, time.Time{}, alertJob{Single: &s})
	})
}

// scan makes alerts that were missed or lost, and updates numbers. One of the workers does
// so each minute.
func (a *Alerts) scan(ctx context.Context, now time.Time) error {
	first := !a.scanned.Swap(true)
	var errs []error
	for _, destination := range a.o.Destinations {
		// Each worker scans when it starts: what happened just before may have been missed.
		mine, err := a.store.once(ctx, scanEvery-time.Second, "scan", destination)
		if err == nil && (mine || first) {
			err = a.scanDestination(ctx, destination, now)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// scanDestination makes alerts of a destination if there is anything new.
func (a *Alerts) scanDestination(ctx context.Context, destination string, now time.Time) error {
	read, err := a.breakers.ReadOne(ctx, a.rdb, breaker.Query{Keys: true, Incidents: 1}, destination)
	if err != nil {
		return err
	}
	for _, x := range []struct {
		subject, id string
		unseen      func(known string) bool
	}{
		{destination, ".scan-", func(known string) bool {
			return read.Status.State != breaker.Closed || slices.ContainsFunc(read.Incidents, func(in breaker.Incident) bool {
				return in.ID != known && (in.Ended.IsZero() || now.Sub(in.Ended) < news)
			})
		}},
		{destination + allKeys, ".keys-scan-", func(string) bool { return len(openKeys(read.Keys, false)) > 0 }},
		{destination + refusedKeys, ".refused-scan-", func(string) bool { return len(openKeys(read.Keys, true)) > 0 }},
	} {
		for _, to := range a.o.followers(!strings.HasSuffix(x.subject, allKeys)) {
			r, err := a.store.record(ctx, a.store.recordKey(to.Name(), x.subject))
			if err != nil {
				return err
			}
			if r.ID != "" && !r.Done || x.unseen(r.ID) {
				a.trigger([]notice.Notifier{to}, destination+x.id+timeID(now), time.Time{}, alertJob{Subject: x.subject})
			}
		}
	}
	return nil
}
