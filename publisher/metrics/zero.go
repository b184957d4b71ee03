package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// fromZero collects a vector, and a series at 0 for each started destination that has not
// counted yet, so that rate() sees the first increase. The series at 0 take memory during a
// scrape only.
type fromZero struct {
	vec    *prometheus.MetricVec
	values []*dto.LabelPair // of the other label; one that is nil without another label
	name   *string          // of the label destination
	desc   *prometheus.Desc
	zero   *dto.Metric

	mu           sync.Mutex
	destinations map[string]*dto.LabelPair
}

// newFromZero takes a vector whose first label is destination, and the values of the other one, if
// it has one.
func newFromZero(vec *prometheus.MetricVec, values ...string) *fromZero {
	z := &fromZero{vec: vec, zero: &dto.Metric{}, destinations: map[string]*dto.LabelPair{}}
	none := []string{""}
	if len(values) > 0 {
		none = append(none, "")
	}
	first, err := vec.GetMetricWithLabelValues(none...)
	if err == nil {
		z.desc, err = first.Desc(), first.Write(z.zero)
	}
	if err != nil {
		panic(err) // the labels are constants
	}
	vec.DeleteLabelValues(none...)
	z.values = make([]*dto.LabelPair, max(1, len(values)))
	for _, label := range z.zero.GetLabel() {
		if label.GetName() == "destination" {
			z.name = label.Name
			continue
		}
		for i := range values {
			z.values[i] = &dto.LabelPair{Name: label.Name, Value: &values[i]}
		}
	}
	return z
}

func (z *fromZero) start(destination string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.destinations[destination] = &dto.LabelPair{Name: z.name, Value: &destination}
}

// Describe implements prometheus.Collector.
func (z *fromZero) Describe(ch chan<- *prometheus.Desc) { z.vec.Describe(ch) }

// Collect implements prometheus.Collector.
func (z *fromZero) Collect(ch chan<- prometheus.Metric) {
	counted := make(chan prometheus.Metric, 100)
	go func() {
		defer close(counted)
		z.vec.Collect(counted)
	}()
	known := map[string]bool{} // by key
	for m := range counted {
		var d dto.Metric
		if m.Write(&d) == nil {
			known[key(d.GetLabel())] = true
		}
		ch <- m
	}
	z.mu.Lock()
	destinations := slices.Collect(maps.Values(z.destinations))
	z.mu.Unlock()
	for _, destination := range destinations {
		for _, value := range z.values {
			labels := []*dto.LabelPair{destination}
			if value != nil {
				labels = append(labels, value)
				slices.SortFunc(labels, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
			}
			if m := (zeroMetric{z, labels}); len(known) == 0 || !known[key(m.labels)] {
				ch <- m
			}
		}
	}
}

// key is that of label values, which are in the order of the names of the labels.
func key(pairs []*dto.LabelPair) (k string) {
	for _, p := range pairs {
		k += p.GetValue() + "\n"
	}
	return k
}

// zeroMetric is a series that has not counted yet.
type zeroMetric struct {
	of     *fromZero
	labels []*dto.LabelPair
}

// Desc implements prometheus.Metric.
func (m zeroMetric) Desc() *prometheus.Desc { return m.of.desc }

// Write implements prometheus.Metric.
func (m zeroMetric) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Histogram = m.labels, m.of.zero.Counter, m.of.zero.Histogram
	return nil
}
