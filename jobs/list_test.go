package jobs_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// list returns one page.
func (b *bench) list(o jobs.ListOptions) *jobs.Page {
	b.t.Helper()
	page, err := b.List(context.Background(), o)
	b.must(err)
	return page
}

// listAll follows the cursors to the end and returns the ids page by page.
func (b *bench) listAll(o jobs.ListOptions, between func(page int)) [][]string {
	b.t.Helper()
	var pages [][]string
	for {
		page := b.list(o)
		pages = append(pages, idsOf(page.Items))
		if o.Cursor = page.Next; o.Cursor == "" {
			return pages
		}
		if len(pages) > 10000 {
			b.t.Fatal("the list has no end")
		}
		if between != nil {
			between(len(pages))
		}
	}
}

func filter(dest string, statuses ...jobs.Status) jobs.ListOptions {
	return jobs.ListOptions{Filter: jobs.Filter{Destination: dest, Statuses: statuses}}
}

// Each status lists its own jobs, the newest first, and nothing of their
// payloads.
func TestListByStatus(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		want := map[jobs.Status][]string{}
		add := func(s jobs.Status, id string) { want[s] = append([]string{id}, want[s]...) }
		for i := range 3 {
			id := b.enqueue(jobs.Key("k")).ID
			b.take()
			b.end(id, store.CompletedKey(b.queue()), store.StateCompleted, float64(4e9+i))
			add(jobs.Completed, id)
			id = b.enqueue().ID
			b.take()
			b.end(id, store.FailedKey(b.queue()), store.StateFailed, float64(17e11+i))
			add(jobs.Failed, id)
			id = b.enqueue().ID
			b.take()
			b.end(id, store.RetryKey(b.queue()), store.StateRetry, 4e9+float64(i)/1000)
			add(jobs.RetryPending, id)
			add(jobs.Running, b.enqueue().ID)
			b.take()
		}
		for range 3 {
			add(jobs.Pending, b.enqueue().ID)
			add(jobs.Pending, b.enqueue(jobs.Delay(time.Hour)).ID)
			add(jobs.Pending, b.enqueue(jobs.Prioritize(jobs.PriorityHigh)).ID)
		}
		var all []string
		for _, s := range jobs.Statuses {
			page := b.list(filter(b.dest, s))
			if diff := cmp.Diff(want[s], idsOf(page.Items), cmp.Transformer("nil", func(ids []string) []string { return append([]string{}, ids...) })); diff != "" {
				t.Errorf("%s (-want +got):\n%s", s, diff)
			}
			for _, j := range page.Items {
				if j.Status != s || j.Payload != nil || j.Destination != b.dest {
					t.Errorf("%s: listed %+v", s, j)
				}
			}
			if page.Next != "" {
				t.Errorf("%s: a page of %d has another one", s, len(page.Items))
			}
			all = append(all, want[s]...)
		}
		got := idsOf(b.list(filter(b.dest)).Items)
		slices.Sort(got)
		slices.Sort(all)
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("all statuses, in any order (-want +got):\n%s", diff)
		}
		some := append(slices.Clone(want[jobs.Completed]), want[jobs.Running]...)
		got = idsOf(b.list(filter(b.dest, jobs.Completed, jobs.Running)).Items)
		slices.Sort(some)
		slices.Sort(got)
		if diff := cmp.Diff(some, got); diff != "" {
			t.Errorf("two statuses, in any order (-want +got):\n%s", diff)
		}
	})
}

