package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/lease"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// Defaults of Options.
const (
	DefaultMaxAge         = 5 * time.Second
	DefaultTimeout        = 2 * time.Second
	DefaultNearExpiration = 5 * time.Minute
)

// Options configure Metrics. The zero value is ready for use.
type Options struct {
	// Redis is where the jobs are. Without it the metrics of queues are left out, and
	// incidents are counted only if a call of this process began them.
	Redis redis.UniversalClient
	// Namespace of the jobs; see jobs.WithNamespace. Default: tidegate.
	Namespace string
	// MaxAge of the counts from Redis in a scrape. Default 5 s; negative: they are read for
	// each scrape.
	MaxAge time.Duration
	// Timeout bounds the read of the counts for a scrape. After it, such as while Redis is
	// unavailable, the metrics of queues are missing and tidegate_redis_up is 0. Default 2 s.
	Timeout time.Duration
	// NearExpiration is the time to expiry within which a waiting job counts in
	// tidegate_jobs_near_expiration. Default 5 minutes.
	NearExpiration time.Duration
	// Version and Commit are shown by tidegate_build_info. Default "unknown".
	Version, Commit string
	// Logger gets a line when Redis cannot be read, at debug level. Default:
	// slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.NearExpiration = cmp.Or(o.NearExpiration, DefaultNearExpiration)
	o.Version = cmp.Or(o.Version, "unknown")
	o.Commit = cmp.Or(o.Commit, "unknown")
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// Metrics observes one publisher.
type Metrics struct {
	o     Options
	fleet *fleet
	counters
}

// New registers the metrics with reg. Errors: one of them is registered already, or an
// option is out of range.
func New(reg prometheus.Registerer, o Options) (*Metrics, error) {
	if reg == nil {
		return nil, errors.New("metrics: new: the registerer is nil")
	}
	if o.Timeout < 0 || o.NearExpiration < 0 {
		return nil, errors.New("metrics: new: Timeout and NearExpiration must not be negative")
	}
	o = o.withDefaults()
	m := &Metrics{o: o, counters: newCounters(), fleet: &fleet{o: o}}
	if o.Redis != nil {
		client, err := jobs.NewClient(o.Redis, jobs.WithNamespace(o.Namespace), jobs.WithLogger(o.Logger))
		if err != nil {
			return nil, fmt.Errorf("metrics: new: %w", err)
		}
		m.fleet.client = client
	}
	for _, d := range deliveries {
		m.alertsSent.WithLabelValues(d[0], d[1])
		m.alertsFailed.WithLabelValues(d[0], d[1])
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tidegate_build_info", Help: "The version that runs; always 1.",
		ConstLabels: prometheus.Labels{"version": o.Version, "commit": o.Commit, "goversion": runtime.Version()},
	})
	build.Set(1)
	var done []prometheus.Collector
	for _, c := range append(m.all(), build, m.fleet) {
		if err := reg.Register(c); err != nil {
			for _, c := range done {
				reg.Unregister(c)
			}
			return nil, fmt.Errorf("metrics: new: %w", err)
		}
		done = append(done, c)
	}
	return m, nil
}

// claimFor is how long Redis remembers that an incident was counted: an instance may receive
// its event late.
const claimFor = 24 * time.Hour

// onTransition counts incidents, at their beginnings and at their ends.
func (m *Metrics) onTransition(e breaker.Event) {
	began := e.From != breaker.Open && e.From != breaker.HalfOpen && e.To == breaker.Open
	over := e.From != breaker.Closed && e.To == breaker.Closed && e.Cause != breaker.CauseLost && !e.OpenedAt.IsZero()
	switch {
	case e.Key != "":
	case began && m.claim(e, ""):
		m.incidents.WithLabelValues(e.Name, e.Cause).Inc()
	case over && m.claim(e, ":end"):
		m.recoverySeconds.WithLabelValues(e.Name).Observe(e.At.Sub(e.OpenedAt).Seconds())
		if i := m.incident(e); i != nil {
			m.participants.WithLabelValues(e.Name).Observe(float64(len(i.Instances)))
		}
	}
}

// incident reads the incident that an event has ended; nil if it cannot be read.
func (m *Metrics) incident(e breaker.Event) *breaker.Incident {
	const last = 5 // others may have ended since
	if m.o.Redis == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.o.Timeout)
	defer cancel()
	r, err := breaker.Namespace(m.fleet.reader().Namespace()).ReadOne(ctx, m.o.Redis, breaker.Query{Incidents: last}, e.Name)
	if err != nil {
		m.o.Logger.Debug("metrics: an incident could not be read", "incident", e.Incident, "error", err)
		return nil
	}
	for _, i := range r.Incidents {
		if i.ID == e.Incident {
			return &i
		}
	}
	return nil
}

// claim reports whether this instance counts the incident's beginning, or its end: the first one to claim it. All
// instances receive the event, and the instance that made the transition may have died or may
// not be a worker.
func (m *Metrics) claim(e breaker.Event, what string) bool {
	mine := e.By == m.fleet.worker()
	if m.o.Redis == nil {
		return mine
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.o.Timeout)
	defer cancel()
	first, err := lease.Once(ctx, m.o.Redis, store.Namespace(m.fleet.client.Namespace()).Key("counted:"+e.Incident+what), claimFor)
	if err != nil {
		return mine
	}
	return first
}
