package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// slowStart is how many calls may be in flight when so many have succeeded since the
// probe.
func slowStart(succeeded, most int) int {
	allowed := 1
	for succeeded >= allowed && allowed < most {
		succeeded -= allowed
		allowed *= 2
	}
	if allowed >= most {
		return most
	}
	return allowed
}

// After an incident the fleet begins with one call, then 2, 4, 8 … in flight, each
// round after the successes of the one before; the probe comes alone.
func TestRecoveryBringsNoBurst(t *testing.T) {
	t.Parallel()
	const n, workers, most = 300, 3, 30
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{Latency: 100 * time.Millisecond})
	f.trip(time.Hour)
	ids := f.enqueue(n)
	for range workers { // all are there first: the slow start ends at the capacity of the fleet
		f.start()
	}
	f.trip(500 * time.Millisecond)
	f.waitAccepted(n, 30*time.Second)
	f.waitCompleted(ids, 10*time.Second)
	receipts := f.api.Receipts()
	checkSlowStart(t, receipts, most)
	peak := 0
	for _, r := range receipts {
		peak = max(peak, r.InFlight)
	}
	if peak < most/2 {
		t.Errorf("at most %d calls were in flight; the slow start goes on to %d", peak, most)
	}
	// Rounds of 1, 1, 2, 4, 8 and 16 calls at 100 ms.
	if took := receipts[31].At.Sub(receipts[0].At); took > 3*time.Second+4*delays() {
		t.Errorf("the first 32 calls took %s", took)
	}
	for _, id := range ids {
		if j := f.job(id); j.RescheduleCount != 0 {
			t.Errorf("job %s was put off %d times; the backlog is not to be touched", id, j.RescheduleCount)
		}
	}
}

// checkSlowStart holds the calls in flight at each arrival, the first of which is the
// probe's, against what the successes before it allow.
func checkSlowStart(t *testing.T, receipts []fakeapi.Receipt, most int) {
	t.Helper()
	var ends []time.Time
	for _, r := range receipts {
		ends = append(ends, r.Done)
	}
	slices.SortFunc(ends, time.Time.Compare)
	for i, r := range receipts[1:] {
		succeeded, _ := slices.BinarySearchFunc(ends, r.At, time.Time.Compare)
		if succeeded == 0 {
			t.Fatalf("call %d arrived before the probe was answered", i+2)
		}
		if allowed := slowStart(succeeded-1, most); r.InFlight > allowed {
			t.Errorf("call %d makes %d in flight after %d successes; %d are allowed", i+2, r.InFlight, succeeded-1, allowed)
		}
	}
}
