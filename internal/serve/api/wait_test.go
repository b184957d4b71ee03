package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// later makes a request meanwhile.
func (b *bench) later(t *testing.T, path string) <-chan got {
	t.Helper()
	c := make(chan got, 1)
	go func() { c <- b.get(t, path) }()
	return c
}

func TestWaitForAJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", nil, "a", "b")
	var waits []<-chan got
	for range 20 {
		waits = append(waits, b.later(t, "/v1/jobs/a?wait=1m"))
	}
	if got := decode[jobAnswer](t, b.get(t, "/v1/jobs/b?wait=50ms").ok(t, http.StatusOK)); got.Status != jobs.Pending || got.Waiting == nil {
		t.Errorf("after the time: %+v", got)
	}
	select {
	case got := <-waits[0]:
		t.Fatalf("did not wait: %s", got.body)
	default:
	}
	if err := b.client.Cancel(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, wait := range append(waits, b.later(t, "/v1/jobs/a?wait=1m")) {
		if got := decode[jobAnswer](t, (<-wait).ok(t, http.StatusOK)); got.Status != jobs.Cancelled {
			t.Errorf("got %+v", got)
		}
	}
	for _, wait := range []string{"x", "-1s", "6m"} {
		if got := b.get(t, "/v1/jobs/b?wait="+wait); got.status != http.StatusUnprocessableEntity || !strings.Contains(got.body, "query.wait") {
			t.Errorf("%s: %d %s", wait, got.status, got.body)
		}
	}
	b.get(t, "/v1/jobs/none?wait=1m").ok(t, http.StatusNotFound)
}

func TestWaitForABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", []jobs.Option{jobs.Batch("monday")}, "a", "b")
	if got := decode[ops.Batch](t, b.get(t, "/v1/batches/monday?wait=50ms").ok(t, http.StatusOK)); got.Done {
		t.Errorf("after the time: %+v", got)
	}
	wait := b.later(t, "/v1/batches/monday?wait=1m")
	for _, id := range []string{"a", "b"} {
		if err := b.client.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if got := decode[ops.Batch](t, (<-wait).ok(t, http.StatusOK)); !got.Done || got.Counts[jobs.Cancelled] != 2 {
		t.Errorf("got %+v", got)
	}
	b.get(t, "/v1/batches/none?wait=1m").ok(t, http.StatusNotFound)
}

// More than a bounded number do not wait, and others go on.
func TestTooManyWaiters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", nil, "a")
	const over = 3
	answers := make(chan got, mostWaiters)
	for range mostWaiters/2 + over {
		go func() { answers <- b.get(t, "/v1/jobs/a?wait=50s") }()
	}
	for range over {
		(<-answers).ok(t, http.StatusServiceUnavailable)
	}
	b.get(t, "/v1/jobs/a").ok(t, http.StatusOK)
	b.get(t, "/v1/jobs/a?wait=10ms", "Name", "eve").ok(t, http.StatusOK)
	if err := b.client.Cancel(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range mostWaiters / 2 {
		(<-answers).ok(t, http.StatusOK)
	}
}

func TestBatchJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 2*batchPage + 5 {
		b.add(t, "shop", []jobs.Option{jobs.Batch("monday"), jobs.Delay(time.Hour)}, fmt.Sprint("j", i))
	}
	b.add(t, "shop", nil, "other")
	got := b.get(t, "/v1/batches/monday/jobs").ok(t, http.StatusOK)
	if kind := got.header.Get("Content-Type"); kind != ndjsonType {
		t.Errorf("type %s", kind)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(got.body) {
		var j jobAnswer
		if err := json.Unmarshal([]byte(line), &j); err != nil || j.Batch != "monday" || strings.Contains(line, `"payload"`) || !strings.Contains(line, `"waiting":{"reason":"scheduled"`) {
			t.Fatalf("%v: %s", err, line)
		}
		seen[j.ID] = true
	}
	if len(seen) != 2*batchPage+5 {
		t.Errorf("%d jobs", len(seen))
	}
	b.get(t, "/v1/batches/none/jobs").ok(t, http.StatusNotFound)
	b.get(t, "/v1/batches/monday/jobs", "As", "enqueue").ok(t, http.StatusForbidden)
}
