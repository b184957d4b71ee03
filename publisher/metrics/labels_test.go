package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// names are the series of a scrape, each with all its labels. Of a histogram it is one.
func names(values map[string]float64) []string {
	seen := map[string]bool{}
	var out []string
	for name := range values {
		base, _, _ := strings.Cut(name, "_bucket{")
		if base = strings.TrimSuffix(base, "_count"); !seen[base] {
			seen[base] = true
			out = append(out, base)
		}
	}
	return out
}

// No job, key, batch or worker makes a series: after 400 jobs of 100 keys there are as
// many as before the first.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	const keys = 100
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	in := r.make(metrics.Options{}, func(_ context.Context, j *jobs.Job) error {
		switch {
		case j.RescheduleCount > 0:
			return nil
		case strings.HasSuffix(j.Key, "7"):
			return jobs.RateLimited(time.Second) // without a scope it is the key that is limited
		case strings.HasSuffix(j.Key, "8"):
			return fmt.Errorf("boom %s of %s", j.ID, j.Key)
		case strings.HasSuffix(j.Key, "9"):
			return jobs.Reschedule(0)
		}
		return nil
	}, breaker.Options{}, publisher.Concurrency(20)).run()
	before := names(in.values())
	var ids []string
	for k := range keys {
		ids = append(ids, r.enqueueMany(4, jobs.Key(fmt.Sprintf("key-%d", k)), jobs.Batch(fmt.Sprintf("batch-%d", k)), jobs.TTL(time.Duration(k+10)*time.Minute))...)
	}
	for i, id := range ids {
		want := jobs.Completed
		if (i/4)%10 == 8 {
			want = jobs.Failed
		}
		r.ended(id, want)
	}
	after := in.values()
	if diff := cmp.Diff(slices.Sorted(slices.Values(before)), slices.Sorted(slices.Values(names(after)))); diff != "" {
		t.Errorf("series (-before +after)\n%s", diff)
	}
	if after[`publish_attempts_total{result="rate_limited"}`] == 0 || after[`publish_attempts_total{result="failure"}`] != 40 {
		t.Errorf("not what was meant to happen has: %v", nonzero(after))
	}
}

// Retries are told apart up to the tenth.
func TestLateRetriesShareALabel(t *testing.T) {
	t.Parallel()
	m := newBare(t)
	var o publisher.Options
	m.Observe(&o)
	for attempt := range 25 {
		o.Observers[0].OnJob(publisher.JobEvent{Destination: "d", Job: &jobs.Job{Attempt: attempt}, Result: publisher.Retried})
	}
	families, err := m.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "tidegate_job_retries_total" {
			continue
		}
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				if l.GetName() == "attempt" {
					got[l.GetValue()] = s.GetCounter().GetValue()
				}
			}
		}
	}
	want := map[string]float64{"1": 1, "2": 1, "3": 1, "4": 1, "5": 1, "6": 1, "7": 1, "8": 1, "9": 1, "10": 1, "more": 15}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("retries (-want +got)\n%s", diff)
	}
}

// Poison is counted with the failed.
func TestPoison(t *testing.T) {
	t.Parallel()
	m := newBare(t)
	var o publisher.Options
	m.Observe(&o)
	o.Observers[0].OnJob(publisher.JobEvent{Destination: "d", Job: &jobs.Job{Crashes: 3}, Result: publisher.FailedFinal, Poison: true})
	if n, all := m.count("tidegate_jobs_poisoned_total"), m.count("tidegate_jobs_finished_total"); n != 1 || all != 1 {
		t.Errorf("%v poisoned of %v finished, want 1 of 1", n, all)
	}
}

// A TTL is counted as it was given, though a job is made a moment before its expiry is
// reckoned.
func TestTTLOfARoundTime(t *testing.T) {
	t.Parallel()
	m := newBare(t)
	var o publisher.Options
	m.Observe(&o)
	made := time.Now()
	expires := made.Add(time.Hour + 7*time.Millisecond)
	o.Observers[0].OnJob(publisher.JobEvent{Destination: "d", Job: &jobs.Job{CreatedAt: made, ExpiresAt: &expires}, Result: publisher.Completed})
	want := "tidegate_job_ttl_seconds_bucket{destination=\"d\",le=\"3600\"} 1"
	w := httptest.NewRecorder()
	promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	if !strings.Contains(w.Body.String(), want) {
		t.Errorf("want %s in\n%s", want, w.Body)
	}
}

// What people are sent is counted by receiver and kind, arrived or not.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	m := newBare(t)
	m.OnDelivery("slack", "message", nil)
	m.OnDelivery("slack", "update", nil)
	m.OnDelivery("slack", "message", fmt.Errorf("no"))
	if sent, failed := m.count("tidegate_alerts_sent_total"), m.count("tidegate_alerts_failed_total"); sent != 2 || failed != 1 {
		t.Errorf("%v sent and %v failed, want 2 and 1", sent, failed)
	}
}

// Tidegate's own destinations are in no metric.
func TestSystemDestinationsAreLeftOut(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	in := r.make(metrics.Options{}, nil, breaker.Options{})
	err := in.p.Handle(store.AlertsDestination, publisher.Func(func(context.Context, *jobs.Job) error { return nil }))
	r.must(err)
	in.m.Watch(in.p)
	in.run()
	own, err := jobs.NewClient(r.rdb, jobs.WithLogger(silent))
	r.must(err)
	j, err := own.Enqueue(store.AsSystem(t.Context()), jobs.New(store.AlertsDestination, 1, jobs.TTL(time.Hour)))
	r.must(err)
	redistest.Eventually(t, "delivered", func() bool {
		got, err := own.Get(t.Context(), j.ID)
		return err == nil && got.Status == jobs.Completed
	})
	r.ended(r.enqueue(nil), jobs.Completed)
	redistest.Eventually(t, "counted", func() bool { return in.values()[`jobs_finished_total{status="completed"}`] == 1 })
	for name := range in.values() {
		if strings.Contains(name, "destination=") {
			t.Errorf("a series of another destination: %s", name)
		}
	}
}
