package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// everything is a request of each kind.
var everything = [][3]string{
	{"POST", "/v1/jobs", `{"destination":"shop","payload":1}`},
	{"POST", "/v1/jobs", `[{"destination":"shop","payload":1}]`},
	{"GET", "/v1/jobs/a", ""},
	{"GET", "/v1/jobs", ""},
	{"GET", "/v1/jobs/a/history", ""},
	{"GET", "/v1/batches/a", ""},
	{"POST", "/v1/jobs/a/cancel", ""},
	{"POST", "/v1/jobs/cancel", `{"destination":"shop"}`},
	{"POST", "/v1/jobs/cancel", `{"destination":"shop","dry_run":true}`},
	{"GET", "/v1/breakers", ""},
	{"GET", "/v1/breakers/shop", ""},
	{"GET", "/v1/breakers/shop/incidents", ""},
	{"POST", "/v1/breakers/shop/trip", ""},
	{"POST", "/v1/breakers/shop/reset", ""},
	{"GET", "/v1/limits", ""},
	{"GET", "/v1/limits/shop", ""},
	{"POST", "/v1/limits/shop/forget", ""},
	{"POST", "/v1/destinations/shop/pause", ""},
	{"GET", "/v1/destinations", ""},
	{"GET", "/v1/workers", ""},
	{"GET", "/v1/stats", ""},
}

// Without Redis everything says so, and when to come again.
func TestRedisGone(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newBench(t)
	b.get(t, "/v1/stats").ok(t, http.StatusOK)
	b.redis.Stop()
	address := b.redis.Addr()
	for _, row := range everything {
		answer := b.call(t, row[0], row[1], row[2])
		p := answer.problem(t, http.StatusServiceUnavailable)
		if answer.header.Get("Retry-After") != "5" || !strings.HasSuffix(p.Detail, "; try again later") || strings.Contains(answer.body, address) {
			t.Errorf("%s %s: Retry-After %q, %s", row[0], row[1], answer.header.Get("Retry-After"), answer.body)
		}
	}
	p := b.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`, "Content-Type", ndjsonType).problem(t, http.StatusServiceUnavailable)
	if p.Progress == nil || *p.Progress != (Progress{}) {
		t.Errorf("progress %+v", p.Progress)
	}
	// What was tried is told, too.
	b.audited(t, []string{
		`action="cancel jobs" name=ann target=a count=0 refused=0 result=failed reason=""`,
		`action="cancel jobs" name=ann target="jobs of shop" count=0 refused=0 result=failed reason=""`,
		`action="pause destination" name=ann target=shop result=failed reason=""`,
	})
	b.redis.Restart()
	redistest.Eventually(t, "Redis", func() bool { return b.get(t, "/v1/stats").status == http.StatusOK })
}

// A full Redis takes no more jobs, and the response reports the jobs that it took before.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{redis: []redistest.Option{redistest.WithArgs("--maxmemory", "12mb", "--maxmemory-policy", "noeviction")}})
	var lines strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&lines, `{"id":"job-%d","destination":"shop","payload":"%s"}`+"\n", i, strings.Repeat("x", 400))
	}
	answer := b.post(t, "/v1/jobs", lines.String(), "Content-Type", ndjsonType)
	p := answer.problem(t, http.StatusServiceUnavailable)
	if answer.header.Get("Retry-After") != "5" || p.Detail != "Redis is full and takes nothing new; try again later" {
		t.Errorf("Retry-After %q, detail %q", answer.header.Get("Retry-After"), p.Detail)
	}
	if p.Progress == nil || p.Accepted == 0 || p.Accepted != p.Answered {
		t.Fatalf("progress %+v, want some accepted", p.Progress)
	}
	// Those that are answered are there, each of them.
	if _, err := b.client.Get(t.Context(), fmt.Sprintf("job-%d", p.Answered-1)); err != nil {
		t.Errorf("the last one that was answered: %v", err)
	}
	// What the last chunk did not get may be enough for one job: not any more.
	if err := b.rdb.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	one := b.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`).problem(t, http.StatusServiceUnavailable)
	if one.Detail != p.Detail {
		t.Errorf("detail %q", one.Detail)
	}
	array := b.post(t, "/v1/jobs", `[{"destination":"shop","payload":1}]`).problem(t, http.StatusServiceUnavailable)
	if array.Progress == nil || *array.Progress != (Progress{}) {
		t.Errorf("progress of the array %+v", array.Progress)
	}
	b.get(t, "/v1/jobs/job-0").ok(t, http.StatusOK)
}
