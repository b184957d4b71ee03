package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/serve/health"
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

// total adds up a metric of all workers for a destination: its series with the labels.
func (f *fleet) total(workers []*worker, metric string, labels ...string) (sum float64) {
	f.t.Helper()
	for _, w := range workers {
		status, body := w.ask("/metrics")
		if status != http.StatusOK {
			f.t.Fatalf("/metrics answered %d %s", status, body)
		}
		for line := range strings.Lines(body) {
			series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			if !strings.HasPrefix(series, metric+"{") || slices.ContainsFunc(append(labels, `destination="`+f.dest+`"`), func(label string) bool {
				return !strings.Contains(series, label)
			}) {
				continue
			}
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				f.t.Fatalf("not a sample: %q", line)
			}
			sum += v
		}
	}
	return sum
}
