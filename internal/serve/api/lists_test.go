package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

// Lists leave payloads where they are: neither Redis sends them nor does the API hold them.
// It does not run in parallel: it measures what the process allocates.
func TestListsDoNotReadPayloads(t *testing.T) { //nolint:paralleltest // see above
	const (
		stored = 300
		lists  = 10
	)
	b := newBench(t)
	payload := strings.Repeat("x", 250_000)
	for i := range stored {
		if _, err := b.client.Enqueue(t.Context(), jobs.New("shop", payload, jobs.ID("job-"+strconv.Itoa(i)))); err != nil {
			t.Fatal(err)
		}
	}
	b.get(t, "/v1/jobs?limit=1").ok(t, http.StatusOK) // scripts are loaded
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sent := b.sent(t)
	began := time.Now()
	var all sync.WaitGroup
	for range lists {
		all.Go(func() {
			answer := b.get(t, "/v1/jobs?limit=1000")
			if got := strings.Count(answer.body, `"id":"job-`); answer.status != http.StatusOK || got != stored {
				t.Errorf("status %d, %d jobs, want %d: %.200s", answer.status, got, stored, answer.body)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	sent = b.sent(t) - sent
	runtime.ReadMemStats(&after)
	cost := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d lists of %d jobs of 250 kB: %d kB allocated, heap grown by %d kB, Redis sent %d kB, %v",
		lists, stored, cost>>10, (int64(after.HeapSys)-int64(before.HeapSys))>>10, sent>>10, took)
	if most := uint64(lists*stored) * 40 << 10; cost > most {
		t.Errorf("%d MB were allocated, want %d at most", cost>>20, most>>20)
	}
	if most := int64(lists*stored) * 2 << 10; sent > most {
		t.Errorf("Redis sent %d kB, want %d at most", sent>>10, most>>10)
	}
}

// sent is how many bytes Redis has sent to its clients.
func (b *bench) sent(t *testing.T) int64 {
	t.Helper()
	info, err := b.rdb.Info(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut(info, "total_net_output_bytes:")
	value, _, _ = strings.Cut(value, "\r\n")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Lists in progress are bounded, by name too, and those beyond are told when to come again.
// What they hold is given back with the answer.
func TestListsInProgressAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", nil, "a")
	a := build(Options{Redis: b.rdb, Client: b.client})
	const long = listMemory + jobs.MaxPage*listedMemory
	a.lists = newRoom(2 * long) // half of it for one name: one long list
	few := &bench{url: serve(t, as(a))}
	// What is left does for the jobs of a short one alone.
	leave := a.lists.enter(access.With(t.Context(), access.Identity{Name: "ann"}), long-listMemory)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(access.With(ctx, access.Identity{Name: "ann", Scopes: []access.Scope{access.ScopeOperate}}), http.MethodGet, "/v1/jobs?limit=1", nil)
	cancel() // it waits no longer
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "too many lists") {
		t.Errorf("beyond the bound: %d, Retry-After %q, %s", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
	few.get(t, "/v1/jobs?limit=1000", "Name", "bob").ok(t, http.StatusOK)
	leave()
	for range 5 {
		few.get(t, "/v1/jobs?limit=1000").ok(t, http.StatusOK)
	}
	if !a.lists.all.TryAcquire(2 * long) {
		t.Error("not all was given back")
	}
}
