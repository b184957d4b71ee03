package jobs_test

import (
	"context"
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
