package publisher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// An accepted job takes no slot: with a concurrency of one the next job runs. Its result ends it, and its child gets the
// output.
func TestAcceptedJobsTakeNoSlot(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.run(b.options(), func(_ context.Context, job *jobs.Job) error {
		if len(job.After) > 0 {
			return nil
		}
		return jobs.Accepted(time.Hour)
	}, publisher.Concurrency(1))
	ids := b.enqueueMany(3)
	child := b.enqueue(jobs.After(ids[0]))
	for range ids {
		if e := b.event(); e.Result != publisher.Accepted || e.Outcome != publisher.OutcomeAccepted || e.Err != nil || time.Until(e.AvailableAt) < 59*time.Minute {
			t.Errorf("event %+v", e)
		}
	}
	if s := b.breaker(); s.Failures != 0 {
		t.Errorf("breaker %+v", s)
	}
	if _, err := b.client.Complete(t.Context(), ids[0], jobs.Completion{Status: jobs.Completed, Output: json.RawMessage(`{"n":7}`)}, jobs.By("me")); err != nil {
		t.Fatal(err)
	}
	if e := b.result(child.ID); e.Result != publisher.Completed || string(e.Job.Parents[ids[0]].Output) != `{"n":7}` {
		t.Errorf("child %+v", e)
	}
	if r, err := b.client.Complete(t.Context(), ids[1], jobs.Completion{Status: jobs.Failed}); err != nil || !r.Done || r.Status != jobs.Running {
		t.Errorf("%+v, %v", r, err)
	}
	if job := b.get(ids[1]); job.Status != jobs.Failed || job.LastError != "failed" || job.AvailableAt != job.CreatedAt {
		t.Errorf("%+v", job)
	}
}

// A request carries the URL of its callback in a header of the destination and wherever the job says. Without an address
// nothing is called.
func TestCallbackInRequests(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{URL: a.URL, Header: http.Header{"X-Callback": {"<{{ callback }}>"}}})
	stop := b.runHandler(b.options(), h)
	job := b.enqueue()
	if e := b.result(job.ID); e.Result != publisher.FailedFinal || e.Called || e.LastError != "{{ callback }} needs the address at which the API reaches Tidegate: set PUBLIC_URL of the worker" {
		t.Errorf("without an address: %+v", e)
	}
	stop()
	o := b.options()
	o.PublicURL = "https://tidegate.example.com/"
	b.runHandler(o, h)
	job = b.enqueue(jobs.Path("/x"), jobs.Query("cb={{callback}}"), jobs.Header("X-Own", "{{ callback }}"))
	b.result(job.ID)
	r := a.Requests()[0]
	url := r.Header.Get("X-Own")
	if r.Header.Get("X-Callback") != "<"+url+">" || r.URL.Query().Get("cb") != url {
		t.Errorf("%q, %q, %q", r.Header.Get("X-Callback"), url, r.URL.Query().Get("cb"))
	}
	record := store.TaskKey(store.DefaultNamespace.Queue(b.dest, store.Default), job.ID)
	if token := url[len("https://tidegate.example.com/v1/completions/"):]; len(token) < 24 || strings.Contains(fmt.Sprint(b.rdb.HGetAll(t.Context(), record).Val()), token) {
		t.Errorf("token %q, which the record must not have", token)
	}
}
