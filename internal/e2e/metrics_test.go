package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// counted is what a fleet has done, as somebody says.
type counted struct {
	Attempts, Probes, Finished, Rescheduled, Retries map[string]float64
	Incidents                                        map[string]float64
	Wasted, Exhausted, Expired                       float64
	Durations, Delays, TTLs                          float64 // how many were observed
}

// countedBy adds up what workers say of a destination.
func countedBy(workers []*worker, destination string) counted {
	s := sums(workers)
	of := func(metric string) map[string]float64 { return nonzero(s.of(metric, destination)) }
	one := func(metric string) float64 { return s.of(metric, destination)[""] }
	return counted{
		Attempts: of("tidegate_publish_attempts_total"), Probes: of("tidegate_circuit_breaker_probes_total"),
		Finished: of("tidegate_jobs_finished_total"), Rescheduled: of("tidegate_jobs_rescheduled_total"),
		Retries: of("tidegate_job_retries_total"),
		Wasted:  one("tidegate_wasted_calls_total"), Incidents: of("tidegate_circuit_breaker_incidents_total"),
		Exhausted: one("tidegate_job_retries_exhausted_total"), Expired: one("tidegate_jobs_expired_total"),
		Durations: one("tidegate_publish_duration_seconds_count"), Delays: one("tidegate_reschedule_delay_seconds_count"),
		TTLs: one("tidegate_job_ttl_seconds_count"),
	}
}

// agree waits until the workers say what others have counted: they count when the
// bookkeeping is done, a moment after the API has seen the call.
func agree(t *testing.T, workers []*worker, destination string, want counted) {
	t.Helper()
	var diff string
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if diff = cmp.Diff(want, countedBy(workers, destination)); diff == "" || time.Now().After(deadline) {
			break
		}
	}
	if diff != "" {
		t.Errorf("what the fleet says of itself (-counted by others +said)\n%s", diff)
	}
}

// statsCounts are the counts by status that `tidegate stats` prints.
func (f *fleet) statsCounts() map[string]float64 {
	f.t.Helper()
	out, stderr, code := f.tidegate("stats", "--destination", f.dest, "-o", "json")
	var printed struct {
		Items []struct{ Counts map[string]float64 }
	}
	if err := json.Unmarshal([]byte(out), &printed); err != nil || len(printed.Items) != 1 {
		f.t.Fatalf("stats: exit %d: %q %s (%v)", code, out, stderr, err)
	}
	return printed.Items[0].Counts
}

