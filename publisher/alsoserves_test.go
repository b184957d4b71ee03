package publisher_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// The jobs of an earlier name run first, by the handler and under the breaker of the new one, which keeps
// both back while it is open; they can be cancelled while they run.
func TestAlsoServes(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	old := redistest.Name(t, "old")
	ctx := t.Context()
	client, err := jobs.NewClient(b.rdb, jobs.WithDestinations(b.dest, old))
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(opts ...jobs.Option) *jobs.Job {
		t.Helper()
		j, err := client.Enqueue(ctx, jobs.New(old, 1, opts...))
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	newer := b.enqueue()
	olders := []*jobs.Job{enqueue(), enqueue(jobs.Prioritize(jobs.PriorityLow)), enqueue(jobs.Prioritize(jobs.PriorityHigh))}
	started, cut := make(chan string, 1), make(chan struct{})
	var limited atomic.Bool
	b.run(b.options(), func(ctx context.Context, j *jobs.Job) error {
		switch {
		case j.Key == "slow":
			started <- j.ID
			<-ctx.Done()
			close(cut)
			return ctx.Err()
		case limited.CompareAndSwap(true, false):
			return jobs.RateLimited(time.Hour)
		}
		return nil
	}, publisher.AlsoServes(old), publisher.Concurrency(1))
	var got []string
	for range 4 {
		got = append(got, b.want(publisher.Completed).Job.ID)
	}
	if want := strings.Join([]string{olders[2].ID, olders[0].ID, newer.ID, olders[1].ID}, " "); strings.Join(got, " ") != want {
		t.Errorf("ran %v, want %s", got, want)
	}
	if workers, err := client.Workers(ctx); err != nil || !workers.Serve(old) || !workers.Serve(b.dest) || workers.ServedBy(old) != b.dest {
		t.Errorf("workers %+v, %v; want one that serves both", workers, err)
	}

	slow := enqueue(jobs.Key("slow"))
	<-started
	if err := client.Cancel(ctx, slow.ID); err != nil {
		t.Fatal(err)
	}
	<-cut
	b.want(publisher.Cancelled)

	limited.Store(true)
	refused := enqueue()
	b.want(publisher.Rescheduled)
	held := enqueue()
	for _, id := range []string{refused.ID, held.ID} {
		if j, err := client.Get(ctx, id); err != nil || j.Status != jobs.Pending || j.Destination != old {
			t.Errorf("%s is %+v, %v; want it pending", id, j, err)
		}
	}
	if _, err := breaker.Reset(ctx, b.rdb, b.dest, "me"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.want(publisher.Completed)
	}
	if n := b.rdb.Exists(ctx, store.TaskKey(store.DefaultNamespace.Queue(old, store.Default), held.ID)).Val(); n != 1 {
		t.Error("the job has left the queue that it was enqueued in")
	}
}

func TestAlsoServesRefuses(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	p, err := publisher.New(b.rdb, b.options())
	if err != nil {
		t.Fatal(err)
	}
	h := publisher.Func(succeed)
	if err := p.Handle("shop", h, publisher.AlsoServes("old")); err != nil {
		t.Fatal(err)
	}
	for want, try := range map[string]func() error{
		"shop serves old already":          func() error { return p.Handle("old", h) },
		"shop serves shop already":         func() error { return p.Handle("other", h, publisher.AlsoServes("shop")) },
		"a is named twice":                 func() error { return p.Handle("b", h, publisher.AlsoServes("a", "a")) },
		"b is named twice":                 func() error { return p.Handle("b", h, publisher.AlsoServes("b")) },
		"reserved for Tidegate's own jobs": func() error { return p.Handle("b", h, publisher.AlsoServes("tidegate-alerts")) },
		`name "No" must be 1 to 63`:        func() error { return p.Handle("b", h, publisher.AlsoServes("No")) },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
