package cli

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

// A list says when a job failed, besides why, and of a running one whose worker is lost that.
func TestDetailOfAListedJob(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 31, 14, 30, 0, 0, time.Local)
	ended := now.Add(-3 * time.Minute)
	for want, job := range map[string]*jobs.Job{
		"failed 3m ago: 422 Unprocessable":  {Status: jobs.Failed, EndedAt: &ended, LastError: "422 Unprocessable"},
		"on h:1":                            {Status: jobs.Running, Worker: "h:1", LastError: "of the call before"},
		"a parent failed":                   {Status: jobs.Cancelled, EndedAt: &ended, LastError: "a parent failed"},
		"answered 201":                      {Status: jobs.Completed, EndedAt: &ended, Response: &jobs.Response{Status: 201}},
		"expired " + explain.At(ended, now): {Status: jobs.Expired, MarkedExpiredAt: &ended},
		"":                                  {Status: jobs.Pending},
	} {
		if got := detail(job, nil, now); got != want {
			t.Errorf("%s: %q, want %q", job.Status, got, want)
		}
	}
	lost := &explain.Waiting{Reason: explain.WorkerLost, Text: "its worker h:1 has sent no heartbeat for 40s"}
	if got := detail(&jobs.Job{Status: jobs.Running, Worker: "h:1"}, lost, now); got != lost.Text {
		t.Errorf("of a lost worker: %q", got)
	}
}
