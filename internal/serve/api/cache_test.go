package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// commands counts what Redis ran since ResetStats, scripts as one and what they call.
func (b *bench) commands(t *testing.T) (n int64) {
	t.Helper()
	for name, calls := range b.redis.CommandStats(t) {
		if !strings.HasPrefix(name, "config") && name != "info" {
			n += calls
		}
	}
	return n
}

// Many callers cost Redis about as much as one caller, and each sees its own earlier writes.
func TestStatisticsAreShared(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	paths := []string{"/v1/stats", "/v1/destinations", "/v1/breakers"}
	count := func(callers int) (n, seconds int64) {
		b.post(t, "/v1/destinations/shop/resume", "").ok(t, http.StatusOK) // nothing is cached
		b.redis.ResetStats(t)
		began := time.Now()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for _, path := range paths {
					b.get(t, path).ok(t, http.StatusOK)
				}
			})
		}
		all.Wait()
		return b.commands(t), 1 + int64(time.Since(began)/time.Second)
	}
	count(1) // scripts are loaded
	one, _ := count(1)
	if many, seconds := count(100); many > 2*seconds*one {
		t.Errorf("100 callers cost %d commands in %d s, one costs %d", many, seconds, one)
	}
	shows := func(path, want string) {
		t.Helper()
		if answer := b.get(t, path); !strings.Contains(answer.body, want) {
			t.Errorf("%s lacks %s: %s", path, want, answer.body)
		}
	}
	for i := range 10 {
		b.post(t, "/v1/destinations/shop/pause", "").ok(t, http.StatusOK)
		shows("/v1/destinations", `"paused":true`)
		b.post(t, "/v1/destinations/shop/resume", "").ok(t, http.StatusOK)
		if answer := b.get(t, "/v1/stats"); strings.Contains(answer.body, `"paused":true`) {
			t.Errorf("paused after the resume: %s", answer.body)
		}
		b.post(t, "/v1/breakers/shop/trip", "").ok(t, http.StatusOK)
		shows("/v1/breakers", `"state":"OPEN"`)
		shows("/v1/stats", `"state":"OPEN"`)
		b.post(t, "/v1/breakers/shop/reset", "").ok(t, http.StatusOK)
		b.post(t, "/v1/jobs", `{"destination":"stock","payload":1}`)
		shows("/v1/stats", fmt.Sprintf(`"backlog":%d`, i+1))
	}
}

// Callers that enqueue see their jobs at once.
func TestEnqueuesAreNoReads(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 3 {
		b.post(t, "/v1/jobs", `{"destination":"stock","payload":1}`, "Name", "shop").ok(t, http.StatusCreated)
		want := fmt.Sprintf(`"backlog":%d`, i+1)
		if answer := b.get(t, "/v1/stats", "Name", "shop"); !strings.Contains(answer.body, want) {
			t.Errorf("lacks %s: %s", want, answer.body)
		}
	}
}

// The statistics of 1,000 destinations, ten of them with jobs, take a bounded number of
// commands and round trips.
func TestStatisticsOfAThousandDestinations(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	names := make([]string, 1000)
	var specs []*jobs.Spec
	for i := range names {
		names[i] = fmt.Sprint("d", i)
		if i%100 == 0 {
			specs = append(specs, jobs.New(names[i], 1))
		}
	}
	client, err := jobs.NewClient(b.rdb, jobs.WithDestinations(names...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.EnqueueMany(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Stats(t.Context(), ""); err != nil { // scripts are loaded
		t.Fatal(err)
	}
	b.redis.ResetStats(t)
	stats, err := client.Stats(t.Context(), "")
	if err != nil || len(stats) != 1000 {
		t.Fatalf("%d destinations, %v", len(stats), err)
	}
	backlog := 0
	for _, s := range stats {
		backlog += s.Backlog
	}
	if n := b.commands(t); backlog != 10 || n > 1000 {
		t.Errorf("%d jobs by %d commands, want 10 by at most 1,000", backlog, n)
	}
}
