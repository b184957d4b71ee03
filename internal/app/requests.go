package app

import (
	"cmp"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests are the metrics of the HTTP API. Those of jobs and breakers are the workers'.
type requests struct {
	registry *prometheus.Registry
	total    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newRequests(process Process) *requests {
	r := &requests{
		registry: newRegistry(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_http_requests_total", Help: "Requests to the HTTP API and the dashboard, by the status of the answer.",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidegate_http_request_duration_seconds", Help: "Time until the answer was complete; of a stream, until it began.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tidegate_build_info", Help: "The build that runs.",
		ConstLabels: prometheus.Labels{
			"version": cmp.Or(process.Version, "unknown"), "commit": cmp.Or(process.Commit, "unknown"), "goversion": runtime.Version(),
		},
	})
	build.Set(1)
	r.registry.MustRegister(r.total, r.seconds, build)
	return r
}

func (r *requests) observe(route, method string, code int, took time.Duration) {
	r.total.WithLabelValues(route, method, strconv.Itoa(code)).Inc()
	r.seconds.WithLabelValues(route).Observe(took.Seconds())
}