// A filter without an index looks at a bounded number of jobs a page, in few
// round trips, and finds all in the end.
func TestListByKey(t *testing.T) {
	t.Parallel()
	const n = 5000
	rdb := redistest.Database(t).Client(t)
	b := benchOn(t, rdb)
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i, jobs.Key("many"))
		if i%1000 == 0 { // the oldest one of each thousand
			specs[i] = jobs.New(b.dest, i, jobs.Key("few"))
		}
	}
	results, err := b.EnqueueMany(context.Background(), specs)
	b.must(err)
	var want []string
	for i := n - 1000; i >= 0; i -= 1000 {
		want = append(want, results[i].Job.ID)
	}
	trips := countTrips(rdb)
	for _, limit := range []int{1, 3, 50} {
		o := jobs.ListOptions{Filter: jobs.Filter{Key: "few", Destination: b.dest}, Limit: limit}
		var pages [][]string
		for {
			before := trips()
			page := b.list(o)
			if got := trips() - before; got > 2*20+2 {
				t.Errorf("limit %d: %d round trips for a page", limit, got)
			}
			pages = append(pages, idsOf(page.Items))
			if len(page.Items) > limit {
				t.Errorf("limit %d: a page has %d jobs", limit, len(page.Items))
			}
			if o.Cursor = page.Next; o.Cursor == "" {
				break
			}
		}
		if diff := cmp.Diff(want, slices.Concat(pages...)); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
		if len(pages) > 9 {
			t.Errorf("limit %d: %d pages for %d jobs of %d", limit, len(pages), len(want), n)
		}
	}
	o := jobs.ListOptions{Filter: jobs.Filter{Key: "nobody"}}
	page := b.list(o)
	if len(page.Items) != 0 || page.Next == "" {
		t.Errorf("a page without a match has %d jobs and next %q; want none, and another page", len(page.Items), page.Next)
	}
	if pages := b.listAll(o, nil); len(slices.Concat(pages...)) != 0 || len(pages) != 3 {
		t.Errorf("%d pages to find nothing among %d, want 3 of 2000 at most", len(pages), n)
	}
	if got := len(b.list(jobs.ListOptions{Filter: jobs.Filter{Key: "many"}, Limit: 1000}).Items); got != 1000 {
		t.Errorf("%d jobs of a frequent key, want a full page", got)
	}
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.enqueue()
	encoded := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	const noCursor = "cursor: is none that a list has returned; start without one"
	for _, tc := range []struct {
		name string
		o    jobs.ListOptions
		want string
	}{
		{"limit", jobs.ListOptions{Limit: 1001}, "limit: must be from 1 to 1000"},
		{"negative limit", jobs.ListOptions{Limit: -1}, "limit: must be from 1 to 1000"},
		{
			"status", filter("", "done"),
			`status: "done" is not a status; there are waiting, pending, running, retry_pending, paused, completed, failed, cancelled, expired`,
		},
		{"destination", filter("Not A Name"), `destination: "Not A Name" cannot be the name of a destination`},
		{"all of it", jobs.ListOptions{Limit: -1, Filter: jobs.Filter{Destination: "*"}}, `destination: "*" cannot be the name of a destination; limit: must be from 1 to 1000`},
		{"held by all destinations", jobs.ListOptions{HeldBy: "alice"}, "held by: needs a destination"},
		{"held by", jobs.ListOptions{Filter: jobs.Filter{Destination: b.dest}, HeldBy: "a b"}, `held by: "a b" cannot be the name of a key`},
		{"cursor of other letters", jobs.ListOptions{Cursor: "***"}, noCursor},
		{"cursor of garbage", jobs.ListOptions{Cursor: "garbage"}, noCursor},
		{"cursor of null", jobs.ListOptions{Cursor: encoded("null")}, noCursor},
		{"cursor of a list", jobs.ListOptions{Cursor: encoded("[]")}, noCursor},
		{"cursor of a number", jobs.ListOptions{Cursor: encoded(`{"a":1}`)}, noCursor},
		{"cursor cut short", jobs.ListOptions{Cursor: encoded(`{"a":{"m":"x"`)}, noCursor},
		{"cursor with a negative offset", jobs.ListOptions{Cursor: encoded(`{"` + b.queue() + `/p":{"m":"x","o":-5}}`)}, noCursor},
		{"cursor with a score that is none", jobs.ListOptions{Cursor: encoded(`{"` + b.queue() + `/s":{"m":"x","s":"(1"}}`)}, noCursor},
		{"cursor with a score of Go's", jobs.ListOptions{Cursor: encoded(`{"` + b.queue() + `/s":{"m":"x","s":"0x1_0p0"}}`)}, noCursor},
		{"cursor with a long infinity", jobs.ListOptions{Cursor: encoded(`{"` + b.queue() + `/c":{"m":"x","s":"Infinity"}}`)}, noCursor},
		{"cursor with a top of Go's", jobs.ListOptions{Cursor: encoded(`{"` + b.queue() + `/h":{"m":"x","s":"1","t":"0x1_0p0"}}`)}, noCursor},
		{"cursor with NaN", jobs.ListOptions{Cursor: encoded(`{"` + b.queue() + `/s":{"m":"x","s":"NaN"}}`)}, noCursor},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			page, err := b.List(context.Background(), tc.o)
			if page != nil || !errors.Is(err, jobs.ErrInvalid) || err.Error() != tc.want {
				t.Errorf("page %+v, error %v; want %s", page, err, tc.want)
			}
		})
	}
	// A cursor that is well-formed but of another list does no harm.
	for _, c := range []string{"{}", `{"nothing/p":{"m":"x","o":3}}`, `{"` + b.queue() + `/p":{"m":"gone","o":3}}`, `{"` + b.queue() + `/s":{"m":"gone"}}`} {
		page := b.list(jobs.ListOptions{Cursor: encoded(c), Filter: jobs.Filter{Destination: b.dest}})
		if len(page.Items) != 1 {
			t.Errorf("cursor %s: %d jobs", c, len(page.Items))
		}
	}
}

