package metrics_test

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// Names, units and help texts are as Prometheus's own linter wants them, with
// everything counted at least once.
func TestLint(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	in := r.make(metrics.Options{}, func(_ context.Context, j *jobs.Job) error {
		if j.Attempt == 0 {
			return errors.New("boom")
		}
		return nil
	}, breaker.Options{}).run()
	in.m.OnDelivery("slack", "message", nil)
	in.m.OnDelivery("pagerduty", "trigger", errors.New("no"))
	id := r.enqueue(nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second}), jobs.TTL(time.Hour))
	r.ended(id, jobs.Completed)
	problems, err := testutil.GatherAndLint(in.reg)
	r.must(err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	// All that there are, so that none was left out above.
	families, err := in.reg.Gather()
	r.must(err)
	var names []string
	for _, f := range families {
		if f.GetName() != "tidegate_jobs_unserved" { // of what other tests leave in this Redis
			names = append(names, f.GetName())
		}
	}
	want := []string{
		"tidegate_alerts_failed_total", "tidegate_alerts_sent_total", "tidegate_answer_rules_failed_total", "tidegate_answers_doubtful_total", "tidegate_build_info", "tidegate_callbacks_dropped_total",
		"tidegate_circuit_breaker_cooldown_remaining_seconds", "tidegate_circuit_breaker_failures",
		"tidegate_circuit_breaker_incidents_total", "tidegate_circuit_breaker_open_keys",
		"tidegate_circuit_breaker_participants", "tidegate_circuit_breaker_probes_total", "tidegate_circuit_breaker_recovery_seconds", "tidegate_circuit_breaker_state", "tidegate_destination_paused",
		"tidegate_foreign_tasks_total", "tidegate_handlers_stuck", "tidegate_handlers_stuck_total",
		"tidegate_job_retries_exhausted_total", "tidegate_job_retries_total", "tidegate_job_ttl_seconds", "tidegate_jobs",
		"tidegate_jobs_expired_total", "tidegate_jobs_finished_total", "tidegate_jobs_held", "tidegate_jobs_in_hand",
		"tidegate_jobs_near_expiration", "tidegate_jobs_poisoned_total", "tidegate_jobs_ready",
		"tidegate_jobs_redistributed_total", "tidegate_jobs_released_total", "tidegate_jobs_rescheduled_total", "tidegate_oldest_pending_age_seconds",
		"tidegate_publish_attempts_total", "tidegate_publish_duration_seconds", "tidegate_redis_evicted_keys", "tidegate_redis_evicts", "tidegate_redis_out_of_memory", "tidegate_redis_up",
		"tidegate_reschedule_delay_seconds", "tidegate_wasted_calls_total", "tidegate_worker_concurrency",
		"tidegate_worker_fetching",
		"tidegate_worker_unreachable",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("metrics (-want +got)\n%s", diff)
	}
}

// A registry that has one of the metrics already is left as it was.
func TestRegisteredTwice(t *testing.T) {
	t.Parallel()
	const name = "tidegate_wasted_calls_total" // neither the first nor the last
	donor := newBare(t)
	var o publisher.Options
	donor.Observe(&o)
	o.Observers[0].OnCall(publisher.Call{Destination: "d", Outcome: publisher.OutcomeRateLimited})
	families, err := donor.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	help := ""
	for _, f := range families {
		if f.GetName() == name {
			help = f.GetHelp()
		}
	}
	reg := prometheus.NewRegistry()
	taken := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"destination"})
	reg.MustRegister(taken)
	m, err := metrics.New(reg, metrics.Options{})
	if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); m != nil || !ok || !strings.HasPrefix(err.Error(), "metrics: new: ") {
		t.Errorf("New = %v, %v; want prometheus.AlreadyRegisteredError", m, err)
	}
	if !reg.Unregister(taken) {
		t.Error("what was registered before is gone")
	}
	if left, err := reg.Gather(); len(left) != 0 || err != nil {
		t.Errorf("%d metrics are left behind, %v", len(left), err)
	}
	if _, err := metrics.New(reg, metrics.Options{}); err != nil {
		t.Errorf("after the other is gone: %v", err)
	}
	if _, err := metrics.New(reg, metrics.Options{}); err == nil {
		t.Error("the same registry takes a second one")
	}
}

