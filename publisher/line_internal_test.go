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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := breaker.New(ctx, redistest.Embedded(t), breaker.Options{Destination: "api", FleetConcurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if _, err := b.Allow(ctx); err != nil {
		t.Fatal(err)
	}
	l := &line{serves: true, moved: make(chan struct{}, 2)}
	ended := make(chan string, 2)
	wait := func(name string, expires time.Time) {
		inLine, _ := l.join(b, 1).Permit.(*place)
		go func() {
			_, err := inLine.wait(ctx, expires)
			if !errors.Is(err, breaker.ErrOpen) && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want a refusal", name, err)
			}
			ended <- name
		}()
	}
	wait("a job that does not expire", time.Time{})
	wait("a job that expires", time.Now().Add(50*time.Millisecond))
	if first := <-ended; first != "a job that expires" {
		t.Errorf("%s leaves the line first", first)
	}
	cancel()
	<-ended
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
