package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
)

// A configured rate holds for the fleet, and is used up: workers that wait for their
// turn neither call together nor starve each other. A busy machine loses turns,
// which are not made up for, so the quickest calls count.
func TestConfiguredRate(t *testing.T) {
	const workers, perSecond = 3, 20
	span := 5 * time.Second
	if long {
		span = 60 * time.Second
	}
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{Latency: 30 * time.Millisecond})
	f.env["DESTINATION_0_RATE"] = "20/1s"
	f.enqueue(int(span.Seconds()+5) * perSecond)
	for range workers {
		f.start()
	}
	f.waitAccepted(int(span.Seconds()+2)*perSecond, span+20*time.Second)
	receipts := f.api.Receipts()
	// A call that was let go in time may arrive a turn later on a busy machine, though
	// not one call after the other.
	fastest := func(calls int) time.Duration {
		least := time.Hour
		for i := calls; i < len(receipts); i++ {
			least = min(least, receipts[i].At.Sub(receipts[i-calls].At))
		}
		return least
	}
	for _, seconds := range []int{1, 5} {
		calls, window := seconds*perSecond, time.Duration(seconds)*time.Second
		took := fastest(calls)
		if took < window-time.Second/perSecond {
			t.Errorf("%d calls arrived within %s, want at most %d in %s", calls+1, took, calls, window)
		}
		if took > window*perSecond/16 {
			t.Errorf("%d calls took %s at least, want nearly %d a second", calls, took, perSecond)
		}
	}
	var gaps []time.Duration
	for i := perSecond / 2; i < len(receipts); i++ { // all workers are there
		gaps = append(gaps, receipts[i].At.Sub(receipts[i-1].At))
	}
	slices.Sort(gaps)
	if quarter, most := gaps[len(gaps)/4], time.Second/19; quarter > most {
		t.Errorf("three of four calls came more than %s after the one before, want at most %s", quarter, most)
	}
	took := receipts[len(receipts)-1].At.Sub(receipts[0].At)
	perSec := float64(len(receipts)-1) / took.Seconds()
	t.Logf("%.2f calls a second, half of them within %s; %d calls took at least %s", perSec, gaps[len(gaps)/2], perSecond+1, fastest(perSecond))
}
