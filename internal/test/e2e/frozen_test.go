package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A worker that is frozen (SIGSTOP, a suspended machine) for far longer than the
// timeout of its calls has not timed out: the API has accepted the calls. The jobs run
// again with the same Idempotency-Key, and no attempt and no crash is counted.
func TestFrozenWorker(t *testing.T) {
	t.Parallel()
	const n = 5
	frozen := 6 * time.Second // three times the timeout
	if long {
		frozen = 150 * time.Second // longer than a lease and until it is recovered
	}
	for _, tc := range []struct {
		name   string
		beside bool // another worker runs meanwhile, and recovers the jobs
	}{{"alone", false}, {"beside another worker", true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, redistest.Shared(t), fakeapi.Options{Latency: 700 * time.Millisecond})
			f.env["DESTINATION_0_TIMEOUT"] = "2s"
			w := f.start()
			ids := f.enqueue(n, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1}))
			redistest.Await(t, 2*time.Minute, "all calls are in flight", func() bool { return f.api.Stats().InFlight == n })
			if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if tc.beside {
				f.start()
			}
			<-time.After(frozen) // the freeze itself
			if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			f.waitCompleted(ids, 60*time.Second)
			accepted := f.api.Accepted()
			for _, id := range ids {
				var j *jobs.Job
				// A crash that was counted is taken back when the worker reports.
				for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(100 * time.Millisecond) {
					if j = f.job(id); j.Attempt == 0 && j.Crashes == 0 {
						break
					}
				}
				if j.Attempt != 0 || j.Crashes != 0 {
					t.Errorf("job %s: attempt %d, crashes %d, want 0 of each; last error %q", id, j.Attempt, j.Crashes, j.LastError)
				}
				if calls := accepted[id]; calls < 1 || calls > 2 {
					t.Errorf("job %s was accepted %d times, want once or twice", id, calls)
				}
				delete(accepted, id)
			}
			if len(accepted) > 0 {
				t.Errorf("calls with other keys than the jobs' ids: %v", accepted)
			}
		})
	}
}
