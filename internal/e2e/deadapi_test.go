package e2e

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// An API that is dead when the cooldown ends gets one probe after 1, 2, 4 … seconds,
// and a job is retried only for the call that was made for it.
func TestDeadAPIGetsProbesThatBackOff(t *testing.T) {
	t.Parallel()
	const n, workers, failing = 60, 3, 3
	gaps := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
	always := func(a fakeapi.Answer) func(*fleet) {
		return func(f *fleet) { f.api.SetScript(func(int, *http.Request) *fakeapi.Answer { return &a }) }
	}
	healed := func(f *fleet) { f.api.SetScript(nil) }
	for _, c := range []struct {
		name       string
		dead, heal func(*fleet)
	}{
		{"answers 500", always(fakeapi.Answer{Status: http.StatusInternalServerError}), healed},
		{"cuts the connection", always(fakeapi.Answer{Status: http.StatusBadGateway, Drop: true}), healed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, redistest.Shared(t), fakeapi.Options{Latency: 20 * time.Millisecond})
			f.env["CIRCUIT_BREAKER_COOLDOWN_MS"] = "60000" // bounds the pauses between probes
			f.trip(300 * time.Millisecond)
			// The first retry of a job comes after all that is looked at here.
			ids := f.enqueue(n, jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 30 * time.Second, BackoffMultiplier: 1, MaxDelay: 30 * time.Second}))
			c.dead(f)
			for range workers {
				f.start()
			}
			var failed []time.Time
			redistest.Await(t, 2*time.Minute, "3 failed probes", func() bool {
				failed = f.failures(ids)
				return len(failed) >= failing
			})
			c.heal(f)
			// The fourth finds it alive.
			f.waitAccepted(1, 10*time.Second)
			receipts := f.api.Receipts()
			first := slices.IndexFunc(receipts, func(r fakeapi.Receipt) bool { return r.Status == http.StatusCreated })
			times := append(failed, receipts[first].At)
			// The failures are told by when they were settled, a moment after the calls.
			for i, want := range gaps {
				if gap := times[i+1].Sub(times[i]); gap < want-500*time.Millisecond || gap > 2*want {
					t.Errorf("probe %d came %s after the one before, want %s", i+2, gap, want)
				}
			}
			f.waitAccepted(n-failing, 20*time.Second)
			if got := f.failures(ids); len(got) != failing {
				t.Errorf("%d calls failed, want %d", len(got), failing)
			}
			retried := 0
			for _, id := range ids {
				j := f.job(id)
				switch {
				case j.Status == jobs.RetryPending && j.Attempt == 1:
					retried++
				case j.Attempt != 0 || j.Status == jobs.Failed:
					t.Errorf("job %s is %s after %d retries", id, j.Status, j.Attempt)
				}
			}
			if retried != failing {
				t.Errorf("%d jobs wait for a retry, want %d: one for each probe", retried, failing)
			}
			for _, e := range f.history()[1:] {
				if e.To == breaker.Open {
					t.Errorf("opened again at %s (%s)", e.At, e.Cause)
				}
			}
		})
	}
}

// An API that refuses connections when the cooldown ends has seen no call: the probe is not
// used up, no job is retried or failed, and all go on when it is back.
func TestAPIThatRefusesConnectionsHasSeenNoCall(t *testing.T) {
	t.Parallel()
	const n, workers = 60, 3
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{Latency: 20 * time.Millisecond})
	f.trip(300 * time.Millisecond)
	ids := f.enqueue(n)
	_ = f.api.Close()
	for range workers {
		f.start()
	}
	redistest.Await(t, 2*time.Minute, "each worker has tried", func() bool {
		tries := 0
		for _, id := range ids {
			tries += f.job(id).RescheduleCount
		}
		return tries >= workers
	})
	if _, err := f.api.Start(f.url[len("http://"):]); err != nil {
		t.Fatal(err)
	}
	f.waitAccepted(n, 30*time.Second)
	redistest.Await(t, 2*time.Minute, "all jobs are completed", func() bool {
		for _, id := range ids {
			if j := f.job(id); j.Status != jobs.Completed || j.Attempt != 0 || j.RescheduleCount > 8 {
				return false
			}
		}
		return true
	})
	if s := f.api.Stats(); s.Accepted != n {
		t.Errorf("%d calls were accepted, want %d", s.Accepted, n)
	}
}

// failures returns when calls failed for which a job is retried, the oldest first.
func (f *fleet) failures(ids []string) []time.Time {
	f.t.Helper()
	var out []time.Time
	for _, id := range ids {
		if f.job(id).Attempt == 0 {
			continue
		}
		entries, err := f.client.History(context.Background(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Event == "retry_scheduled" {
				out = append(out, e.At)
			}
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}

func (f *fleet) job(id string) *jobs.Job {
	f.t.Helper()
	j, err := f.client.Get(context.Background(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return j
}

// trip opens the destination's breaker, or that of a key.
func (f *fleet) trip(length time.Duration, key ...string) {
	f.t.Helper()
	name := f.dest
	for _, k := range key {
		name += "/" + k
	}
	if _, err := breaker.Trip(context.Background(), f.rdb, name, breaker.TripOptions{For: length}); err != nil {
		f.t.Fatal(err)
	}
}
