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

	"github.com/tidegate/tidegate/internal/testkit/redistest"
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

// row is a line of the table: name without the prefix, type, labels, how processes are
// put together, meaning.
var row = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\|([^|]*)\\| ([a-z]+) \\| ([^|]+) \\|$")

// The table in docs/operations.md has each metric, and no other.
func TestEachMetricIsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]described{}
	for _, cells := range row.FindAllStringSubmatch(string(doc), -1) {
		name, kind, together := "tidegate_"+cells[1], cells[2], cells[4]
		if _, twice := got[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		labels := strings.FieldsFunc(cells[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		slices.Sort(labels)
		got[name] = described{kind, strings.Join(labels, ", ")}
		// What a process counts is added up; of gauges only the table knows.
		switch together {
		case "sum":
		case "max", "each":
			if kind != "gauge" {
				t.Errorf("%s is a %s: processes are added up, not %q", name, kind, together)
			}
		default:
			t.Errorf("%s: %q is no way to put processes together", name, together)
		}
	}
	if diff := gocmp.Diff(registered(t), got); diff != "" {
		t.Errorf("the table (-registered +documented):\n%s", diff)
	}
}
