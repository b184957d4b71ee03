package dashboard_test

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A payload that would take hundreds of megabytes with its lines indented costs the
// dashboard little more than its own size. It does not run in parallel: it measures what
// the process allocates.
func TestPayloadThatNestsDeeply(t *testing.T) { //nolint:paralleltest // see above
	const most = 8 << 20
	payloads := map[string]string{
		"brackets": strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
		"commas":   strings.Repeat("[", 60) + strings.Repeat("1,", 12_000) + "1" + strings.Repeat("]", 60),
	}
	for _, scope := range []access.Scope{access.ScopeRead, access.ScopePayloads} {
		s := open(t, scope, "shop")
		for name, payload := range payloads {
			s.enqueue("shop", json.RawMessage(payload), jobs.ID(name))
			s.get("/jobs/none") // connects
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			p := s.get("/jobs/" + name)
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			cost := after.TotalAlloc - before.TotalAlloc
			t.Logf("%s with scope %s: %d kB allocated, %v", name, scope, cost>>10, took)
			if cost > most {
				t.Errorf("%s with scope %s: the page of a payload of %d bytes took %d MB and %v", name, scope, len(payload), cost>>20, took)
			}
			p.shows(t, http.StatusOK, name)
			if shown := strings.Contains(p.text, payload); shown != (scope == access.ScopePayloads) {
				t.Errorf("%s with scope %s: the payload is shown: %v", name, scope, shown)
			}
		}
	}
}

// A payload is shown with its lines indented where that is short enough, and cut where it
// is long.
func TestPayloadIsShown(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.enqueue("shop", json.RawMessage(`{"a":["x, {\"y\"]",{}],"b":1}`), jobs.ID("short"))
	s.enqueue("shop", strings.Repeat("é", 20_000), jobs.ID("long"))
	p := s.get("/jobs/short")
	p.shows(t, http.StatusOK, "Payload 29 bytes", `{ "a": [ "x, {\"y\"]", {} ], "b": 1 }`)
	if err := s.rdb.HSet(t.Context(), store.TaskKey(store.DefaultNamespace.Queue("shop", store.Default), "short"), store.FieldOutput, `{"itemid":7}`).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the output is shown", func() bool {
		return strings.Contains(s.get("/jobs/short").text, `Output 12 bytes, for its children{ "itemid": 7 }`)
	})
	p = s.get("/jobs/long")
	p.shows(t, http.StatusOK, "Payload 40,002 bytes", "7,234 more bytes: tidegate get long -o json")
}

// A job's own retry policy is shown in seconds.
func TestRetryPolicyIsShown(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.enqueue("shop", 1, jobs.ID("patient"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 4 * time.Minute, MaxDelay: 10 * time.Minute}))
	s.get("/jobs/patient").shows(t, http.StatusOK, "0 of 3 after 240 s", "up to 600 s")
}

// A finished job shows the rule that decided, and to every viewer how it is called.
func TestRuleAndCallAreShown(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.enqueue("shop", map[string]string{"a": "b"}, jobs.ID("there"), jobs.Method("PUT"), jobs.Encode(jobs.EncodingForm), jobs.CallTimeout(5*time.Second))
	task := store.TaskKey(store.DefaultNamespace.Queue("shop", store.Default), "there")
	if err := s.rdb.HSet(t.Context(), task, store.FieldState, store.StateCompleted, store.FieldReason, "decided rule 2: it is there already").Err(); err != nil {
		t.Fatal(err)
	}
	s.get("/jobs/there").shows(t, http.StatusOK, "Reason decided by rule 2: it is there already", "Method PUT", "Encoding form", "Timeout of the call 5 s")
}
