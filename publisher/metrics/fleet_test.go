package metrics_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// What waits is shown by where it waits and for what.
func TestWhatWaits(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	in := r.make(metrics.Options{NearExpiration: 10 * time.Minute}, nil, breaker.Options{}) // does not run
	parent := r.enqueue(nil, jobs.TTL(10*time.Minute-time.Second))
	r.enqueue(nil, jobs.After(parent), jobs.TTL(time.Hour))
	r.enqueueMany(2, jobs.Prioritize(jobs.PriorityHigh))
	r.enqueueMany(3, jobs.Prioritize(jobs.PriorityLow))
	r.enqueueMany(4, jobs.Delay(time.Hour), jobs.TTL(2*time.Hour))
	paused := r.enqueue(nil, jobs.TTL(time.Minute))
	r.must(r.client.Pause(t.Context(), paused))
	r.must(r.client.Cancel(t.Context(), r.enqueue(nil)))
	_, err := r.client.PauseDestination(t.Context(), r.dest)
	r.must(err)
	want := map[string]float64{
		`jobs{status="pending"}`: 1 + 2 + 3 + 4, `jobs{status="waiting"}`: 1, `jobs{status="paused"}`: 1, `jobs{status="cancelled"}`: 1,
		"jobs_ready": 1 + 2 + 3, "jobs_near_expiration": 2, "destination_paused": 1, "redis_up": 1, "worker_concurrency": 10,
	}
	waitedFor := func() (map[string]float64, float64) {
		got := nonzero(in.values())
		age := got["oldest_pending_age_seconds"]
		delete(got, "oldest_pending_age_seconds")
		return got, age
	}
	got, age := waitedFor()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got)\n%s", diff)
	}
	if age <= 0 || age > 300 {
		t.Errorf("the oldest pending job waits for %v s", age)
	}
	// A second is a second.
	<-time.After(time.Second)
	if _, later := waitedFor(); later-age < 1 || later-age > 300 {
		t.Errorf("a second later it waits for %v s, after %v s", later, age)
	}
}

// The statuses are the nine of the contract, the states three: all are there from the
// first scrape on, as are counters that can be told beforehand.
func TestSeriesAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	in := r.make(metrics.Options{}, nil, breaker.Options{}).run()
	want := map[string]float64{
		"redis_up": 1, "redis_evicts": 0, "redis_out_of_memory": 0, "redis_evicted_keys": 0, "worker_fetching": 1, "worker_unreachable": 0, "worker_concurrency": 10, "jobs_in_hand": 0, "handlers_stuck": 0, "handlers_stuck_total": 0,
		`circuit_breaker_state{state="closed"}`: 1, `circuit_breaker_state{state="open"}`: 0, `circuit_breaker_state{state="half_open"}`: 0,
		"circuit_breaker_failures": 0, "circuit_breaker_cooldown_remaining_seconds": 0, "circuit_breaker_open_keys": 0,
		"wasted_calls_total": 0, "jobs_expired_total": 0, "job_retries_exhausted_total": 0,
		"jobs_poisoned_total": 0, "jobs_released_total": 0, "callbacks_dropped_total": 0, "foreign_tasks_total": 0, "answer_rules_failed_total": 0, `answers_doubtful_total{kind="error"}`: 0, `answers_doubtful_total{kind="limit"}`: 0, "jobs_ready": 0, "jobs_held": 0, "jobs_near_expiration": 0,
		"oldest_pending_age_seconds": 0, "destination_paused": 0,
		"publish_duration_seconds_count": 0, "reschedule_delay_seconds_count": 0, "job_ttl_seconds_count": 0, "circuit_breaker_recovery_seconds_count": 0, "circuit_breaker_participants_count": 0,
		`jobs_redistributed_total{reason="rate_limited"}`: 0, `jobs_redistributed_total{reason="worker_lost"}`: 0,
	}
	for _, status := range []string{"waiting", "pending", "running", "retry_pending", "paused", "completed", "failed", "cancelled", "expired"} {
		want[`jobs{status="`+status+`"}`] = 0
	}
	for _, result := range []string{"success", "accepted", "rate_limited", "unauthorized", "failure", "timeout", "permanent", "rescheduled", "unreachable", "interrupted", "cancelled"} {
		want[`publish_attempts_total{result="`+result+`"}`] = 0
		want[`circuit_breaker_probes_total{result="`+result+`"}`] = 0
	}
	for _, cause := range []string{"threshold", "hint", "ramp", "budget", "credentials", "outage", "learned", "manual"} {
		want[incidents(cause)] = 0
	}
	for _, status := range []string{"completed", "failed", "cancelled"} {
		want[`jobs_finished_total{status="`+status+`"}`] = 0
	}
	for _, reason := range []string{"breaker", "rate_limited", "publisher", "unreachable", "credentials", "outage", "refused_alone"} {
		want[`jobs_rescheduled_total{reason="`+reason+`"}`] = 0
	}
	for _, attempt := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "more"} {
		want[`job_retries_total{attempt="`+attempt+`"}`] = 0
	}
	for _, labels := range []string{
		`kind="message",receiver="slack"`, `kind="update",receiver="slack"`, `kind="message",receiver="webhook"`,
		`kind="trigger",receiver="pagerduty"`, `kind="resolve",receiver="pagerduty"`,
	} {
		want["alerts_sent_total{"+labels+"}"], want["alerts_failed_total{"+labels+"}"] = 0, 0
	}
	if diff := cmp.Diff(want, in.values()); diff != "" {
		t.Errorf("metrics (-want +got)\n%s", diff)
	}
	families, err := in.reg.Gather()
	r.must(err)
	series := 0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			of := func(l *dto.LabelPair) bool { return l.GetName() == "destination" && l.GetValue() == r.dest }
			if !slices.ContainsFunc(m.GetLabel(), of) {
				continue
			}
			series++
			if h := m.GetHistogram(); h != nil {
				series += len(h.GetBucket()) + 2 // the bucket +Inf, the sum and the count, less the one above
			}
		}
	}
	page, err := os.ReadFile("../../docs/operations.md")
	r.must(err)
	if says := fmt.Sprintf("A destination has %d series", series); !strings.Contains(string(page), says) {
		t.Errorf("docs/operations.md does not say %q", says)
	}
}

