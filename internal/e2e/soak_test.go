//go:build soak

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Workers are killed all the time, leases are found lost at asynq's own pace,
// and the API has a limit: nothing is lost, and only what was in flight at a
// kill is sent twice.
func TestSoakKills(t *testing.T) {
	const n, workers, kills = 20000, 3, 30
	f := newFleet(t, redistest.Start(t, redistest.WithAOF()), fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 1500, Window: 10 * time.Second}, Latency: 20 * time.Millisecond, Light: true,
	})
	f.env["CIRCUIT_BREAKER_COOLDOWN_MS"] = "2000"
	ids := f.enqueue(n)
	var fleet []*worker
	for range workers {
		fleet = append(fleet, f.start())
	}
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for range kills {
		<-tick.C
		i := rand.IntN(workers)
		fleet[i].stop(syscall.SIGKILL)
		fleet[i] = f.start()
	}
	f.waitCompleted(ids, 15*time.Minute)
	accepted := f.api.Accepted()
	twice := 0
	for _, id := range ids {
		switch times := accepted[id]; {
		case times == 0:
			t.Errorf("job %s was never accepted", id)
		case times > 1:
			twice++
		}
		delete(accepted, id)
	}
	if len(accepted) > 0 {
		t.Errorf("accepted but never enqueued: %v", accepted)
	}
	if most := kills * 10; twice > most {
		t.Errorf("%d jobs were accepted more than once; at most %d were in flight at the %d kills", twice, most, kills)
	}
	stats := f.api.Stats()
	t.Logf("%d jobs, %d kills: %d calls, %d refused, %d jobs accepted more than once", n, kills, stats.Calls, stats.Limited, twice)
}

// Redis is killed again and again; with an append-only file it loses nothing
// that it had acknowledged, and neither do the workers.
func TestSoakRedisKills(t *testing.T) {
	const n, workers, kills = 3000, 3, 20
	server := redistest.Start(t, redistest.WithAOF())
	f := newFleet(t, server, fakeapi.Options{Latency: 100 * time.Millisecond, Light: true})
	ids := f.enqueue(n)
	for range workers {
		f.start()
	}
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for range kills {
		<-tick.C
		server.Kill()
		<-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond) // the outage itself
		server.Restart()
	}
	f.waitCompleted(ids, 10*time.Minute)
	accepted := f.api.Accepted()
	twice := 0
	for _, id := range ids {
		if accepted[id] == 0 {
			t.Errorf("job %s was never accepted", id)
		}
		if accepted[id] > 1 {
			twice++
		}
	}
	t.Logf("%d jobs, %d kills of Redis: %d accepted more than once", n, kills, twice)
}

