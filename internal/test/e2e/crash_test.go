package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A worker that is killed loses no job: they run again when their leases are
// found lost, and only those which were in flight are sent twice, with the same
// Idempotency-Key.
func TestKilledWorkerLosesNothing(t *testing.T) {
	t.Parallel()
	const n = 120
	f := newFleet(t, redistest.Start(t), fakeapi.Options{Latency: 150 * time.Millisecond})
	victim := f.start()
	other := f.start()
	ids := f.enqueue(n)
	f.waitAccepted(30, 20*time.Second)
	// Between two calls it may have no job for a moment: it is frozen at one at which it has.
	var inFlight []string
	redistest.Await(t, time.Minute, "the worker has jobs in flight", func() bool {
		if err := victim.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if inFlight = f.heldBy(ids, fmt.Sprintf(":%d", victim.pid())); len(inFlight) > 0 {
			return true
		}
		if err := victim.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		return false
	})
	if code, _ := victim.stop(syscall.SIGKILL); code != -1 {
		t.Fatalf("killed worker exited with %d", code)
	}
	// Their leases would be found lost within two minutes; age them, and let a
	// new worker look, which it does when it starts.
	queue := store.DefaultNamespace.Queue(f.dest, store.Default)
	for _, id := range inFlight {
		if err := f.rdb.ZAddXX(context.Background(), store.LeaseKey(queue), redis.Z{Score: float64(time.Now().Add(-2 * time.Minute).Unix()), Member: id}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	f.start()
	redistest.Await(t, 2*time.Minute, "all jobs are completed", func() bool {
		f.hurry(f.dest)
		return f.stats(f.dest)[0].Counts[jobs.Completed] == n
	})
	accepted := f.api.Accepted()
	suspects := map[string]bool{}
	for _, id := range inFlight {
		suspects[id] = true
		if j, err := f.client.Get(t.Context(), id); err != nil || j.Crashes != 1 {
			t.Errorf("job %s: crashes %d, want 1 (%v)", id, j.Crashes, err)
		}
	}
	for _, id := range ids {
		switch times := accepted[id]; {
		case times == 0:
			t.Errorf("job %s was never accepted", id)
		case times > 2, times == 2 && !suspects[id]:
			t.Errorf("job %s was accepted %d times; in flight at the kill: %v", id, times, suspects[id])
		}
		delete(accepted, id)
	}
	if len(accepted) != 0 {
		t.Errorf("calls with other keys than the jobs' ids: %v", accepted)
	}
	if code, _ := other.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("the other worker exited with %d", code)
	}
}

// heldBy lists the jobs in the hands of a worker.
func (f *fleet) heldBy(ids []string, worker string) []string {
	f.t.Helper()
	var out []string
	for _, id := range ids {
		j, err := f.client.Get(context.Background(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		if j.Status == jobs.Running && strings.HasSuffix(j.Worker, worker) {
			out = append(out, id)
		}
	}
	return out
}

// Redis goes away for ten seconds and comes back with its data: the workers go
// on by themselves, nothing is lost, nothing is sent twice, and the logs stay
// readable.
func TestRedisAwayForTenSeconds(t *testing.T) {
	t.Parallel()
	const n, workers = 100, 3
	server := redistest.Start(t, redistest.WithAOF())
	f := newFleet(t, server, fakeapi.Options{Latency: 700 * time.Millisecond})
	var ws []*worker
	for range workers {
		ws = append(ws, f.start())
	}
	ids := f.enqueue(n)
	f.waitAccepted(20, 20*time.Second)
	before := make([]int, workers)
	for i, w := range ws {
		before[i] = len(w.lines())
	}
	server.Stop()
	atStop := f.api.Stats()
	<-time.After(10 * time.Second) // the outage itself
	during := f.api.Stats()
	server.Restart()
	f.waitCompleted(ids, 60*time.Second)
	f.exactlyOnce(ids)
	if grown := during.Calls - atStop.Calls; grown > workers*10 {
		t.Errorf("%d calls were begun while Redis was away", grown)
	}
	for i, w := range ws {
		if got := len(w.lines()) - before[i]; got > 25 {
			t.Errorf("worker %d wrote %d log lines about an outage of 10 s", i, got)
		}
	}
	t.Logf("calls finished during the outage: %d; log lines of worker 0: %d", during.Accepted-atStop.Accepted+atStop.InFlight, len(ws[0].lines())-before[0])
}

// SIGHUP, as of a terminal that is closed, stops a worker as SIGTERM does: calls in
// flight finish.
func TestSIGHUPDrains(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{Latency: time.Second})
	w := f.start()
	ids := f.enqueue(1)
	if err := f.api.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.InFlight == 1 }); err != nil {
		t.Fatal(err)
	}
	if code, _ := w.stop(syscall.SIGHUP); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if got := f.job(ids[0]); got.Status != jobs.Completed {
		t.Errorf("the job in flight is %s, want completed", got.Status)
	}
	f.exactlyOnce(ids)
}
