package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/serve/health"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Bounds of a stop. Nothing of it depends on the length of calls.
const (
	// soon is how long after its last call a worker may take to be gone. It takes some
	// milliseconds, but for a second at most if somebody asks for its health just then.
	soon = 4 * time.Second
	// unreadyWithin is how old the report of a worker that was ready may be.
	unreadyWithin = time.Second
)

// startNamed starts a worker whose calls say that they are its.
func (f *fleet) startNamed(name string) *worker {
	f.t.Helper()
	f.env["DESTINATION_0_HEADERS"] = "X-Worker:" + name
	return f.start()
}

// callsBy are the calls that a worker has made so far.
func (f *fleet) callsBy(name string) []fakeapi.Receipt {
	var out []fakeapi.Receipt
	for _, r := range f.api.Receipts() {
		if r.Header.Get("X-Worker") == name {
			out = append(out, r)
		}
	}
	return out
}

// inFlight are those of the calls that have no answer yet.
func inFlight(calls []fakeapi.Receipt) int {
	n := 0
	for _, r := range calls {
		if r.Done.IsZero() {
			n++
		}
	}
	return n
}

// stopped is how a worker has ended.
type stopped struct {
	told, gone time.Time // SIGTERM, and the end of the process
	code       int
}

// terminate sends SIGTERM, follows what the worker says of itself until it is gone, and
// checks that: it lives to the end, and is not ready from then on.
func (w *worker) terminate() stopped {
	w.t.Helper()
	addr := w.ops()
	s := stopped{told: time.Now()}
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan stopped, 1)
	go func() {
		err := <-w.done
		s.gone = time.Now()
		w.done <- err
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			s.code = exit.ExitCode()
		}
		ended <- s
	}()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	overdue := time.After(30 * time.Second)
	var unready, silent time.Time
	for {
		select {
		case s := <-ended:
			// On a busy machine no answer may have come since: one that says ready fails below.
			if took := s.gone.Sub(s.told); unready.IsZero() && took > unreadyWithin+2*soon {
				w.t.Errorf("it was never seen not ready in the %s that it took to stop", took)
			}
			if !silent.IsZero() && s.gone.Sub(silent) > soon {
				w.t.Errorf("it served no health for the last %s", s.gone.Sub(silent))
			}
			return s
		case <-overdue:
			w.t.Fatal("the worker did not stop within 30 s")
		case <-poll.C:
			asked := time.Now()
			if status, body := getFrom(w.t, addr, "/healthz"); status == 0 {
				if silent.IsZero() {
					silent = asked
				}
				continue
			} else if status != http.StatusOK || body != "ok\n" {
				w.t.Errorf("/healthz while it stops: %d %q", status, body)
			}
			status, body := getFrom(w.t, addr, "/readyz")
			var report health.Report
			if status == 0 || json.Unmarshal([]byte(body), &report) != nil {
				continue
			}
			switch {
			case status == http.StatusServiceUnavailable:
				if unready.IsZero() {
					unready = asked
				}
				if report.Status != health.NotReady || report.Reason != "the worker shuts down" {
					w.t.Errorf("/readyz while it stops: %s", body)
				}
			case !unready.IsZero():
				w.t.Errorf("it was ready again while it stopped: %s", body)
			case asked.Sub(s.told) > unreadyWithin+200*time.Millisecond:
				w.t.Errorf("it is ready %s after SIGTERM: %s", asked.Sub(s.told), body)
			}
		}
	}
}

// gently checks that a worker stopped in order: it began no call after SIGTERM, and was
// gone once its calls had ended.
func (f *fleet) gently(name string, s stopped, inHand int) {
	f.t.Helper()
	if s.code != 0 {
		f.t.Errorf("worker %s exited with %d", name, s.code)
	}
	end := s.told
	redistest.Await(f.t, 2*time.Minute, "the API sees that worker "+name+" is gone", func() bool { return inFlight(f.callsBy(name)) == 0 })
	for _, r := range f.callsBy(name) {
		if late := r.At.Sub(s.told); late > propagation() {
			f.t.Errorf("worker %s began a call %s after SIGTERM", name, late)
		}
		if r.Done.After(end) {
			end = r.Done
		}
	}
	after := s.gone.Sub(end)
	if after > soon {
		f.t.Errorf("worker %s was gone %s after its last call, want at most %s", name, after, soon)
	}
	f.t.Logf("worker %s had %d calls in flight, which took %s to end; it was gone %s later", name, inHand, end.Sub(s.told), after)
}

// untouched checks that the jobs have been run once and nothing else has befallen them.
func (f *fleet) untouched(ids []string) {
	f.t.Helper()
	f.exactlyOnce(ids)
	for _, id := range ids {
		if j := f.job(id); j.Status != jobs.Completed || j.Attempt != 0 || j.RescheduleCount != 0 || j.Crashes != 0 {
			f.t.Errorf("job %s is %s after %d retries, %d reschedules, %d crashes", id, j.Status, j.Attempt, j.RescheduleCount, j.Crashes)
		}
	}
	for _, r := range f.api.Receipts() {
		if r.Gone {
			f.t.Errorf("the call for %s was cut", r.Key)
		}
	}
}

// An update of three workers under load, with calls of one to two seconds in flight:
// none is cut, none is made twice, nothing is lost, and nobody waits for longer than
// the calls take.
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	const n, concurrency = 70, 4
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{
		LatencyFunc: func(n, _ int) time.Duration { return time.Second + time.Duration(n*7%11)*100*time.Millisecond },
	})
	f.env["DESTINATION_0_CONCURRENCY"] = fmt.Sprint(concurrency)
	f.env["SHUTDOWN_TIMEOUT"] = "20s"
	old := map[string]*worker{}
	for _, name := range []string{"a", "b", "c"} {
		old[name] = f.startNamed(name)
	}
	ids := f.enqueue(n)
	f.waitAccepted(3*concurrency, 10*time.Second)
	for _, name := range []string{"a", "b", "c"} {
		redistest.Await(t, 2*time.Minute, "calls in flight", func() bool { return inFlight(f.callsBy(name)) > 0 })
		f.gently(name, old[name].terminate(), inFlight(f.callsBy(name)))
		f.startNamed("new-" + name)
	}
	if f.api.Stats().Calls == n {
		t.Error("there was no load until the end of the update")
	}
	f.waitCompleted(ids, 30*time.Second)
	f.untouched(ids)
}
