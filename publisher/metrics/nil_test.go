package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/publisher/metrics"
)

func TestNilArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.OnDelivery("slack", "message", nil)
	redistest.NilIsRefused(t, "metrics", map[string]func() error{
		"new": func() error {
			_, err := metrics.New(nil, metrics.Options{})
			return err
		},
		"watch": func() error {
			m.Watch(nil)
			return nil
		},
	})
	redistest.NilIsRefused(t, "publisher", map[string]func() error{"observe": func() error {
		m.Observe(nil)
		return nil
	}})
}