// Limits of the destination are shown; those of keys make no series.
func TestLimitGauges(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	in := r.make(metrics.Options{MaxAge: -1}, nil, breaker.Options{})
	b, err := breaker.New(t.Context(), r.rdb, breaker.Options{Destination: r.dest, Rate: breaker.Rates{{Calls: 60, Per: time.Hour, Burst: 5}}})
	r.must(err)
	defer b.Close()
	for _, key := range []string{"", "alice"} {
		permit, err := b.Key(key).Allow(t.Context())
		r.must(err)
		_, err = permit.Report(t.Context(), breaker.Success().WithBudget(breaker.Budget{Remaining: 1, Limit: 100, Reset: time.Hour}))
		r.must(err)
	}
	got := map[string]float64{}
	for name, value := range in.values() {
		if strings.Contains(name, "limit_") {
			got[name] = value
		}
	}
	want := map[string]float64{
		`limit_allowed{source="declared",window="3600s"}`: 60, `limit_used{source="declared",window="3600s"}`: 2,
		`limit_allowed{source="announced",window=""}`: 100, `limit_used{source="announced",window=""}`: 100,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got)\n%s", diff)
	}
}

// Slots of the destination, in all and taken; those of keys make no series.
func TestConcurrencyGauges(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	in := r.make(metrics.Options{MaxAge: -1}, nil, breaker.Options{})
	b, err := breaker.New(t.Context(), r.rdb, breaker.Options{Destination: r.dest, FleetConcurrency: 5, KeyConcurrency: 2})
	r.must(err)
	defer b.Close()
	_, err = b.Key("alice").Allow(t.Context())
	r.must(err)
	want := map[string]float64{
		`limit_allowed{source="declared",window="concurrency"}`: 5, `limit_used{source="declared",window="concurrency"}`: 1,
	}
	eventuallySame(t, want, func() map[string]float64 {
		got := map[string]float64{}
		for name, value := range in.values() {
			if strings.Contains(name, "limit_") {
				got[name] = value
			}
		}
		return got
	})
}

