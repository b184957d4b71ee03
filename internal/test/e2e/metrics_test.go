package e2e

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// What the metrics of three processes add up to is what the API has counted and what stands with
// the jobs.
func TestMetricsAgreeWithTheAPI(t *testing.T) {
	t.Parallel()
	const n = 120
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 60, Window: 2 * time.Second},
		Latency: 20 * time.Millisecond,
	})
	workers := []*worker{f.start(), f.start(), f.start()}
	ids := f.enqueue(n)
	f.waitCompleted(ids, 60*time.Second)
	f.exactlyOnce(ids)
	limited, rescheduled := float64(f.api.Stats().Limited), 0
	for _, id := range ids {
		rescheduled += f.job(id).RescheduleCount
	}
	if limited == 0 {
		t.Error("no call was refused: that proves little")
	}
	for _, row := range []struct {
		metric, label string
		want          float64
	}{
		{"tidegate_publish_attempts_total", `result="success"`, n},
		{"tidegate_publish_attempts_total", `result="rate_limited"`, limited},
		{"tidegate_jobs_finished_total", `status="completed"`, n},
		{"tidegate_wasted_calls_total", "", limited},
		{"tidegate_jobs_rescheduled_total", "", float64(rescheduled)},
	} {
		// Workers count when the bookkeeping is done, a moment after the API has seen the call.
		redistest.Await(t, time.Minute, row.metric+" "+row.label, func() bool {
			return f.total(workers, row.metric, row.label) == row.want
		})
	}
}
