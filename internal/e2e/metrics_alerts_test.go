package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/fakehttp"
	"github.com/tidegate/tidegate/internal/fakepager"
	"github.com/tidegate/tidegate/internal/fakeslack"
)

// What people were sent, and what could not be sent at the first try, is what Slack and
// PagerDuty have counted; and of the alerting's own jobs no other metric speaks.
func TestMetricsAgreeOnAlerts(t *testing.T) {
	t.Parallel()
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.slack.SetFault(fakehttp.WithStatus(http.StatusServiceUnavailable).On("chat.postMessage").Times(1))
	workers := a.startWorkers(3)
	a.wholeIncident(40)

	want := map[string]float64{}
	add := func(outcome, receiver, kind string, n int) {
		if n > 0 {
			want[outcome+"{"+receiver+","+kind+"}"] += float64(n)
		}
	}
	count := func() map[string]float64 {
		clear(want)
		kinds := map[string]string{"chat.postMessage": "message", "chat.update": "update"}
		for _, r := range a.slack.Requests() {
			if kind, ok := kinds[r.Method]; ok && r.Status == http.StatusOK {
				add("sent", "slack", kind, 1)
			} else if ok {
				add("failed", "slack", kind, 1)
			}
		}
		for _, e := range a.pager.Events() {
			add("sent", "pagerduty", e.Action, 1)
		}
		return want
	}
	said := func() map[string]float64 {
		out := map[string]float64{}
		for name, v := range sums(workers) {
			for outcome, metric := range map[string]string{"sent": "tidegate_alerts_sent_total{", "failed": "tidegate_alerts_failed_total{"} {
				if labels, ok := strings.CutPrefix(name, metric); ok {
					kind, receiver, _ := strings.Cut(strings.TrimSuffix(labels, "}"), ",")
					out[outcome+"{"+strings.Trim(strings.TrimPrefix(receiver, "receiver="), `"`)+","+strings.Trim(strings.TrimPrefix(kind, "kind="), `"`)+"}"] += v
				}
			}
		}
		return nonzero(out)
	}
	var diff string
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if diff = cmp.Diff(count(), said()); diff == "" || time.Now().After(deadline) {
			break
		}
	}
	if diff != "" {
		t.Errorf("what was sent (-counted by receivers +said by workers)\n%s", diff)
	}
	if want["failed{slack,message}"] != 1 || want["sent{pagerduty,trigger}"] != 1 || want["sent{pagerduty,resolve}"] != 1 || want["sent{slack,message}"] < 3 {
		t.Errorf("not what was meant to happen has: %v", want)
	}
	for name := range workers[0].scrape() {
		if strings.Contains(name, "tidegate-alerts") {
			t.Errorf("a series of Tidegate's own destination: %s", name)
		}
	}
}
