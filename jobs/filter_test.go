package jobs_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A job has up to four labels; a filter selects the jobs that have all of its labels.
func TestLabels(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := benchOn(t, redistest.Database(t).Client(t))
	for id, run := range map[string]string{"a": "1", "b": "2"} {
		opts := []jobs.Option{jobs.ID(id), jobs.Label("team", "web"), jobs.Label("run", run)}
		_, err := b.Enqueue(ctx, jobs.New(b.dest, 1, opts...))
		b.must(err)
	}
	_, err := b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.ID("c")))
	b.must(err)
	if diff := cmp.Diff(map[string]string{"team": "web", "run": "1"}, b.get("a").Labels); diff != "" {
		t.Errorf("labels (-want +got)\n%s", diff)
	}
	for labels, want := range map[string]int{"team=web": 2, "team=web, run=2": 1, "run=3": 0, "team=Web": 0} {
		f := jobs.Filter{}
		f.Labels, err = jobs.ParseLabels(labels)
		b.must(err)
		page, err := b.List(ctx, jobs.ListOptions{Filter: f})
		b.must(err)
		n, err := b.CountWhere(ctx, jobs.ActionPause, f)
		b.must(err)
		if len(page.Items) != want || n != want {
			t.Errorf("%s: %d in the list, %d counted, want %d", labels, len(page.Items), n, want)
		}
	}
	sum, err := b.ActWhere(ctx, jobs.ActionCancel, jobs.Filter{Labels: map[string]string{"team": "web", "run": "2"}})
	b.must(err)
	if sum.Done != 1 || b.get("b").Status != jobs.Cancelled || b.get("a").Status != jobs.Pending {
		t.Errorf("cancelled %+v", sum)
	}
	if _, err := b.List(ctx, jobs.ListOptions{Filter: jobs.Filter{Labels: map[string]string{"a b": "c"}}}); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("a filter by a bad label: %v", err)
	}
	for _, wrong := range []map[string]string{{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}, {"a b": "c"}, {"a": ""}, {"a": strings.Repeat("x", 129)}} {
		s := jobs.New(b.dest, 1)
		s.Labels = wrong
		invalid, ok := errors.AsType[*jobs.ValidationError](s.Validate(jobs.Limits{}))
		if !ok || len(invalid.Fields) != 1 || invalid.Fields[0].Field != "labels" {
			t.Errorf("%v: %v", wrong, invalid)
		}
	}
	for _, wrong := range []string{"", "team", "team=", "=web", "a=1,a=2", "a=1,b=2,c=3,d=4,e=5"} {
		if got, err := jobs.ParseLabels(wrong); err == nil {
			t.Errorf("%q is taken as %v", wrong, got)
		}
	}
}

// Jobs are listed, counted and acted on by time, error and cause.
func TestFilterByRecord(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := benchOn(t, redistest.Database(t).Client(t))
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var failed []*jobs.Job
	for i := range 4 {
		j, err := b.Enqueue(ctx, jobs.New(b.dest, i, jobs.ID(strconv.Itoa(i))))
		b.must(err)
		failed = append(failed, j)
	}
	b.place(failed, store.StateFailed)
	for i, of := range [][2]string{{"No such album: 7", "retry 1 3 timeout"}, {"no such album: 8", "decided gone"}, {"refused", ""}, {"", ""}} {
		b.must(b.rdb.HSet(ctx, store.TaskKey(queueOf(failed[i]), failed[i].ID), store.FieldEndedAt, noon.Add(time.Duration(i)*time.Hour).UnixMilli(),
			store.FieldLastError, of[0], store.FieldReason, of[1]).Err())
	}
	pending, err := b.Enqueue(ctx, jobs.New(b.dest, "pending", jobs.ID("pending")))
	b.must(err)
	b.must(b.rdb.HSet(ctx, store.TaskKey(queueOf(pending), "pending"), store.FieldReason, "retry 1 3 timeout").Err())
	for _, row := range []struct {
		filter jobs.Filter
		want   string
	}{
		{jobs.Filter{Since: noon.Add(time.Hour)}, "1 2 3 pending"},
		{jobs.Filter{Until: noon.Add(time.Hour)}, "0"},
		{jobs.Filter{Since: noon, Until: noon.Add(2 * time.Hour)}, "0 1"},
		{jobs.Filter{Since: pending.CreatedAt}, "pending"},
		{jobs.Filter{Since: pending.CreatedAt.Add(time.Millisecond)}, ""},
		{jobs.Filter{Error: "NO SUCH album"}, "0 1"},
		{jobs.Filter{Error: "album", Cause: "decided"}, "1"},
		{jobs.Filter{Cause: "retry"}, "pending"}, // a failed job's reason is of an earlier wait
		{jobs.Filter{Cause: "timeout"}, "pending"},
		{jobs.Filter{Cause: "gone"}, ""},
		{jobs.Filter{Statuses: []jobs.Status{jobs.Failed}, Since: noon.Add(2 * time.Hour)}, "2 3"},
	} {
		row.filter.Destination = b.dest
		page, err := b.List(ctx, jobs.ListOptions{Filter: row.filter})
		b.must(err)
		var got []string
		for _, j := range page.Items {
			got = append(got, j.ID)
		}
		slices.Sort(got)
		if diff := cmp.Diff(row.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%+v (-want +got)\n%s", row.filter, diff)
		}
		n, err := b.CountWhere(ctx, jobs.ActionRetry, row.filter)
		b.must(err)
		if want := len(strings.Fields(strings.ReplaceAll(row.want, "pending", ""))); n != want {
			t.Errorf("%+v: %d can be retried, want %d", row.filter, n, want)
		}
	}
	sum, err := b.ActWhere(ctx, jobs.ActionRetry, jobs.Filter{Error: "album"})
	b.must(err)
	if sum.Done != 2 || b.get("0").Status != jobs.Pending || b.get("2").Status != jobs.Failed {
		t.Errorf("%+v", sum)
	}
	for want, f := range map[string]jobs.Filter{"error": {Error: strings.Repeat("x", 501)}, "cause": {Cause: "Rate limited"}, "until": {Since: noon, Until: noon}} {
		if _, err := b.List(ctx, jobs.ListOptions{Filter: f}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
