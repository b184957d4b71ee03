package breaker

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A report that Redis has counted, and that is repeated because its reply was lost, holds no other report of its batch.
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
	if _, err := first.c.resolve(ctx, "", first.happened(&refusal, 0), second.happened(&refusal, 0)); err != nil {
		t.Fatal(err)
	}
	status, err := DefaultNamespace.Get(patient(t), s.Client(t), "api")
	if err != nil || status.Failures != 2 {
		t.Errorf("%d failures, %v: want 2", status.Failures, err)
	}
}

// Failures that a success has reset within a batch are not added to the failures that another instance counts meanwhile.
func TestSuccessWithinABatchResets(t *testing.T) {
	t.Parallel()
	var record policy.State
	record.State, record.Failures = policy.Closed, 1
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	d := decision{parse: parseRecord, options: policy.Options{Cooldown: 1000, MaxCooldown: 1000}, reply: reply{now: 1_763_690_400_123_000, whole: [2]string{string(text)}, more: "=== 0 0 0 "}}
	for i, kind := range []policy.Kind{policy.Succeeded, policy.Limited, policy.Limited} {
		d.add(&happened{Event: policy.Event{Kind: kind, Permit: token(uint64(i)), Threshold: 5}})
	}
	own, changed, err := d.next("0 1 2")
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	if slices.Contains(own, any("counts")) {
		t.Errorf("a swap that resets failures only counts: %v", own)
	}
}

// An instance whose mirror is older learns by a look at the record what another one has done.
func TestALookShowsWhatIsStored(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	b := start(t, rdb, Options{Destination: "api", RefreshInterval: time.Hour})
	older := *b.view.Load()
	older.changed = make(chan struct{})
	if _, err := DefaultNamespace.Trip(patient(t), rdb, "api", TripOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, b, "OPEN", func(v View) bool { return v.State == Open })
	b.view.Store(&older)
	if err := b.heal(patient(t), ""); err != nil || b.Status().State != Open {
		t.Errorf("%v, %v: want OPEN", b.Status().State, err)
	}
}
