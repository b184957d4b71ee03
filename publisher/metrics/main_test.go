package metrics_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
	"github.com/tidegate/tidegate/publisher/metrics"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

var silent = slog.New(slog.DiscardHandler)

// fixture is one destination with its API and its Redis.
type fixture struct {
	t      *testing.T
	server *redistest.Server
	rdb    redis.UniversalClient
	client *jobs.Client
	dest   string
	api    *fakeapi.API
	url    string
}

func newFixture(t *testing.T, server *redistest.Server, o fakeapi.Options) *fixture {
	t.Helper()
	r := &fixture{t: t, server: server, rdb: server.Client(t), dest: redistest.Name(t, "d"), api: fakeapi.New(o)}
	var err error
	if r.url, err = r.api.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.api.Close() })
	if r.client, err = jobs.NewClient(r.rdb, jobs.WithDestinations(r.dest), jobs.WithLogger(silent)); err != nil {
		t.Fatal(err)
	}
	return r
}

// instance is one process's publisher with its metrics.
type instance struct {
	r   *fixture
	reg *prometheus.Registry
	m   *metrics.Metrics
	p   *publisher.Publisher
	end func()
}

// make prepares a publisher that sends to the API, or calls f if it is not nil.
func (r *fixture) make(o metrics.Options, f publisher.Func, rules breaker.Options, opts ...publisher.HandleOption) *instance {
	r.t.Helper()
	if o.Redis == nil {
		o.Redis = r.rdb
	}
	if o.MaxAge == 0 {
		o.MaxAge = -1
	}
	o.Logger = silent
	in := &instance{r: r, reg: prometheus.NewPedanticRegistry(), end: func() {}}
	var err error
	if in.m, err = metrics.New(in.reg, o); err != nil {
		r.t.Fatal(err)
	}
	options := publisher.Options{
		Logger: silent, Worker: redistest.Name(r.t, "worker"), RetryLoopInterval: 50 * time.Millisecond,
		ShutdownTimeout: 300 * time.Millisecond, RecoverSpread: 10 * time.Millisecond,
	}
	in.m.Observe(&options)
	if in.p, err = publisher.New(o.Redis, options); err != nil {
		r.t.Fatal(err)
	}
	var h publisher.Handler = f
	if f == nil {
		sender, err := httpdest.New(httpdest.Options{URL: r.url})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = sender.Close() })
		h = sender
	}
	if err := in.p.Handle(r.dest, h, append(opts, publisher.Breaker(rules))...); err != nil {
		r.t.Fatal(err)
	}
	in.m.Watch(in.p)
	return in
}

// run publishes until stop is called, at the latest at the test's end.
func (in *instance) run() *instance {
	in.r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- in.p.Run(ctx) }()
	over := false
	in.end = func() {
		if over {
			return
		}
		over = true
		cancel()
		if err := <-ended; err != nil {
			in.r.t.Errorf("Run: %v", err)
		}
	}
	in.r.t.Cleanup(in.end)
	select {
	case <-in.p.Started():
	case <-time.After(time.Minute):
		in.r.t.Fatal("the publisher did not start within 20 s")
	}
	return in
}

// values gathers all series but those of build_info, as name{label="value"} without the
// destination. Of histograms it takes the buckets that hold something, and the count.
func (in *instance) values() map[string]float64 {
	in.r.t.Helper()
	families, err := in.reg.Gather()
	if err != nil {
		in.r.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		// The second one is of other tests' destinations.
		if name := family.GetName(); name == "tidegate_build_info" || name == "tidegate_jobs_unserved" {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() == "destination" && l.GetValue() == in.r.dest {
					continue
				}
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := strings.TrimPrefix(family.GetName(), "tidegate_")
			add := func(suffix string, v float64, more ...string) {
				full := name + suffix
				if all := append(slices.Clip(labels), more...); len(all) > 0 {
					full += "{" + strings.Join(all, ",") + "}"
				}
				out[full] = v
			}
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				add("", m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				add("", m.GetGauge().GetValue())
			case dto.MetricType_HISTOGRAM:
				add("_count", float64(m.GetHistogram().GetSampleCount()))
				before := uint64(0)
				for _, b := range m.GetHistogram().GetBucket() {
					if n := b.GetCumulativeCount(); n > before {
						add("_bucket", float64(n-before), fmt.Sprintf("le=%v", b.GetUpperBound()))
						before = n
					}
				}
			default:
				in.r.t.Fatalf("%s is a %s", family.GetName(), family.GetType())
			}
		}
	}
	return out
}

// nonzero leaves out what is 0.
func nonzero(m map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for k, v := range m {
		if v != 0 {
			out[k] = v
		}
	}
	return out
}

// enqueue makes a job with a payload.
func (r *fixture) enqueue(payload any, opts ...jobs.Option) string {
	r.t.Helper()
	j, err := r.client.Enqueue(context.Background(), jobs.New(r.dest, payload, opts...))
	if err != nil {
		r.t.Fatal(err)
	}
	return j.ID
}

// enqueueMany makes n jobs alike.
func (r *fixture) enqueueMany(n int, opts ...jobs.Option) []string {
	r.t.Helper()
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(r.dest, i, opts...)
	}
	results, err := r.client.EnqueueMany(context.Background(), specs)
	if err != nil {
		r.t.Fatal(err)
	}
	ids := make([]string, n)
	for i, res := range results {
		if res.Err != nil {
			r.t.Fatal(res.Err)
		}
		ids[i] = res.Job.ID
	}
	return ids
}

func (r *fixture) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}
