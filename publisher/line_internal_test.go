package publisher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A job leaves the line when it expires.
func TestAJobInLineExpires(t *testing.T) {
	t.Parallel()
	b, err := breaker.New(t.Context(), redistest.Embedded(t), breaker.Options{Destination: "api", FleetConcurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if _, err := b.Allow(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := &line{serves: true, moved: make(chan struct{}, 1)}
	inLine, _ := l.join(b, 1).Permit.(*place)
	ctx, cancel := context.WithTimeout(t.Context(), inLineFor-time.Second)
	defer cancel()
	if _, err := inLine.wait(ctx, time.Now().Add(50*time.Millisecond)); !errors.Is(err, breaker.ErrOpen) || ctx.Err() != nil {
		t.Errorf("%v, %v, want a refusal once it expires", err, ctx.Err())
	}
}

// A slot is passed on only if its lease lasts for the longest call.
func TestASlotOutlastsACall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		timeout, lease time.Duration
		want           bool
	}{
		{30 * time.Second, 35 * time.Second, true},
		{30 * time.Second, 31 * time.Second, false},
		{time.Second, 6 * time.Second, true},
		{10 * time.Second, 12 * time.Second, false},
		{time.Second, 2 * time.Second, true},
	} {
		s := settings{timeout: c.timeout, breaker: breaker.Options{ProbeTimeout: c.lease, FleetConcurrency: 1}}
		if got := s.onlySlots(); got != c.want {
			t.Errorf("calls of up to %s with a lease of %s: in line %v, want %v", c.timeout, c.lease, got, c.want)
		}
	}
}
