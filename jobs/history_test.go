package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// told is a history without its times.
func told(entries []jobs.HistoryEntry) []string {
	var out []string
	for _, e := range entries {
		s := fmt.Sprint(e.Version, " ", e.Status, " ", e.Event)
		if e.Detail != "" {
			s += ": " + e.Detail
		}
		if e.By != "" {
			s += " by " + e.By
		}
		out = append(out, s)
	}
	return out
}

// A job that was published at its first call has a history though nothing was
// written for it: its creation, start and end are those of the job.
func TestHistoryOfAHealthyJob(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		job := b.enqueue()
		if diff := cmp.Diff([]string{"1 pending created"}, told(b.history(job.ID))); diff != "" {
			t.Errorf("pending (-want +got):\n%s", diff)
		}
		b.start(job)
		if diff := cmp.Diff([]string{"1 pending created", "2 running started by w:1"}, told(b.history(job.ID))); diff != "" {
			t.Errorf("running (-want +got):\n%s", diff)
		}
		b.finish(job, store.StateCompleted, time.Now(), store.FieldResponseStatus, 201, store.FieldResponseBody, "ok")
		h := b.history(job.ID)
		want := []string{"1 pending created", "2 running started by w:1", "3 completed completed: answered 201 by w:1"}
		if diff := cmp.Diff(want, told(h)); diff != "" {
			t.Errorf("completed (-want +got):\n%s", diff)
		}
		now := b.get(job.ID)
		if !h[0].At.Equal(now.CreatedAt) || !h[1].At.Equal(*now.StartedAt) || !h[2].At.Equal(*now.CompletedAt) {
			t.Errorf("times %+v of %+v", h, now)
		}
		if n := rdb.HExists(context.Background(), store.TaskKey(b.queue(), job.ID), store.FieldHistory).Val(); n {
			t.Error("a history was written")
		}
	})
}

// What happened in the queue and what people did, in one sequence; what follows from
// the record comes last, and disappears when it is not so any more.
func TestHistoryOfALongLife(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := context.Background()
		parent := b.enqueue()
		job := b.enqueue(jobs.After(parent.ID), jobs.TTL(hour))
		alice := jobs.By("alice")
		b.must(b.Pause(ctx, job.ID, alice, jobs.Because("wait for it")))
		b.must(b.Resume(ctx, job.ID, alice))
		b.complete(parent)
		b.must(b.Cancel(ctx, job.ID, jobs.Because("no \"need\"\nany more")))
		b.must(b.Retry(ctx, job.ID, jobs.By("bob@example.com")))
		b.start(job)
		want := []string{
			"1 waiting created: after " + parent.ID,
			"2 paused paused: wait for it by alice",
			"3 waiting resumed by alice",
			"4 pending released: all parents completed",
			"5 cancelled cancelled: no \"need\"\nany more",
			"6 pending retried by bob@example.com",
			"7 running started by w:1",
		}
		if diff := cmp.Diff(want, told(b.history(job.ID))); diff != "" {
			t.Errorf("running (-want +got):\n%s", diff)
		}
		b.must(rdb.LRem(ctx, store.ActiveKey(b.queue()), 1, job.ID).Err())
		b.must(rdb.RPush(ctx, store.PendingKey(b.queue()), job.ID).Err()) // its worker stopped and put it back
		b.change(job, store.FieldState, store.StatePending)
		b.overdue(job)
		b.get(job.ID)
		want[6] = "7 expired expired: while pending"
		if diff := cmp.Diff(want, told(b.history(job.ID))); diff != "" {
			t.Errorf("expired (-want +got):\n%s", diff)
		}
	})
}

// The first version and the last 99 others are kept, and what follows from the record
// takes their place too.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := context.Background()
		job := b.enqueue()
		last := 1
		for last < 251 {
			b.must(b.Pause(ctx, job.ID, jobs.Because("again\n"+strings.Repeat("x", 50))))
			b.must(b.Resume(ctx, job.ID))
			last += 2
			if last != 99 && last != 101 && last != 103 && last != 251 {
				continue
			}
			h := b.history(job.ID)
			if got, want := len(h), min(last, 100); got != want || h[got-1].Version != last || last > 100 && h[1].Version != last-98 {
				t.Fatalf("%d of %d versions are kept, from %+v to %+v", got, last, h[1], h[got-1])
			}
		}
		if n := rdb.HStrLen(ctx, store.TaskKey(b.queue(), job.ID), store.FieldHistory).Val(); n > 100*200 {
			t.Errorf("the history has %d bytes", n)
		}
		b.run(job, store.StateCompleted)
		h := b.history(job.ID)
		if len(h) != 100 || h[0].Event != "created" || h[1].Version != 155 || h[98].Event != "started" || h[99].Event != "completed" || h[99].Version != 253 {
			t.Errorf("%d versions are kept: %+v, %+v … %+v, %+v", len(h), h[0], h[1], h[98], h[99])
		}
	})
}

// A line that cannot be read, of a later version perhaps, is left out; the others
// stay.
func TestHistoryWithForeignLines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.enqueue()
	b.must(b.Pause(context.Background(), job.ID))
	key := store.TaskKey(b.queue(), job.ID)
	line := b.rdb.HGet(context.Background(), key, store.FieldHistory).Val()
	b.change(job, store.FieldHistory, "{}}\n"+line)
	h, err := b.History(context.Background(), job.ID)
	b.must(err)
	if len(h) != 2 || h[1].Event != "paused" {
		t.Errorf("history %+v", h)
	}
}

// Whoever looks at the history of a job whose time is over sees it expired.
func TestHistoryOfAnOverdueJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.enqueue(jobs.TTL(hour))
	b.overdue(job)
	want := []string{"1 pending created", "2 expired expired: while pending"}
	if diff := cmp.Diff(want, told(b.history(job.ID))); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// A long reason is cut, so that a history stays small.
func TestLongReasonsAreCut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.enqueue()
	b.must(b.Cancel(context.Background(), job.ID, jobs.By(strings.Repeat("b", 5000)), jobs.Because(strings.Repeat("ä", 1<<20))))
	h := b.history(job.ID)
	got := b.get(job.ID)
	e := h[1]
	for _, text := range []string{e.Detail, got.LastError} {
		if !strings.HasPrefix(text, "ää") || strings.ContainsRune(text, '\uFFFD') {
			t.Errorf("it is kept as %q", text)
		}
	}
	if len(e.Detail) > 310 || len(e.By) > 128 || len(got.LastError) > 1024 {
		t.Errorf("a detail of %d bytes by one of %d, last error of %d", len(e.Detail), len(e.By), len(got.LastError))
	}
}
