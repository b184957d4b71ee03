package breaker

import (
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Many instances report at the same moment: each report is applied once, whichever of them another instance overtakes.
func TestStormOfReports(t *testing.T) {
	t.Parallel()
	const instances, each = 40, 5
	for name, threshold := range map[string]int{"below the threshold": 1000, "opens": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			var permits [instances][each]Permit
			for i := range permits {
				b := start(t, s.Client(t), Options{Destination: "api", FailureThreshold: threshold, NoLearning: true, RefreshInterval: time.Hour, Timeout: time.Minute})
				for j := range permits[i] {
					p, err := b.Allow(patient(t))
					if err != nil {
						t.Fatal(err)
					}
					permits[i][j] = p
				}
			}
			s.ResetStats(t)
			begin := make(chan struct{})
			var group sync.WaitGroup
			for i := range permits {
				for _, p := range permits[i] {
					group.Go(func() {
						<-begin
						if _, err := p.Report(patient(t), RateLimited(0)); err != nil {
							t.Error(err)
						}
					})
				}
			}
			began := time.Now()
			close(begin)
			group.Wait()
			scripts := s.CommandStats(t)["evalsha"]
			status, err := DefaultNamespace.Get(patient(t), s.Client(t), "api")
			if err != nil {
				t.Fatal(err)
			}
			if scripts > 2*instances*each {
				t.Errorf("%d scripts for %d reports: instances are in each other's way", scripts, instances*each)
			}
			t.Logf("%d reports of %d instances in %v, %d scripts", instances*each, instances, time.Since(began), scripts)
			if counted := max(status.Failures, status.Wasted); counted != instances*each {
				t.Errorf("%d reports are counted, want %d: %+v", counted, instances*each, status)
			}
		})
	}
}

// What one instance reports at once is decided together.
func TestReportsOfOneInstanceAreDecidedTogether(t *testing.T) {
	t.Parallel()
	const calls = 30
	s := redistest.Start(t)
	b := start(t, s.Client(t), Options{Destination: "api", RefreshInterval: time.Hour, Timeout: time.Minute})
	settle(t, s)
	var permits []Permit
	for range calls {
		p, err := b.Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		permits = append(permits, p)
	}
	s.ResetStats(t)
	var group sync.WaitGroup
	for _, p := range permits {
		group.Go(func() {
			if _, err := p.Report(patient(t), RateLimited(0)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := s.CommandStats(t)["evalsha"]; n > calls/2 {
		t.Errorf("%d scripts for %d reports", n, calls)
	} else {
		t.Logf("%d scripts for %d reports", n, calls)
	}
	if status := b.Status(); status.State != Open || status.Wasted != calls {
		t.Errorf("status: %+v", status)
	}
}
