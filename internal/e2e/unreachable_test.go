package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A worker with too few file descriptors for its calls warns at its start, fails no job, and
// does the work with those that it has.
func TestWorkerWithFewFileDescriptors(t *testing.T) {
	t.Parallel()
	const n = 300
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{Latency: 100 * time.Millisecond})
	f.env["DESTINATION_0_CONCURRENCY"] = "100"
	ids := f.enqueue(n)
	w := f.run(exec.Command("sh", "-c", `ulimit -n 64 && exec "$0" worker`, binary))
	f.waitAccepted(n, 60*time.Second)
	f.waitCompleted(ids, 10*time.Second)
	f.exactlyOnce(ids)
	log := w.log.String()
	if !strings.Contains(log, "the limit of open files is too low for all calls at once") {
		t.Errorf("no warning at the start:\n%s", log)
	}
	if begun := strings.Count(log, "calls do not leave this worker"); begun != 1 {
		t.Errorf("%d lines in the log say that calls do not leave, want 1 a minute:\n%s", begun, log)
	}
	most := 0
	for _, id := range ids {
		most = max(most, f.job(id).RescheduleCount)
	}
	t.Logf("no job was rescheduled more than %d times", most)
}

// Where no worker reaches the API all jobs wait, and say why.
func TestJobsSayThatNoWorkerReachesTheAPI(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{})
	f.env["HTTP_PROXY"] = "http://127.0.0.1:1" // nothing listens there
	f.env["DESTINATION_0_URL"] = "http://api.example.com/"
	f.env["DESTINATION_0_CONCURRENCY"] = "2"
	ids := f.enqueue(20, jobs.MaxReschedules(50))
	w := f.start()
	waiting := func(id string) (status, reason, text string) {
		out, stderr, code := f.tidegate("get", id, "-o", "json")
		var j struct {
			Status  string `json:"status"`
			Waiting struct{ Reason, Text string }
		}
		if err := json.Unmarshal([]byte(out), &j); err != nil || code != 0 {
			t.Fatalf("get: %v, exit status %d, %s", err, code, stderr)
		}
		return j.Status, j.Waiting.Reason, j.Waiting.Text
	}
	for _, id := range []string{ids[0], ids[len(ids)-1]} { // one that was tried, one that was not
		redistest.Await(t, 2*time.Minute, "the job says why it waits", func() bool {
			status, reason, text := waiting(id)
			return status == "pending" && reason == "unreachable" && strings.Contains(text, "connection refused")
		})
	}
	if log := w.log.String(); strings.Count(log, "calls do not leave this worker") != 1 {
		t.Errorf("the log:\n%s", log)
	}
	if s := f.api.Stats(); s.Calls != 0 {
		t.Errorf("%d calls", s.Calls)
	}
}
