package breaker

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A slot of a key is passed on to the caller's next call: never are there more calls than slots, and it is
// free after the last one. What else limits calls ends that.
func TestReportNextPassesTheSlotOn(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{KeyConcurrency: 1})
		b := h.b.Key("k")
		refused := func() bool {
			p, err := b.Allow(patient(t))
			if err == nil {
				h.report(p, Neutral())
			}
			return errors.Is(err, ErrOpen)
		}
		p, err := b.Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			_, next, err := p.ReportNext(patient(t), Success())
			if err != nil || next == (Permit{}) || next.Until().IsZero() || !next.Metered() || next.Key() != "k" {
				t.Fatalf("call %d: the next permit is %+v, %v", i, next, err)
			}
			if !refused() {
				t.Fatalf("call %d: two calls at once", i)
			}
			p = next
		}
		if _, next, err := p.ReportNext(patient(t), RateLimited(0)); err != nil || next != (Permit{}) {
			t.Errorf("after a refusal the next permit is %+v, %v", next, err)
		}
		if refused() {
			t.Error("the slot is taken after the last call")
		}

		p, err = b.Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := h.byHand(policy.Tripped, "", millis(minute), ""); got.State != Open {
			t.Fatalf("state %v", got.State)
		}
		if _, next, err := p.ReportNext(patient(t), Success()); err != nil || next != (Permit{}) {
			t.Errorf("while the destination is OPEN the next permit is %+v, %v", next, err)
		}
	})
}
