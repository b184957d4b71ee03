package breaker

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// A report that Redis has counted, and that is repeated as its reply was lost, does not hold those that are decided with it.
func TestRepeatedReportHoldsNoOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := start(t, s.Client(t), Options{Destination: "api", FailureThreshold: 10, NoLearning: true, RefreshInterval: time.Hour, Timeout: time.Minute})
	permit := func() Permit {
		p, err := b.Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first, second := permit(), permit()
	refusal := RateLimited(0)
	if _, err := first.Report(patient(t), refusal); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := first.c.resolve(ctx, "", nil, first.happened(&refusal, 0), second.happened(&refusal, 0)); err != nil {
		t.Fatal(err)
	}
	status, err := Get(patient(t), s.Client(t), "api")
	if err != nil || status.Failures != 2 {
		t.Errorf("%d failures, %v: want 2", status.Failures, err)
	}
}
