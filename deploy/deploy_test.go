// Package deploy_test holds together what deploy/ says in several places: metrics, rules,
// dashboard, chart, runbook and configuration. It needs none of the tools that
// scripts/validate.sh runs.
package deploy_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// read is a file's content.
func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// parse reads a file of YAML or JSON; a field that into does not have fails the test if strict.
func parse(t *testing.T, path string, into any, strict bool) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(read(t, path)))
	d.KnownFields(strict)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// descriptions keeps the descriptions of what is registered, as the package metrics has no list.
type descriptions struct {
	prometheus.Registerer
	labels map[string][]string
}

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ".*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func (d descriptions) Register(c prometheus.Collector) error {
	out := make(chan *prometheus.Desc)
	go func() {
		defer close(out)
		c.Describe(out)
	}()
	for desc := range out {
		m := described.FindStringSubmatch(desc.String())
		if m == nil {
			return fmt.Errorf("description of another form: %s", desc)
		}
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' })
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, l[1])
		}
		d.labels[m[1]] = labels
	}
	return d.Registerer.Register(c)
}

// exported are the metrics that workers export, with their labels.
var exported = sync.OnceValues(func() (map[string][]string, error) {
	reg := prometheus.NewRegistry()
	d := descriptions{Registerer: reg, labels: map[string][]string{
		// Of client_golang's own collectors.
		"process_resident_memory_bytes": nil,
		"process_cpu_seconds_total":     nil,
		// Of processes with a destinations file: internal/app/reload.go.
		"tidegate_destinations_file_valid": nil,
	}}
	m, err := metrics.New(d, metrics.Options{})
	if err != nil {
		return nil, err
	}
	p, err := publisher.New(redis.NewClient(&redis.Options{}), publisher.Options{})
	if err == nil {
		err = p.Handle("d", publisher.Func(func(context.Context, *jobs.Job) error { return nil }))
	}
	if err != nil {
		return nil, err
	}
	m.Watch(p)
	families, err := reg.Gather()
	for _, f := range families {
		if f.GetType() == dto.MetricType_HISTOGRAM {
			d.labels[f.GetName()] = append(d.labels[f.GetName()], "le")
		}
	}
	return d.labels, err
})

func loadMetrics(t *testing.T) map[string][]string {
	t.Helper()
	m, err := exported()
	if err != nil {
		t.Fatal(err)
	}
	if len(m) < 30 {
		t.Fatalf("%d metrics, want 30 or more", len(m))
	}
	return m
}

// scraped are the labels of every series, which the scrape adds.
var scraped = []string{"namespace", "job", "instance"}

var (
	metricName  = regexp.MustCompile(`\b(?:destination:)?(?:tidegate|process|go)_[a-z_]+(?::[a-z0-9]+)?`)
	selected    = regexp.MustCompile(`([a-z_:0-9]+)\{([^}]*)\}`)
	labelName   = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	histogramOf = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// checkQuery fails the test if expr asks for a metric or a label that nothing exports: that
// would not be an error to Prometheus, but a panel or an alert that stays empty for ever.
func checkQuery(t *testing.T, where, expr string, recorded map[string]bool) {
	t.Helper()
	found := metricName.FindAllString(expr, -1)
	if len(found) == 0 {
		t.Errorf("%s: no metric of ours in %q", where, expr)
	}
	for _, name := range found {
		if _, ok := labelsOf(loadMetrics(t), name, recorded); !ok {
			t.Errorf("%s: nothing exports or records %s", where, name)
		}
	}
	for _, m := range selected.FindAllStringSubmatch(expr, -1) {
		labels, ok := labelsOf(loadMetrics(t), m[1], recorded)
		if !ok {
			continue // Said above.
		}
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, l[1]) && !slices.Contains(scraped, l[1]) {
				t.Errorf("%s: %s has no label %s", where, m[1], l[1])
			}
		}
	}
}

// labelsOf says which labels a series has, and whether there is one.
func labelsOf(metrics map[string][]string, name string, recorded map[string]bool) ([]string, bool) {
	if recorded[name] {
		return []string{"destination"}, true
	}
	if labels, ok := metrics[name]; ok {
		return labels, !slices.Contains(labels, "le")
	}
	base := histogramOf.ReplaceAllString(name, "")
	labels, ok := metrics[base]
	return labels, ok && slices.Contains(labels, "le")
}
