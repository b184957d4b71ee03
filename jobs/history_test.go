package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
