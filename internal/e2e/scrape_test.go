package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/health"
)

// ops is where the worker serves health and metrics, as its log says.
func (w *worker) ops() string {
	w.t.Helper()
	for _, line := range w.lines() {
		var said struct{ Msg, Addr string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "health and metrics" {
			return said.Addr
		}
	}
	w.t.Fatalf("worker %d did not say where it serves health and metrics:\n%s", w.pid(), w.log)
	return ""
}

// ask gets a path of the worker; the status is 0 if nobody answers.
func (w *worker) ask(path string) (status int, body string) {
	w.t.Helper()
	return getFrom(w.t, w.ops(), path)
}

func getFrom(t *testing.T, addr, path string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// readyz asks whether the worker is ready; the status is 0 if nobody answers.
func (w *worker) readyz() (status int, report health.Report) {
	w.t.Helper()
	status, body := w.ask("/readyz")
	if status == 0 {
		return 0, report
	}
	if err := json.Unmarshal([]byte(body), &report); err != nil {
		w.t.Fatalf("/readyz answered %d %q: %v", status, body, err)
	}
	return status, report
}

// series are values by name and labels, as Prometheus writes them, its labels in their
// order: tidegate_jobs{destination="a",status="failed"}.
type series map[string]float64

// sample is a line of the text format.
var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*(?:\{.*\})?) (\S+)$`)

// scrape reads the metrics of a worker.
func (w *worker) scrape() series {
	w.t.Helper()
	status, body := w.ask("/metrics")
	if status != http.StatusOK {
		w.t.Fatalf("/metrics answered %d %s", status, body)
	}
	out := series{}
	lines := bufio.NewScanner(strings.NewReader(body))
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		m := sample.FindStringSubmatch(lines.Text())
		if m == nil {
			w.t.Fatalf("no sample: %q", lines.Text())
		}
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			w.t.Fatalf("no sample: %q", lines.Text())
		}
		out[m[1]] = v
	}
	return out
}

// of keeps the series of a metric and says them by the values of their labels but the
// destination: "", "success". Values are added up where that makes two the same.
func (s series) of(metric, destination string) map[string]float64 {
	out := map[string]float64{}
	for name, v := range s {
		base, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		if base != metric || !strings.Contains(labels, `destination="`+destination+`"`) {
			continue
		}
		var rest []string
		for pair := range strings.SplitSeq(labels, ",") {
			if label, value, _ := strings.Cut(pair, "="); label != "destination" {
				rest = append(rest, strings.Trim(value, `"`))
			}
		}
		out[strings.Join(rest, ",")] += v
	}
	return out
}

// sums adds up what workers count themselves.
func sums(workers []*worker) series {
	out := series{}
	for _, w := range workers {
		for name, v := range w.scrape() {
			out[name] += v
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

// metricsOf are the names of the metrics that a scrape holds, sorted, those of
// histograms without their endings.
func (s series) metricsOf(prefix string) []string {
	seen := map[string]bool{}
	for name := range s {
		base, _, _ := strings.Cut(name, "{")
		for _, ending := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, ending)
		}
		if strings.HasPrefix(base, prefix) {
			seen[base] = true
		}
	}
	var out []string
	for name := range seen {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
