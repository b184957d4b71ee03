package publisher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Tidegate's own destinations are served like any other, and what becomes of their
// jobs is nobody's to count.
func TestSystemDestinationsAreServedInSilence(t *testing.T) {
	t.Parallel()
	server := redistest.Database(t)
	b := fixtureOn(t, server)
	ctx := t.Context()
	own, err := jobs.NewClient(b.rdb)
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(payload int, opts ...jobs.Option) string {
		t.Helper()
		j, err := own.Enqueue(store.AsSystem(ctx), jobs.New(store.AlertsDestination, payload, opts...))
		if err != nil {
			t.Fatal(err)
		}
		return j.ID
	}
	o := b.options()
	told := make(chan string, 100)
	o.Observe(publisher.Observer{OnAnswer: func(a publisher.Answer) { told <- "answer of " + a.Destination }})
	o.Observe(publisher.Observer{OnExpired: func(d string, _ int) { told <- "expired of " + d }})
	p, err := publisher.New(b.rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan int, 10)
	for _, name := range []string{b.dest, store.AlertsDestination} {
		err := p.Handle(name, publisher.Func(func(_ context.Context, j *jobs.Job) error {
			switch string(j.Payload) {
			case "1":
				called <- 1
				return jobs.RateLimited(0)
			case "2":
				called <- 2
				return errors.New("boom")
			}
			called <- 0
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	fine, limited, failed := enqueue(0), enqueue(1, jobs.MaxReschedules(0)), enqueue(2)
	expired := enqueue(3, jobs.At(time.Now().Add(time.Hour)), jobs.TTL(time.Millisecond))
	runCtx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(runCtx) }()
	status := func(id string) jobs.Status {
		fields, err := b.rdb.HGetAll(ctx, store.TaskKey(store.DefaultNamespace.Queue(store.AlertsDestination, store.Default), id)).Result()
		if err != nil {
			t.Fatal(err)
		}
		j, err := store.JobOf[jobs.Job](nil, fields)
		if err != nil {
			t.Fatal(err)
		}
		return j.Status
	}
	for id, want := range map[string]jobs.Status{fine: jobs.Completed, limited: jobs.Failed, failed: jobs.Failed, expired: jobs.Expired} {
		redistest.Eventually(t, id+" is "+string(want), func() bool { return status(id) == want })
	}
	if len(called) != 3 {
		t.Errorf("%d calls, want 3", len(called))
	}
	job := b.enqueue()
	if e := b.want(publisher.Completed); e.Job.ID != job.ID || e.Destination != b.dest {
		t.Errorf("told %+v", e)
	}
	redistest.Eventually(t, "the destinations are registered", func() bool {
		_, err := b.client.Destination(ctx, store.AlertsDestination)
		return err == nil
	})
	if known, err := b.client.Destinations(ctx); err != nil || len(known) != 1 || known[0].Name != b.dest {
		t.Errorf("known are %v, %v", known, err)
	}
	if stats, err := b.client.Stats(ctx, store.AlertsDestination); err != nil || stats[0].Counts[jobs.Failed] != 2 || stats[0].WorkersSeenAt == nil {
		t.Errorf("stats %+v, %v", stats, err)
	}
	cancel()
	if err := signal(t, "the end of Run", ended); err != nil {
		t.Error(err)
	}
	if len(b.events) != 0 || len(told) != 0 {
		t.Errorf("%d events and %d other things were told of jobs of Tidegate's own", len(b.events), len(told))
	}
}