// A million jobs while workers publish: enqueued, listed page by page, a batch of
// 100,000 cancelled, 100,000 expired at the same instant. No command keeps Redis from
// the others for long.
func TestSoakMillionWhileWorkersRun(t *testing.T) {
	const (
		n, part = 1_000_000, 100_000
		slowest = 20 * time.Millisecond
		ahead   = 2 * time.Minute // of the expiry: what comes before takes half a minute
	)
	server := redistest.Start(t, redistest.WithArgs("--slowlog-log-slower-than", "10000", "--slowlog-max-len", "10000"))
	f := newFleet(t, server, fakeapi.Options{Latency: 50 * time.Millisecond, Light: true})
	ctx := context.Background()
	favour(t, server.PID())
	var logged []redis.SlowLog
	step := func(what string, do func()) {
		t.Helper()
		started := time.Now()
		do()
		took := time.Since(started)
		logs, err := f.rdb.SlowLogGet(ctx, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.rdb.Do(ctx, "SLOWLOG", "RESET").Err(); err != nil {
			t.Fatal(err)
		}
		logged = append(logged, logs...)
		t.Logf("%s: %s; %d commands of 10 ms or more; %d accepted by then", what, took.Round(10*time.Millisecond), len(logs), f.api.Stats().Accepted)
	}
	memory := func() int64 {
		info, err := f.rdb.Info(ctx, "memory").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "used_memory:")
		var bytes int64
		if _, err := fmt.Sscan(rest, &bytes); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	fill := func(n int, opts ...jobs.Option) {
		for ; n > 0; n -= 10_000 {
			f.enqueue(min(n, 10_000), opts...)
		}
	}
	counts := func() map[jobs.Status]int {
		s, err := f.client.Stats(ctx, f.dest)
		if err != nil {
			t.Fatal(err)
		}
		return s[0].Counts
	}

	workers := []*worker{f.start(), f.start()}
	empty := memory()
	step("enqueue 700,000", func() { fill(n - 3*part) })
	step("enqueue a batch of 100,000", func() { fill(part, jobs.Batch("large")) })
	expiry := time.Now().Add(ahead)
	step("enqueue 100,000 that expire together", func() { fill(part, jobs.ExpiresAt(expiry)) })
	step("enqueue 100,000", func() { fill(part) })
	t.Logf("memory: %d MB, %d bytes a job", (memory()-empty)>>20, (memory()-empty)/n)
	step("list all by pages of 1000", func() {
		seen := make(map[string]bool, n)
		pages := 0
		for o := (jobs.ListOptions{Filter: jobs.Filter{Destination: f.dest}, Limit: 1000}); ; pages++ {
			page, err := f.client.List(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Items {
				seen[j.ID] = true
			}
			if o.Cursor = page.Next; o.Cursor == "" {
				break
			}
		}
		// Those that a worker took or ended meanwhile may be missed.
		if moving := f.api.Stats().Accepted + 100; len(seen) < n-moving {
			t.Errorf("%d of %d jobs are listed", len(seen), n)
		}
		t.Logf("%d pages, %d jobs", pages, len(seen))
	})
	step("cancel the batch of 100,000 by filter", func() {
		sum, err := f.client.ActWhere(ctx, jobs.ActionCancel, jobs.Filter{Batch: "large"})
		if err != nil || sum != (jobs.ActSummary{Done: part}) {
			t.Errorf("%+v, %v", sum, err)
		}
	})
	step("count the batch", func() {
		b, err := f.client.Batch(ctx, "large")
		if err != nil || b.Counts[jobs.Cancelled] != part || !b.Done {
			t.Errorf("%+v, %v", b, err)
		}
	})
	expired := store.ParkedKey(store.DefaultNamespace.Queue(f.dest, store.Default), store.StateExpired)
	early, err := f.rdb.ZCard(ctx, expired).Result()
	if err != nil || early != 0 || time.Now().After(expiry) {
		t.Fatalf("%d have expired, %s before their time (%v)", early, time.Until(expiry), err)
	}
	<-time.After(time.Until(expiry)) // the time that they have
	step("sweep 100,000 that expire together", func() {
		redistest.Await(t, time.Minute, "all have expired", func() bool { return f.rdb.ZCard(ctx, expired).Val() == part })
	})
	for _, w := range workers {
		if code, took := w.stop(syscall.SIGTERM); code != 0 || took > 5*time.Second {
			t.Errorf("the worker ended with %d after %s", code, took)
		}
	}
	got := counts()
	if got[jobs.Completed]+got[jobs.Pending] != n-2*part || got[jobs.Cancelled] != part || got[jobs.Expired] != part {
		t.Errorf("at the end: %v", got)
	}
	slices.SortFunc(logged, func(a, b redis.SlowLog) int { return int(b.Duration - a.Duration) })
	for _, l := range logged[:min(5, len(logged))] {
		t.Logf("slow: %s %.100q", l.Duration, l.Args[:min(5, len(l.Args))])
	}
	if len(logged) > 0 && logged[0].Duration > slowest {
		t.Errorf("a command took %s, more than %s", logged[0].Duration, slowest)
	}
}
