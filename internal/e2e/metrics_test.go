package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
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

// An API that fails in all its ways: metrics, API and jobs agree on that too.
func TestMetricsAgreeOnFailures(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{})
	f.env["DESTINATION_0_TIMEOUT"] = "1s"
	f.env["CIRCUIT_BREAKER_OUTAGE_THRESHOLD"] = "0" // that many jobs fail here
	mine := func(r *http.Request, path string) bool { return strings.HasPrefix(r.URL.Path, "/"+path) }
	flaky := map[string]int{} // calls by key; a script is asked about one call at a time
	f.api.SetScript(func(_ int, r *http.Request) *fakeapi.Answer {
		switch key := r.Header.Get("Idempotency-Key"); {
		case mine(r, "down"):
			return &fakeapi.Answer{Status: 503}
		case mine(r, "bad"):
			return &fakeapi.Answer{Status: 400}
		case mine(r, "slow"):
			return &fakeapi.Answer{Status: 201, Delay: time.Hour}
		case mine(r, "flaky"):
			if flaky[key]++; flaky[key] == 1 {
				return &fakeapi.Answer{Status: 500}
			}
		}
		return nil
	})
	workers := []*worker{f.start(), f.start(), f.start()}
	retry := func(n int) jobs.Option {
		return jobs.Retry(jobs.RetryPolicy{MaxRetries: n, InitialDelay: time.Second, BackoffMultiplier: 1, MaxDelay: time.Second})
	}
	groups := map[string][]string{
		"good":    f.enqueue(20, jobs.Path("/good"), jobs.TTL(time.Hour)),
		"flaky":   f.enqueue(6, jobs.Path("/flaky"), retry(3)),
		"down":    f.enqueue(3, jobs.Path("/down"), retry(2)),
		"once":    f.enqueue(2, jobs.Path("/down")),
		"bad":     f.enqueue(4, jobs.Path("/bad"), retry(3)),
		"slow":    f.enqueue(2, jobs.Path("/slow")),
		"expired": f.enqueue(5, jobs.Path("/never"), jobs.At(time.Now().Add(time.Hour)), jobs.TTL(100*time.Millisecond)),
	}
	want := map[string]jobs.Status{
		"good": jobs.Completed, "flaky": jobs.Completed, "down": jobs.Failed, "once": jobs.Failed, "bad": jobs.Failed,
		"slow": jobs.Failed,
	}
	for group, status := range want {
		for _, id := range groups[group] {
			redistest.Await(t, 2*time.Minute, fmt.Sprintf("%s job %s is %s", group, id, status), func() bool { return f.job(id).Status == status })
		}
	}
	// Of Redis itself, since whoever looks at an expired job ends it.
	redistest.Await(t, 2*time.Minute, "expired", func() bool {
		s, err := f.client.Survey(t.Context(), f.dest, time.Minute)
		return err == nil && s.Counts[jobs.Expired] == 5
	})
	api := f.api.Stats()
	if api.Accepted != 28 || api.Failed != 6+9+2+4 {
		t.Errorf("the API has counted %+v", api)
	}
	agree(t, workers, f.dest, counted{
		Attempts:    map[string]float64{"success": 26, "failure": 6 + 9 + 2, "permanent": 4, "timeout": 2},
		Probes:      map[string]float64{},
		Finished:    map[string]float64{"completed": 26, "failed": 11},
		Rescheduled: map[string]float64{},
		Retries:     map[string]float64{"1": 6 + 3, "2": 3},
		Incidents:   map[string]float64{},
		Exhausted:   3, Expired: 5, TTLs: 20,
		Durations: float64(api.Calls),
	})
	redistest.Await(t, 2*time.Minute, "the gauges of jobs", func() bool {
		return cmp.Equal(f.statsCounts(), workers[1].scrape().of("tidegate_jobs", f.dest))
	})
}

// A breaker that is opened by hand opens once for the whole fleet, and every process
// shows it, with what waits.
func TestMetricsOfABreakerOpenedByHand(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{})
	workers := []*worker{f.start(), f.start(), f.start()}
	f.tripAll(time.Minute, map[string]*worker{"0": workers[0], "1": workers[1], "2": workers[2]})
	ids := f.enqueue(7, jobs.TTL(2*time.Minute))
	for i, w := range workers {
		var s series
		redistest.Await(t, 2*time.Minute, "the jobs are seen", func() bool {
			s = w.scrape()
			return s.of("tidegate_jobs_ready", f.dest)[""] == 7
		})
		if diff := cmp.Diff(map[string]float64{"closed": 0, "open": 1, "half_open": 0}, s.of("tidegate_circuit_breaker_state", f.dest)); diff != "" {
			t.Errorf("worker %d, state (-want +got)\n%s", i, diff)
		}
		if left := s.of("tidegate_circuit_breaker_cooldown_remaining_seconds", f.dest)[""]; left < 40 || left > 60 {
			t.Errorf("worker %d: %v s remain of a minute", i, left)
		}
		if n := s.of("tidegate_jobs_near_expiration", f.dest)[""]; n != 7 {
			t.Errorf("worker %d: %v jobs expire within 5 minutes, want 7", i, n)
		}
		if s.of("tidegate_worker_fetching", f.dest)[""] != 1 {
			t.Errorf("worker %d: it could fetch, the breaker is open", i)
		}
	}
	for again := range 2 {
		f.trip(time.Minute) // of one that is OPEN: no incident of its own
		if n := sums(workers).of("tidegate_circuit_breaker_incidents_total", f.dest)["manual"]; n != 1 {
			t.Errorf("look %d: %v incidents, want 1", again, n)
		}
	}
	if _, err := breaker.Reset(t.Context(), f.rdb, f.dest, "test"); err != nil {
		t.Fatal(err)
	}
	f.waitCompleted(ids, 20*time.Second)
	f.trip(0) // another one, until somebody resets it
	for i, w := range workers {
		redistest.Await(t, 2*time.Minute, "open again", func() bool { return w.scrape().of("tidegate_circuit_breaker_state", f.dest)["open"] == 1 })
		if left := w.scrape()[`tidegate_circuit_breaker_cooldown_remaining_seconds{destination="`+f.dest+`"}`]; fmt.Sprint(left) != "+Inf" {
			t.Errorf("worker %d: %v s remain of an OPEN without end, want +Inf", i, left)
		}
	}
	agree(t, workers, f.dest, counted{
		Attempts: map[string]float64{"success": 7}, Probes: map[string]float64{}, Finished: map[string]float64{"completed": 7},
		Rescheduled: map[string]float64{}, Retries: map[string]float64{}, Incidents: map[string]float64{"manual": 2}, Durations: 7, TTLs: 7,
	})
}