func TestOptionsOutOfRange(t *testing.T) {
	t.Parallel()
	if _, err := metrics.New(nil, metrics.Options{}); err == nil {
		t.Error("without a registerer: no error")
	}
	for _, o := range []metrics.Options{{Timeout: -1}, {NearExpiration: -1}} {
		reg := prometheus.NewRegistry()
		if _, err := metrics.New(reg, o); err == nil {
			t.Errorf("%+v: no error", o)
		}
		if got, err := reg.Gather(); len(got) != 0 || err != nil {
			t.Errorf("%+v: %d metrics are left behind, %v", o, len(got), err)
		}
	}
}

// The version is a label of a 1.
func TestBuildInfo(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		o               metrics.Options
		version, commit string
	}{
		{metrics.Options{Version: "v1.2.3", Commit: "abcdef"}, "v1.2.3", "abcdef"},
		{metrics.Options{}, "unknown", "unknown"},
	} {
		reg := prometheus.NewRegistry()
		if _, err := metrics.New(reg, row.o); err != nil {
			t.Fatal(err)
		}
		want := `# HELP tidegate_build_info The version that runs; always 1.
# TYPE tidegate_build_info gauge
tidegate_build_info{commit="` + row.commit + `",goversion="` + runtime.Version() + `",version="` + row.version + `"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "tidegate_build_info"); err != nil {
			t.Error(err)
		}
	}
}

// The observers of an application stay.
func TestObserveKeepsOtherObservers(t *testing.T) {
	t.Parallel()
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	own := publisher.Observer{OnExpired: func(string, int) {}}
	o := publisher.Options{Observers: []publisher.Observer{own}}
	m.Observe(&o)
	if len(o.Observers) != 2 || o.Observers[0].OnExpired == nil || o.Observers[0].OnCall != nil {
		t.Fatalf("observers %+v, want those of the application first", o.Observers)
	}
	x := o.Observers[1]
	if x.OnCall == nil || x.OnJob == nil || x.OnStuck == nil || x.OnDoubtful == nil || x.OnExpired == nil || x.OnReleased == nil || x.OnCallbacksDropped == nil ||
		x.OnAnswer != nil || x.Trace != nil {
		t.Errorf("not what is counted is observed: %+v", x)
	}
}

// Who uses the libraries without metrics and traces does not link those.
func TestLibrariesDoNotLinkPrometheus(t *testing.T) {
	t.Parallel()
	const ours = "github.com/tidegate/tidegate/"
	deps := func(pkgs ...string) []string {
		args := []string{"list", "-deps", "-f", "{{.ImportPath}}"}
		for _, p := range pkgs {
			args = append(args, ours+p)
		}
		out, err := exec.CommandContext(t.Context(), "go", args...).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		return strings.Fields(string(out))
	}
	links := func(pkgs []string, prefix string) bool {
		for _, p := range pkgs {
			if strings.HasPrefix(p, prefix) {
				return true
			}
		}
		return false
	}
	for _, p := range []string{"publisher", "jobs", "breaker", "breaker/hint", "breaker/breakerhttp", "alerts"} {
		for _, heavy := range []string{"github.com/prometheus", "go.opentelemetry.io", "google.golang.org/grpc"} {
			if links(deps(p), heavy) {
				t.Errorf("%s links %s", p, heavy)
			}
		}
	}
	own := deps("publisher/metrics")
	if !links(own, "github.com/prometheus/client_golang") || links(own, "go.opentelemetry.io") {
		t.Error("publisher/metrics links OpenTelemetry, or not Prometheus")
	}
}
