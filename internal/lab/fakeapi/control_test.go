package fakeapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
)

// get reads a control endpoint into doc.
func (c *caller) get(path string, doc any) {
	c.t.Helper()
	got, err := c.do(c.t.Context(), http.MethodGet, path, "")
	if err != nil {
		c.t.Fatal(err)
	}
	if got.Status != 200 || got.Header.Get("Content-Type") != "application/json" {
		c.t.Fatalf("GET %s: %d %s", path, got.Status, got.Body)
	}
	if err := json.Unmarshal([]byte(got.Body), doc); err != nil {
		c.t.Fatalf("GET %s: %v", path, err)
	}
}

// control posts to a control endpoint.
func (c *caller) control(path, body string) {
	c.t.Helper()
	if got := c.post(path, body); got.Status != 204 {
		c.t.Fatalf("POST %s: %d %s", path, got.Status, got.Body)
	}
}

func TestOtherProcessesSeeWhatTheAPINoted(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{})
	c.post("/a", `{"x":1}`, "Idempotency-Key", "k1", "Authorization", "Bearer s3cret")
	c.post("/b", "", "Idempotency-Key", "k2")

	var stats fakeapi.Stats
	c.get("/_fake/stats", &stats)
	if want := (fakeapi.Stats{Calls: 2, Accepted: 2, MaxInFlight: 1}); stats != want {
		t.Errorf("stats = %+v, want %+v (controls are no calls)", stats, want)
	}
	var accepted map[string]int
	c.get("/_fake/accepted", &accepted)
	if diff := cmp.Diff(map[string]int{"k1": 1, "k2": 1}, accepted); diff != "" {
		t.Errorf("accepted (-want +got):\n%s", diff)
	}
	var receipts []fakeapi.Receipt
	c.get("/_fake/receipts", &receipts)
	if diff := cmp.Diff(api.Receipts(), receipts); diff != "" {
		t.Errorf("receipts (-noted +told):\n%s", diff)
	}
}

func TestOtherProcessesChangeTheAPI(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{})
	c.control("/_fake/limit", `{"kind":"fixed-window","quota":2,"window":"1h"}`)
	if diff := cmp.Diff([]int{201, 201, 429}, c.statuses(3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.control("/_fake/hints", `["retry-after","x-ratelimit"]`)
	if got := c.post("/", ""); got.Header.Get("Retry-After") == "" || got.Header.Get("X-RateLimit-Limit") != "2" {
		t.Errorf("response with hints: %v", got.Header)
	}
	c.control("/_fake/limit", `{"kind":"none"}`)
	c.control("/_fake/latency", `"5ms"`)
	c.post("/", "")
	receipts := api.Receipts()
	if last := receipts[len(receipts)-1]; last.Status != 201 || last.Done.Sub(last.At) < 5*time.Millisecond {
		t.Errorf("call took %s, want at least 5ms; %d", last.Done.Sub(last.At), last.Status)
	}
	c.control("/_fake/reset", "")
	if got := api.Stats(); got != (fakeapi.Stats{}) {
		t.Errorf("stats after reset = %+v", got)
	}
}

func TestWrongControlsAreRefusedInWords(t *testing.T) {
	t.Parallel()
	api, c := start(t, fakeapi.Options{})
	for _, tt := range []struct{ path, body, want string }{
		{"/_fake/limit", `{"kind":"leaky"}`, `unknown kind "leaky"`},
		{"/_fake/limit", `{"kind":"fixed-window"}`, "quota is 0"},
		{"/_fake/limit", `{"kind":"fixed-window","qouta":1}`, "qouta"},
		{"/_fake/limit", `{"kind":"fixed-window","quota":1,"window":"long"}`, "long"},
		{"/_fake/hints", `["retry"]`, `unknown hint "retry"`},
		{"/_fake/latency", `"soon"`, "soon"},
	} {
		if got := c.post(tt.path, tt.body); got.Status != 400 || !strings.Contains(got.Body, tt.want) {
			t.Errorf("POST %s %s: %d %q, want 400 with %q", tt.path, tt.body, got.Status, got.Body, tt.want)
		}
	}
	if got := c.post("/_fake/nothing", "").Status; got != 404 {
		t.Errorf("unknown control: %d, want 404", got)
	}
	if got := c.statuses(1)[0]; got != 201 {
		t.Errorf("a call after wrong controls: %d, want 201 (nothing changed)", got)
	}
	if got := api.Stats().Calls; got != 1 {
		t.Errorf("calls = %d, want 1: controls are none", got)
	}
}