// The breaker's state, its failures, what remains of its cooldown.
func TestBreakerGauges(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	answers := make(chan error)
	in := r.make(metrics.Options{}, func(ctx context.Context, _ *jobs.Job) error {
		select {
		case err := <-answers:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, breaker.Options{FailureThreshold: 3, Cooldown: 500 * time.Millisecond}).run()
	shows := func(what string, want map[string]float64) {
		t.Helper()
		var got map[string]float64
		redistest.Eventually(t, what, func() bool {
			all := in.values()
			got = map[string]float64{}
			for name := range want {
				got[name] = all[name]
			}
			return cmp.Equal(want, got)
		})
	}
	const closed, open, half = `circuit_breaker_state{state="closed"}`, `circuit_breaker_state{state="open"}`, `circuit_breaker_state{state="half_open"}`
	r.enqueueMany(3)
	answers <- jobs.RateLimited(0)
	shows("one failure", map[string]float64{closed: 1, open: 0, half: 0, "circuit_breaker_failures": 1})
	answers <- jobs.RateLimited(0)
	shows("two failures", map[string]float64{closed: 1, open: 0, half: 0, "circuit_breaker_failures": 2})
	answers <- jobs.RateLimited(0)
	shows("HALF_OPEN, with the probe under way", map[string]float64{
		closed: 0, open: 0, half: 1, "circuit_breaker_failures": 3, "circuit_breaker_cooldown_remaining_seconds": 0,
		"jobs_in_hand": 1, "worker_fetching": 1,
	})
	answers <- nil
	shows("closed", map[string]float64{closed: 1, open: 0, half: 0, "circuit_breaker_failures": 0})
	answers <- nil
	answers <- nil

	trip := func(name string, length time.Duration) {
		t.Helper()
		_, err := breaker.DefaultNamespace.Trip(t.Context(), r.rdb, name, breaker.TripOptions{For: length})
		r.must(err)
	}
	trip(r.dest, time.Hour)
	shows("open", map[string]float64{closed: 0, open: 1, half: 0, "worker_fetching": 1})
	if left := in.values()["circuit_breaker_cooldown_remaining_seconds"]; left < 3500 || left > 3600 {
		t.Errorf("%v s remain of an hour", left)
	}
	trip(r.dest, 0)
	shows("open until reset", map[string]float64{open: 1, "circuit_breaker_cooldown_remaining_seconds": math.Inf(1)})
	_, err := breaker.DefaultNamespace.Reset(t.Context(), r.rdb, r.dest, "test")
	r.must(err)
	shows("reset", map[string]float64{closed: 1, open: 0, "circuit_breaker_cooldown_remaining_seconds": 0, "circuit_breaker_open_keys": 0})

	trip(r.dest+"/alice", time.Hour)
	trip(r.dest+"/bob", time.Hour)
	shows("keys", map[string]float64{closed: 1, open: 0, "circuit_breaker_open_keys": 2})
	_, err = breaker.DefaultNamespace.Reset(t.Context(), r.rdb, r.dest+"/bob", "test")
	r.must(err)
	shows("one key", map[string]float64{"circuit_breaker_open_keys": 1})
}

// Jobs that are held for their keys, and let through.
func TestHeldAndReleased(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	in := r.make(metrics.Options{}, nil, breaker.Options{}).run()
	_, err := breaker.DefaultNamespace.Trip(t.Context(), r.rdb, r.dest+"/alice", breaker.TripOptions{For: time.Hour})
	r.must(err)
	redistest.Eventually(t, "the key is open", func() bool { return in.values()["circuit_breaker_open_keys"] == 1 })
	held := r.enqueueMany(5, jobs.Key("alice"))
	r.ended(r.enqueue(nil, jobs.Key("bob")), jobs.Completed)
	redistest.Eventually(t, "held", func() bool { return in.values()["jobs_held"] == 5 })
	got := in.values()
	if got[`jobs{status="pending"}`] != 5 || got["jobs_ready"] != 0 || got["jobs_released_total"] != 0 {
		t.Errorf("with 5 held: %v pending, %v ready, %v released", got[`jobs{status="pending"}`], got["jobs_ready"], got["jobs_released_total"])
	}
	_, err = breaker.DefaultNamespace.Reset(t.Context(), r.rdb, r.dest+"/alice", "test")
	r.must(err)
	for _, id := range held {
		r.ended(id, jobs.Completed)
	}
	want := map[string]float64{
		"jobs_held": 0, "jobs_released_total": 5, "circuit_breaker_open_keys": 0, incidents(breaker.CauseThreshold): 0,
		`publish_attempts_total{result="success"}`: 6, `jobs_finished_total{status="completed"}`: 6,
	}
	eventuallySame(t, want, func() map[string]float64 {
		all, out := in.values(), map[string]float64{}
		for name := range want {
			out[name] = all[name]
		}
		return out
	})
}

// How good forecasts were is shown once enough jobs were compared with them.
func TestForecastGauges(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	in := r.make(metrics.Options{}, nil, breaker.Options{}).run()
	key := "tidegate:{" + store.DefaultNamespace.Queue(r.dest, "default") + "}:forecasts"
	for n, want := range map[int64]map[string]float64{
		9: {}, 10: {"forecast_in_range_ratio": 0.86, "forecast_error_ratio": 0.02, "forecast_range_ratio": 0.12},
	} {
		r.must(r.rdb.Del(t.Context(), key).Err())
		for range n {
			r.must(r.rdb.LPush(t.Context(), key, "-5:1 -5:1 0:1", "-5:1 13:0 0:1 0:1").Err())
		}
		got := map[string]float64{}
		for name, v := range in.values() {
			if strings.HasPrefix(name, "forecast_") {
				got[name] = math.Round(v*100) / 100
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got)\n%s", diff)
		}
	}
}
