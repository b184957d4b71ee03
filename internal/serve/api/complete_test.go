package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// accept has a worker call a job with a token, whose API accepts it.
func (b *bench) accept(t *testing.T, id string) (token string) {
	t.Helper()
	queue := store.DefaultNamespace.Queue("shop", store.Default)
	b.add(t, "shop", nil, id)
	reply, err := store.Fetch(t.Context(), b.rdb, store.FetchArgs{Queue: queue, Run: "host:1-" + id, Worker: "host:1", Max: 1})
	if err != nil || len(reply.Jobs) != 1 {
		t.Fatalf("fetched %+v, %v", reply, err)
	}
	terms := store.Terms{Retention: time.Hour, Timeout: -1, Explicit: -1}
	token, hash := store.NewToken(queue, id)
	if ok, err := store.Expect(t.Context(), b.rdb, queue, id, "host:1-"+id, hash, 0, terms); err != nil || !ok {
		t.Fatal(ok, err)
	}
	o := store.Outcome{Kind: store.KindAccept, At: time.Now().Add(time.Hour), Terms: terms.String(), Took: time.Second}
	if got, err := store.Apply(t.Context(), b.rdb, queue, id, "", o); err != nil || got.Kind != store.KindAccept {
		t.Fatal(got, err)
	}
	return token
}

func TestCompleteJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.accept(t, "a")
	b.add(t, "shop", nil, "pending")
	patch := func(id, body string, as ...string) got {
		return b.call(t, http.MethodPatch, "/v1/jobs/"+id, body, append([]string{"Content-Type", "application/json"}, as...)...)
	}
	shown := decode[ops.Job](t, b.get(t, "/v1/jobs/a").ok(t, http.StatusOK))
	if w := shown.Waiting; shown.Status != jobs.Running || w == nil || w.Reason != "accepted" || w.Until == nil || time.Until(*w.Until) < 59*time.Minute {
		t.Errorf("an accepted job: %s, %+v", shown.Status, w)
	}
	if list := b.list(t, "?status=running", 10); cmp.Diff([]string{"a"}, list) != "" {
		t.Errorf("running: %v", list)
	}
	decode[ActedOne](t, patch("a", `{"progress":{"percent":40},"extend":"1h"}`).ok(t, http.StatusOK))
	shown = decode[ops.Job](t, b.get(t, "/v1/jobs/a").ok(t, http.StatusOK))
	if string(shown.Progress) != `{"percent":40}` || time.Until(*shown.Waiting.Until) < 119*time.Minute {
		t.Errorf("progress %s, %+v", shown.Progress, shown.Waiting)
	}
	if body := b.get(t, "/v1/jobs/a", "As", "read").ok(t, http.StatusOK).body; strings.Contains(body, "percent") {
		t.Error("the scope read shows progress")
	}
	for body, location := range map[string]string{
		`{}`: "body.status", `{"status":"running"}`: "body.status", `{"status":"failed","output":1}`: "body.output",
		`{"status":"completed","error":"x"}`: "body.error", `{"extend":"0s"}`: "body.extend", `{"extend":"soon"}`: "body.extend",
		`{"status":"completed","extend":"1h"}`: "body.extend", `{"progress":"` + strings.Repeat("x", 5000) + `"}`: "body.progress",
	} {
		if p := patch("a", body).problem(t, http.StatusUnprocessableEntity); len(p.Errors) == 0 || p.Errors[0].Location != location {
			t.Errorf("%.60s: %+v", body, p)
		}
	}
	patch("a", `{"status":"completed"}`, "As", "read,enqueue").problem(t, http.StatusForbidden)
	patch("none", `{"status":"completed"}`).problem(t, http.StatusNotFound)
	patch("pending", `{"status":"completed"}`).problem(t, http.StatusConflict)
	for range 2 { // the same again is no error
		patch("a", `{"status":"completed","output":{"n":7}}`).ok(t, http.StatusOK)
	}
	patch("a", `{"status":"failed"}`).problem(t, http.StatusConflict)
	history := decode[ops.List[jobs.HistoryEntry]](t, b.get(t, "/v1/jobs/a/history").ok(t, http.StatusOK)).Items
	if last := history[len(history)-1]; last.Event != "completed" || last.By != "token:ann" || len(history) != 4 {
		t.Errorf("history %+v", history)
	}
}

func TestCompleteByToken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.accept(t, "a")
	stale, _ := store.NewToken(store.DefaultNamespace.Queue("shop", store.Default), "a")
	none, _ := store.NewToken(store.DefaultNamespace.Queue("shop", store.Default), "none")
	missing := b.post(t, "/v1/completions/"+none, `{"status":"completed"}`, "As", "nobody")
	for _, wrong := range []string{stale, "x", token + "A", strings.Repeat("A", 5000), "%00", token[:len(token)-1]} {
		p := b.post(t, "/v1/completions/"+wrong, `{"status":"completed"}`, "As", "nobody")
		if p.status != http.StatusNotFound || p.body != missing.body {
			t.Errorf("%.40s: %d %s, want what a job that does not exist gets: %s", wrong, p.status, p.body, missing.body)
		}
	}
	for range 2 {
		b.post(t, "/v1/completions/"+token, `{"status":"failed","error":"damaged"}`, "As", "nobody").ok(t, http.StatusOK)
	}
	b.post(t, "/v1/completions/"+token, `{"status":"completed"}`, "As", "nobody").problem(t, http.StatusGone)
	if job, err := b.client.Get(t.Context(), "a"); err != nil || job.Status != jobs.Failed || job.LastError != "damaged" {
		t.Errorf("%+v, %v", job, err)
	}
}

// A deadline that is moved again and again during the call leaves a job that can be read.
func TestDeadlineThatIsMovedFar(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	queue := store.DefaultNamespace.Queue("shop", store.Default)
	b.add(t, "shop", nil, "a")
	if _, err := store.Fetch(t.Context(), b.rdb, store.FetchArgs{Queue: queue, Run: "r1", Worker: "host:1", Max: 1}); err != nil {
		t.Fatal(err)
	}
	token, hash := store.NewToken(queue, "a")
	if _, err := store.Expect(t.Context(), b.rdb, queue, "a", "r1", hash, 0, store.Terms{Timeout: -1, Explicit: -1}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.post(t, "/v1/completions/"+token, `{"extend":"876000h"}`, "As", "nobody").ok(t, http.StatusOK)
	}
	if _, err := store.Apply(t.Context(), b.rdb, queue, "a", "r1", store.Outcome{Kind: store.KindAccept, At: time.Now().Add(time.Hour), Reason: store.ReasonAccepted}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/jobs/a", "/v1/jobs?status=running"} {
		if p := b.get(t, path); p.status != http.StatusOK || len(p.body) == 0 {
			t.Errorf("%s: %d %.200s", path, p.status, p.body)
		}
	}
}