// The main job: what the metrics of three processes add up to is what the API has
// counted, what the breaker has on record and what stands with the jobs.
func TestMetricsAgreeWithTheAPI(t *testing.T) {
	t.Parallel()
	const n, lasting = 200, 50
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 60, Window: 2 * time.Second},
		Latency: 20 * time.Millisecond,
	})
	workers := []*worker{f.start(), f.start(), f.start()}
	before := workers[0].scrape()
	ids := f.enqueue(n)
	stay := f.enqueue(lasting, jobs.Delay(time.Hour))
	f.waitAccepted(n, 60*time.Second)
	f.waitCompleted(ids, 10*time.Second)
	f.exactlyOnce(ids)
	redistest.Await(t, 2*time.Minute, "closed at the end", func() bool { return f.state() == breaker.Closed })

	api := f.api.Stats()
	incidents, err := breaker.Incidents(t.Context(), f.rdb, f.dest, 0)
	if err != nil {
		t.Fatal(err)
	}
	failedProbes, causes := 0, map[string]float64{}
	for _, in := range incidents {
		failedProbes += in.Probes
		causes[in.Cause]++
	}
	passedProbes := 0
	for _, e := range f.history() {
		if e.From == breaker.HalfOpen && e.To == breaker.Closed {
			passedProbes++
		}
	}
	putOff := 0
	for _, id := range ids {
		putOff += f.job(id).RescheduleCount
	}
	if api.Limited == 0 || len(incidents) < 2 {
		t.Errorf("%d calls refused in %d incidents prove little", api.Limited, len(incidents))
	}
	want := counted{
		Attempts:    nonzero(map[string]float64{"success": n, "rate_limited": float64(api.Limited)}),
		Probes:      nonzero(map[string]float64{"success": float64(passedProbes), "rate_limited": float64(failedProbes)}),
		Finished:    map[string]float64{"completed": n},
		Rescheduled: nonzero(map[string]float64{"rate_limited": float64(api.Limited), "breaker": float64(putOff - api.Limited)}),
		Retries:     map[string]float64{},
		Wasted:      float64(api.Limited), Incidents: causes,
		Durations: float64(api.Calls), Delays: float64(putOff),
	}
	agree(t, workers, f.dest, want)

	stats := f.statsCounts()
	if stats["completed"] != n || stats["pending"] != lasting {
		t.Errorf("stats: %v", stats)
	}
	for i, w := range workers {
		// What was read from Redis may be five seconds old.
		var s series
		redistest.Await(t, 2*time.Minute, "the gauges of jobs", func() bool {
			s = w.scrape()
			return cmp.Equal(stats, s.of("tidegate_jobs", f.dest))
		})
		got := map[string]map[string]float64{}
		for _, name := range []string{
			"tidegate_circuit_breaker_state", "tidegate_circuit_breaker_failures", "tidegate_circuit_breaker_cooldown_remaining_seconds",
			"tidegate_circuit_breaker_open_keys", "tidegate_jobs_ready", "tidegate_jobs_held", "tidegate_jobs_near_expiration",
			"tidegate_oldest_pending_age_seconds", "tidegate_destination_paused", "tidegate_jobs_in_hand", "tidegate_worker_concurrency",
			"tidegate_worker_fetching",
		} {
			got[strings.TrimPrefix(name, "tidegate_")] = nonzero(s.of(name, f.dest))
		}
		want := map[string]map[string]float64{
			"circuit_breaker_state": {"closed": 1}, "circuit_breaker_failures": {}, "circuit_breaker_cooldown_remaining_seconds": {},
			"circuit_breaker_open_keys": {}, "jobs_ready": {}, "jobs_held": {}, "jobs_near_expiration": {},
			"oldest_pending_age_seconds": {}, "destination_paused": {}, "jobs_in_hand": {}, "worker_concurrency": {"": 10},
			"worker_fetching": {"": 1},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("worker %d, gauges at rest (-want +got)\n%s", i, diff)
		}
		if s["tidegate_redis_up"] != 1 || s["go_goroutines"] == 0 || s["process_resident_memory_bytes"] == 0 {
			t.Errorf("worker %d: redis_up %v, %v goroutines, %v bytes", i, s["tidegate_redis_up"], s["go_goroutines"], s["process_resident_memory_bytes"])
		}
	}
	// What has been counted stays so, and no job has made a series of its own.
	agree(t, workers, f.dest, want)
	others := cmpopts.IgnoreSliceElements(func(name string) bool {
		return name == "tidegate_jobs_unserved" || // of what other tests leave in this Redis
			strings.HasPrefix(name, "tidegate_limit_") || strings.HasPrefix(name, "tidegate_learned_limit_") // missing until learned
	})
	if diff := cmp.Diff(before.metricsOf("tidegate_"), workers[0].scrape().metricsOf("tidegate_"), others); diff != "" {
		t.Errorf("metrics before and after (-before +after)\n%s", diff)
	}
	for name := range workers[0].scrape() {
		if strings.HasPrefix(name, "tidegate_") && (strings.Contains(name, ids[0]) || strings.Contains(name, stay[0])) {
			t.Errorf("a job in a series: %s", name)
		}
	}
	t.Logf("%d calls, %d refused, %d incidents, %d failed probes, %d put off", api.Calls, api.Limited, len(incidents), failedProbes, putOff)
}
