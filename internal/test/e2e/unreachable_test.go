package e2e

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
