package metrics_test

import (
	"cmp"
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// described is what a metric is said to be.
type described struct {
	Kind   string // counter, gauge or histogram
	Labels string // in alphabetical order
}

// collected is a registry that keeps what is registered.
type collected struct{ all []prometheus.Collector }

func (c *collected) Register(one prometheus.Collector) error {
	c.all = append(c.all, one)
	return nil
}

func (c *collected) MustRegister(some ...prometheus.Collector)  { c.all = append(c.all, some...) }
func (c *collected) Unregister(prometheus.Collector) (was bool) { return false }

var aDesc = regexp.MustCompile(`^Desc\{fqName: "([^"]+)".* constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// registered asks the collectors what they collect: a metric whose labels have no
// values yet is in no scrape.
func registered(t *testing.T) map[string]described {
	t.Helper()
	var c collected
	rdb := redistest.Shared(t).Client(t)
	m, err := metrics.New(&c, metrics.Options{Redis: rdb, Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	p, err := publisher.New(rdb, publisher.Options{Logger: silent})
	if err == nil {
		err = p.Handle("d", publisher.Func(func(context.Context, *jobs.Job) error { return nil }))
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(p)
	reg := prometheus.NewRegistry()
	reg.MustRegister(c.all...)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{} // of those that have values
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	out := map[string]described{}
	for _, collector := range c.all {
		kind := "gauge"
		if _, counts := collector.(*prometheus.CounterVec); counts {
			kind = "counter"
		}
		descs := make(chan *prometheus.Desc, 100)
		collector.Describe(descs)
		close(descs)
		for d := range descs {
			parts := aDesc.FindStringSubmatch(d.String())
			if parts == nil {
				t.Fatalf("cannot read %s", d)
			}
			labels := strings.FieldsFunc(parts[3], func(r rune) bool { return r == ',' })
			for constant := range strings.SplitSeq(parts[2], ",") {
				if name, _, ok := strings.Cut(constant, "="); ok {
					labels = append(labels, name)
				}
			}
			slices.Sort(labels)
			out[parts[1]] = described{cmp.Or(kinds[parts[1]], kind), strings.Join(labels, ", ")}
		}
	}
	return out
}

// In docs/operations.md the line before a list has the type of its metrics and how processes are put
// together, each item the name without the prefix, the labels and the meaning.
var (
	heading = regexp.MustCompile("^(Counter|Gauge|Histogram)s, `(sum|max|each)`:$")
	item    = regexp.MustCompile("^- `([a-z_]+)(?:\\{([a-z,]+)\\})?`: .+$")
)

// The lists in docs/operations.md have each metric, and no other.
func TestEachMetricIsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]described{}
	kind := ""
	for line := range strings.Lines(string(doc)) {
		line = strings.TrimSuffix(line, "\n")
		if h := heading.FindStringSubmatch(line); h != nil {
			kind = strings.ToLower(h[1])
			// What a process counts is added up; of gauges only the lists know.
			if kind != "gauge" && h[2] != "sum" {
				t.Errorf("a %s of processes is added up, not %q", kind, h[2])
			}
		}
		cells := item.FindStringSubmatch(line)
		if kind == "" || cells == nil {
			continue
		}
		name := "tidegate_" + cells[1]
		if _, twice := got[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		labels := strings.Split(cells[2], ",")
		slices.Sort(labels)
		got[name] = described{kind, strings.Join(labels, ", ")}
	}
	if diff := gocmp.Diff(registered(t), got); diff != "" {
		t.Errorf("the lists (-registered +documented):\n%s", diff)
	}
}
