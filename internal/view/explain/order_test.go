package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A job that waits behind another one of its key says what that one does.
func TestOrder(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	worker := fmt.Sprintf(`{"seen_at":%d,"destinations":["shop"]}`, now.UnixMilli())
	if err := rdb.HSet(t.Context(), store.DefaultNamespace.WorkersKey(), "host:1", worker).Err(); err != nil {
		t.Fatal(err)
	}
	queue := store.DefaultNamespace.Queue("shop", store.Default)
	// set writes fields of a job's record, as the scripts do for a job in a line.
	set := func(id string, fields ...any) {
		t.Helper()
		if err := rdb.HSet(t.Context(), store.TaskKey(queue, id), fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name      string
		first     []any // what its record says of the first job of the key
		want      string
		wantBrief string
	}{
		{"runs", []any{"state", "active", "by", "host:1"}, "which is running", "which is running"},
		{"retries", []any{"state", "retry", "available_at", now.Add(150 * time.Second).UnixMilli(), "reason", "retry 1 3 timeout"}, "which retries in 2m30s, at ", "which waits for its retry"},
		{"deferred", []any{"state", "scheduled", "available_at", now.Add(time.Minute).UnixMilli(), "reason", "publisher"}, "which waits: rescheduled by its handler: starts in 1m, at ", "which waits"},
		{"due", []any{"state", "pending"}, "which waits for a call", "which waits for a call"},
		{"paused", []any{"state", "paused", "action_by", "ann"}, "which is paused by ann until it is resumed", "which is paused"},
		{"failed", []any{"state", "failed", "ended_at", now.UnixMilli()}, "which failed: retry or cancel that job, and the jobs of key runs go on", "which failed: retry or cancel that job"},
		{"ended", []any{"state", "completed"}, "which has just ended", "which has just ended"},
	} {
		key, ids := row.name, []string{row.name + "-1", row.name + "-2", row.name + "-3"}
		for i, id := range ids {
			if _, err := client.Enqueue(t.Context(), jobs.New("shop", 1, jobs.ID(id), jobs.Key(key), jobs.Order(jobs.OrderKey))); err != nil {
				t.Fatal(err)
			}
			set(id, store.FieldLine, "block "+key)
			if i > 0 {
				set(id, store.FieldState, store.StateWaiting)
			}
			if err := rdb.ZAdd(t.Context(), store.LineKey(queue, key), redis.Z{Score: float64(i), Member: id}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set(ids[0], row.first...)
		for ahead, id := range ids[1:] {
			job, err := client.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if job.Status != jobs.Waiting || job.Order != jobs.OrderKey || job.Reason != "waiting behind another job of key "+key {
				t.Errorf("%s is %s, order %q, reason %q", id, job.Status, job.Order, job.Reason)
			}
			e := New(rdb, client)
			w, err := e.Waiting(t.Context(), job)
			if err == nil {
				err = e.Place(t.Context(), job, w)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := "waiting behind " + ids[0] + " of the same key, " + strings.ReplaceAll(row.want, "key runs", "key "+key)
			end := ""
			if ahead == 1 {
				end = "; 2 jobs of its key are ahead"
			}
			if w.Reason != Order || !strings.HasPrefix(w.Text, want) || !strings.HasSuffix(w.Text, end) || w.KeyAhead == nil || *w.KeyAhead != ahead+1 {
				t.Errorf("%s: %+v, want %s", id, w, want)
			}
			if want := "waiting behind " + ids[0] + ", " + row.wantBrief; w.Brief() != want {
				t.Errorf("%s: %q, want %q", id, w.Brief(), want)
			}
		}
	}
	first, err := client.Get(t.Context(), "failed-1")
	if err != nil || !first.Blocks {
		t.Errorf("the failed job is not said to block its key: %v", err)
	}

	// A job whose parents have not completed waits for them, and its key comes later.
	child, err := client.Enqueue(t.Context(), jobs.New("shop", 1, jobs.ID("child"), jobs.Key("due"), jobs.After("due-1")))
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(rdb, client).Waiting(t.Context(), child)
	if err != nil || w.Reason != Parents {
		t.Errorf("%+v, %v", w, err)
	}

	// The first job has ended, and the next one is not put into the queue yet: there may be no first one at all.
	if err := rdb.Del(t.Context(), store.LineKey(queue, "runs")).Err(); err != nil {
		t.Fatal(err)
	}
	last, err := client.Get(t.Context(), "runs-3")
	if err != nil {
		t.Fatal(err)
	}
	e := New(rdb, client)
	if w, err = e.Waiting(t.Context(), last); err == nil {
		err = e.Place(t.Context(), last, w)
	}
	if err != nil || w.Text != "waiting behind another job of key runs" {
		t.Errorf("%+v, %v", w, err)
	}

	// A page reads the orders of some keys, and explains the jobs of others without the first job.
	e = New(rdb, client)
	for i := range mostOrders {
		e.orders[fmt.Sprint(i)] = nil
	}
	due, err := client.Get(t.Context(), "due-2")
	if err != nil {
		t.Fatal(err)
	}
	if w, err = e.Waiting(t.Context(), due); err != nil || w.Text != "waiting behind another job of key due" {
		t.Errorf("%+v, %v", w, err)
	}
	eta, err := client.ETA(t.Context(), due, jobs.Place{})
	if err != nil || eta.At != nil || eta.Because != "it waits behind another job of its key" {
		t.Errorf("%+v, %v", eta, err)
	}
}
