package breaker

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// leaving does something on the breaker for calls that leave a part to more urgent ones.
func leaving(percent int, do action) action {
	return func(h *harness) string {
		other := *h
		other.b = h.b.Leave(percent)
		return do(&other)
	}
}

func TestReserve(t *testing.T) {
	t.Parallel()
	capped := Options{FailureThreshold: 1, Cooldown: minute, NoLearning: true, FleetConcurrency: 5}
	runRules(t, []rule{
		{"of a fixed window", windowed("10/1h@UTC", ""), []row{
			{0, leaving(20, tries(99, "a")), "8, then D CLOSED rate 10/1h@UTC reserved for 58m59.877s"},
			{0, leaving(10, tries(99, "b")), "1, then D CLOSED rate 10/1h@UTC reserved for 58m59.877s"},
			{0, tries(99, "c"), "1, then D CLOSED rate 10/1h@UTC for 59m59.877s"},
			{0, leaving(20, try("x")), "D CLOSED rate 10/1h@UTC for 59m59.877s"},
			{0, release("c0"), "CLOSED"},
		}},
		{"of a fixed window, for all in its last minute", windowed("10/1h@UTC", ""), []row{
			{0, leaving(20, tries(99, "a")), "8, then D CLOSED rate 10/1h@UTC reserved for 58m59.877s"},
			{59*minute - 124*time.Millisecond, leaving(20, try("x")), "D CLOSED rate 10/1h@UTC reserved for 1ms"},
			{59 * minute, leaving(20, tries(99, "b")), "2, then D CLOSED rate 10/1h@UTC for 59.877s"},
			{60 * minute, leaving(20, tries(99, "c")), "8, then D CLOSED rate 10/1h@UTC reserved for 58m59.877s"},
		}},
		{"of a burst", windowed("60/1h:5", ""), []row{
			{0, leaving(20, tries(99, "a")), "4, then D CLOSED rate reserved for 1m0s"},
			{0, tries(99, "b"), "1, then D CLOSED rate for 1m0s"},
			{minute, leaving(20, try("x")), "D CLOSED rate reserved for 1m0s"},
			{2 * minute, leaving(20, tries(99, "c")), "1, then D CLOSED rate reserved for 1m0s"},
		}},
		{"nothing of one call", windowed("60/1h,1/1h@UTC", ""), []row{
			{0, leaving(99, tries(99, "a")), "1, then D CLOSED rate 1/1h@UTC for 59m59.877s"},
		}},
		{"of a key's window", windowed("", "10/1h@UTC"), []row{
			{0, of("k", leaving(20, tries(99, "a"))), "8, then D/k CLOSED rate 10/1h@UTC reserved for 58m59.877s"},
			{0, leaving(20, ask("b")), "permit"},
			{0, forKey("b", "k", "x"), "D/k CLOSED rate 10/1h@UTC reserved for 58m59.877s"},
			{0, of("k", try("c")), "key-rate"},
		}},
		{"of the calls in flight", capped, []row{
			{0, leaving(20, tries(99, "a")), "4, then D CLOSED concurrency for 1s"},
			{0, tries(99, "b"), "1, then D CLOSED concurrency for 1s"},
			{0, release("a0"), "CLOSED"},
			{0, leaving(20, try("x")), "D CLOSED concurrency for 1s"},
			{0, try("c"), "counted"},
		}},
		{"of a named limit's calls in flight", limitedBy("reserved - 5"), []row{
			{0, leaving(20, tries(99, "a")), "4, then D CLOSED concurrency reserved for 100ms"},
			{0, elsewhere(tries(99, "b"), "reserved - 5"), "1, then D CLOSED concurrency reserved for 100ms"}, // though the other has waited longer
			{0, release("a0"), "CLOSED"},
			{0, leaving(20, try("x")), "D CLOSED concurrency reserved for 100ms"},
			{second, elsewhere(try("c"), "reserved - 5"), "named slots"},
		}},
	})
}

// A slot that is reserved wakes the instance that may take it, and not the one that has waited longer.
func TestAReservedSlotWakesUrgentCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var woken [2]atomic.Int64
	var instances [2]*Breaker
	for i := range instances {
		o := Options{Destination: "d", KeyConcurrency: 5, OnSlot: func(string) { woken[i].Add(1) }}
		instances[i] = start(t, server.Client(t), o)
	}
	low, high := instances[0].Key("k").Leave(40), instances[1].Key("k")
	first, err := low.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := high.Allow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range []*Breaker{low, high} {
		if _, err := b.Allow(t.Context()); !errors.Is(err, ErrOpen) {
			t.Fatal(err)
		}
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the urgent one is woken", func() bool { return woken[1].Load() == 1 })
	if n := woken[0].Load(); n > 0 {
		t.Errorf("the other one was woken %d times", n)
	}
}