// A cursor can be passed on in a URL.
func TestCursorIsSafeInAURL(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 3 {
		b.enqueue()
	}
	o := filter(b.dest)
	o.Limit = 1
	next := b.list(o).Next
	if strings.Trim(next, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Errorf("cursor %s", next)
	}
}

// What jobs carry besides payloads bounds a page too, and what the heads of a list hold:
// the next pages have the rest, in order.
func TestListIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	c, err := jobs.NewClient(rdb, jobs.WithDestinations("shop", "stock"))
	if err != nil {
		t.Fatal(err)
	}
	const stored = 1200
	specs := make([]*jobs.Spec, stored)
	for i := range specs {
		// 24 MB together.
		specs[i] = jobs.New([]string{"shop", "stock"}[i%2], "payload", jobs.ID(fmt.Sprintf("job-%04d", i)), jobs.Header("X-Long", strings.Repeat("x", 8000)))
	}
	if _, err := c.EnqueueMany(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	// Answers of APIs, which are kept with the jobs.
	answer := strings.Repeat("y", 12_000)
	if _, err := rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range specs {
			pipe.HSet(t.Context(), store.TaskKey(store.DefaultNamespace.Queue(specs[i].Destination, store.Default), specs[i].ID), store.FieldResponseStatus, 200, store.FieldResponseBody, answer)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	pages := 0
	for o := (jobs.ListOptions{Limit: 1000}); ; pages++ {
		page, err := c.List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, j := range page.Items {
			if j.Payload != nil || len(j.Request.Headers["X-Long"]) != 8000 || j.Response.Body != answer[:4096] { // the rest is left out
				t.Fatalf("listed without what it carries, or with its payload: %.200v", j)
			}
			bytes += len(j.Request.Headers["X-Long"]) + len(j.Response.Body)
			ids = append(ids, j.ID)
		}
		if bytes > 17<<20 {
			t.Errorf("page %d has %d jobs of %d MB together", pages, len(page.Items), bytes>>20)
		}
		if page.Next == "" {
			break
		}
		o.Cursor = page.Next
	}
	slices.Reverse(ids)
	if len(ids) != stored || !slices.IsSorted(ids) || pages < 1 {
		t.Errorf("%d jobs in %d pages, sorted: %v; want each of %d once, the newest first, in 2 pages or more", len(ids), pages+1, slices.IsSorted(ids), stored)
	}
}

// A list has the beginning of a large answer, cut between characters, and get all of it.
func TestListCutsAnswers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.enqueue()
	for _, answer := range []string{strings.Repeat("y", 4096), strings.Repeat("y", 4095) + "é" + strings.Repeat("ü", 500_000)} {
		b.must(b.rdb.HSet(t.Context(), store.TaskKey(b.queue(), job.ID), store.FieldResponseStatus, 200, store.FieldResponseBody, answer).Err())
		page, err := b.List(t.Context(), jobs.ListOptions{Filter: jobs.Filter{Destination: b.dest}})
		b.must(err)
		if want := answer[:min(len(answer), 4096)]; len(page.Items) != 1 || page.Items[0].Response.Body != strings.ToValidUTF8(want, "") {
			t.Errorf("listed with %d bytes", len(page.Items[0].Response.Body))
		}
		if got := b.get(job.ID); got.Response.Body != answer {
			t.Errorf("got with %d bytes of %d", len(got.Response.Body), len(answer))
		}
	}
}
