package breaker

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// healthyCall is what a call costs that succeeds while the breaker is CLOSED.
func healthyCall(ctx context.Context, b *Breaker) error {
	permit, err := b.Allow(ctx)
	if err != nil {
		return err
	}
	_, err = permit.Report(ctx, Success())
	return err
}

// Not parallel: it counts allocations.
func TestHealthyPathCostsNoAllocationAndNoCommand(t *testing.T) {
	s := redistest.Start(t)
	b := start(t, s.Client(t), Options{Destination: "api", RefreshInterval: time.Hour})
	settle(t, s)
	s.ResetStats(t)
	ctx := t.Context()
	var err error
	allocations := testing.AllocsPerRun(1000, func() {
		if e := healthyCall(ctx, b); e != nil {
			err = e
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if allocations != 0 {
		t.Errorf("%v allocations per call, want 0", allocations)
	}
	if stats := s.CommandStats(t); len(stats) != 0 {
		t.Errorf("commands for 1000 calls: %v, want none", stats)
	}
}

func BenchmarkHealthyPath(b *testing.B) {
	s := redistest.Start(b)
	br := start(b, s.Client(b), Options{Destination: "api"})
	ctx := b.Context()
	b.Run("single", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := healthyCall(ctx, br); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := healthyCall(ctx, br); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkRefused(b *testing.B) {
	s := redistest.Start(b)
	br := start(b, s.Client(b), Options{Destination: "api", FailureThreshold: 1})
	ctx := b.Context()
	permit, err := br.Allow(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := permit.Report(ctx, RateLimited(0)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := br.Allow(ctx); err == nil {
			b.Fatal("allowed")
		}
	}
}

func BenchmarkRateLimitedReport(b *testing.B) {
	s := redistest.Start(b)
	br := start(b, s.Client(b), Options{Destination: "api", FailureThreshold: 1_000_000})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		permit, err := br.Allow(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := permit.Report(ctx, RateLimited(0)); err != nil {
			b.Fatal(err)
		}
	}
}
