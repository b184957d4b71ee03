package permits_test

import (
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/permits"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// two returns the permits of two instances of the API, whose destination shop has these options.
func two(t *testing.T, o breaker.Options) (a, b *permits.Permits) {
	t.Helper()
	rdb := redistest.Database(t).Client(t)
	instance := func() *permits.Permits {
		p := permits.New(permits.Options{Redis: rdb, Namespace: store.Namespace("tidegate")})
		p.Set(map[string]permits.Destination{"shop": {Breaker: o}})
		t.Cleanup(p.Close)
		return p
	}
	return instance(), instance()
}

func grant(t *testing.T, p *permits.Permits, r permits.Request) permits.Granted {
	t.Helper()
	r.Destination = "shop"
	g, err := p.Grant(t.Context(), r)
	if err != nil {
		t.Fatalf("grant: %v", err)
	}
	return g
}

// refused asks for a permit, and returns why there is none.
func refused(t *testing.T, p *permits.Permits, r permits.Request) *breaker.OpenError {
	t.Helper()
	r.Destination = "shop"
	_, err := p.Grant(t.Context(), r)
	open, ok := errors.AsType[*breaker.OpenError](err)
	if !ok {
		t.Fatalf("granted, or another error: %v", err)
	}
	return open
}

func report(t *testing.T, p *permits.Permits, id string, r permits.Report) {
	t.Helper()
	if err := p.Report(t.Context(), id, r); err != nil {
		t.Fatalf("report: %v", err)
	}
}

// The instances of the API share the slots, and either takes the report of the other's permit, once.
func TestEitherInstanceTakesTheReport(t *testing.T) {
	t.Parallel()
	a, b := two(t, breaker.Options{FleetConcurrency: 2})
	first, second := grant(t, a, permits.Request{Owner: "token:x"}), grant(t, b, permits.Request{Owner: "token:x"})
	if open := refused(t, a, permits.Request{}); open.Cause != breaker.CauseConcurrency {
		t.Errorf("refused because of %s, want concurrency", open.Cause)
	}
	if err := b.Report(t.Context(), first.ID, permits.Report{Outcome: permits.Success, Owner: "token:y"}); !errors.Is(err, permits.ErrNotFound) {
		t.Errorf("another token's report: %v", err)
	}
	report(t, b, first.ID, permits.Report{Outcome: permits.Success, Owner: "token:x"})
	if err := a.Report(t.Context(), first.ID, permits.Report{Outcome: permits.Success, Owner: "token:x"}); !errors.Is(err, permits.ErrNotFound) {
		t.Errorf("a second report: %v", err)
	}
	grant(t, a, permits.Request{Wait: 5 * time.Second})
	report(t, a, second.ID, permits.Report{Outcome: permits.Unused, Owner: "token:x"})
	grant(t, b, permits.Request{Wait: 5 * time.Second})
}

// A refused call stops all; after the wait one permit is the probe, whose success lets all call again.
func TestARefusedCallStopsAll(t *testing.T) {
	t.Parallel()
	a, b := two(t, breaker.Options{})
	report(t, b, grant(t, a, permits.Request{Key: "alice"}).ID, permits.Report{
		Status: http.StatusTooManyRequests, Headers: http.Header{"Retry-After": {"1"}},
	})
	for _, p := range []*permits.Permits{a, b} {
		redistest.Eventually(t, "the key is refused", func() bool {
			_, err := p.Grant(t.Context(), permits.Request{Destination: "shop", Key: "alice"})
			return errors.Is(err, breaker.ErrOpen)
		})
	}
	grant(t, b, permits.Request{Key: "bob"})
	probe := grant(t, a, permits.Request{Key: "alice", Wait: 20 * time.Second})
	if !probe.Probe {
		t.Error("the first permit after the wait is not the probe")
	}
	if open := refused(t, b, permits.Request{Key: "alice"}); open.State == breaker.Closed {
		t.Errorf("a second permit beside the probe is refused in %s", open.State)
	}
	report(t, b, probe.ID, permits.Report{Status: http.StatusOK})
	grant(t, a, permits.Request{Key: "alice", Wait: 5 * time.Second})
}

// A client that died leaks nothing: its slot is free after its lease.
func TestALeaseEnds(t *testing.T) {
	t.Parallel()
	a, b := two(t, breaker.Options{FleetConcurrency: 1})
	lost := grant(t, a, permits.Request{Lease: time.Second})
	if left := time.Until(lost.Until); left > time.Second {
		t.Errorf("a lease of a second lasts %s", left)
	}
	grant(t, b, permits.Request{Wait: 20 * time.Second})
	redistest.Eventually(t, "the permit is forgotten", func() bool {
		return errors.Is(a.Report(t.Context(), lost.ID, permits.Report{Outcome: permits.Success}), permits.ErrNotFound)
	})
}

// A permit takes its cost of the declared limit; a call that was not made gives it back.
func TestUnusedGivesBack(t *testing.T) {
	t.Parallel()
	rate, err := breaker.ParseRate("10/1h:10")
	if err != nil {
		t.Fatal(err)
	}
	a, b := two(t, breaker.Options{Rate: breaker.Rates{rate}})
	g := grant(t, a, permits.Request{Cost: 8})
	if open := refused(t, b, permits.Request{Cost: 3}); open.Cause != breaker.CauseRate {
		t.Errorf("refused because of %s, want rate", open.Cause)
	}
	report(t, b, g.ID, permits.Report{Outcome: permits.Unused})
	g = grant(t, b, permits.Request{Cost: 8})
	report(t, a, g.ID, permits.Report{Status: http.StatusOK, Cost: 1})
	grant(t, b, permits.Request{Cost: 9})
	if _, err := a.Grant(t.Context(), permits.Request{Destination: "shop", Cost: 11}); !errors.As(err, new(*breaker.CostError)) {
		t.Errorf("a cost above the window: %v", err)
	}
	if _, err := a.Grant(t.Context(), permits.Request{Destination: "shop", Key: "a/b"}); !errors.Is(err, breaker.ErrInvalidKey) {
		t.Errorf("a bad key: %v", err)
	}
}

// A call that uses a token of a pool is charged to that token, so the request names it.
func TestPoolNeedsAMember(t *testing.T) {
	t.Parallel()
	p := permits.New(permits.Options{Redis: redistest.Database(t).Client(t), Namespace: store.Namespace("tidegate")})
	t.Cleanup(p.Close)
	p.Set(map[string]permits.Destination{"shop": {Pool: true, Breaker: breaker.Options{KeyRate: breaker.Rates{{Calls: 1, Per: time.Hour}}}}})
	if _, err := p.Grant(t.Context(), permits.Request{Destination: "shop"}); !errors.Is(err, permits.ErrNoMember) {
		t.Errorf("without a key: %v", err)
	}
	grant(t, p, permits.Request{Key: "app-1"})
	if open := refused(t, p, permits.Request{Key: "app-1"}); open.Name != "shop/app-1" {
		t.Errorf("refused by %s", open.Name)
	}
}
