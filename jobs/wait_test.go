package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

func TestWait(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := t.Context()
		enqueue := func(opts ...jobs.Option) string {
			t.Helper()
			job, err := b.Enqueue(ctx, jobs.New(b.dest, 1, opts...))
			if err != nil {
				t.Fatal(err)
			}
			return job.ID
		}
		type ended struct {
			job *jobs.Job
			err error
		}
		wait := func(ctx context.Context, id string) <-chan ended {
			out := make(chan ended, 1)
			go func() {
				job, err := b.Wait(ctx, id)
				out <- ended{job, err}
			}()
			return out
		}

		cancelled := enqueue()
		waiting := wait(ctx, cancelled)
		select {
		case e := <-waiting:
			t.Fatalf("it ended: %+v", e)
		case <-time.After(300 * time.Millisecond):
		}
		if err := b.Cancel(ctx, cancelled); err != nil {
			t.Fatal(err)
		}
		if e := <-waiting; e.err != nil || e.job.ID != cancelled || e.job.Status != jobs.Cancelled {
			t.Errorf("cancelled: %+v, %v", e.job, e.err)
		}
		// No worker is there to end it: who looks does.
		began := time.Now()
		if job, err := b.Wait(ctx, enqueue(jobs.TTL(200*time.Millisecond))); err != nil || job.Status != jobs.Expired {
			t.Errorf("expired: %+v, %v", job, err)
		} else if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the end of 200 ms was seen after %v", took)
		}
		if job, err := b.Wait(ctx, cancelled); err != nil || job.Status != jobs.Cancelled {
			t.Errorf("one that has ended: %+v, %v", job, err)
		}
		short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		defer stop()
		if _, err := b.Wait(short, enqueue()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("at the end of one's patience: %v", err)
		}
		for _, id := range []string{b.dest + "-nobody", "no/name"} {
			if _, err := b.Wait(ctx, id); !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("wait for %s: %v, want ErrNotFound", id, err)
			}
		}
		gone := enqueue()
		waiting = wait(ctx, gone)
		if err := rdb.Del(ctx, store.TaskKey(store.DefaultNamespace.Queue(b.dest, store.Default), gone)).Err(); err != nil {
			t.Fatal(err)
		}
		if e := <-waiting; !errors.Is(e.err, jobs.ErrNotFound) {
			t.Errorf("one that is gone: %v, want ErrNotFound", e.err)
		}
	})
}
