package publisher

import (
	"fmt"
	"testing"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// What a rule or a handler says that a call has cost corrects the limits of its unit, or the one that it names.
func TestWhatACallHasReallyCost(t *testing.T) {
	t.Parallel()
	named := func(name, unit string) NamedLimit {
		return NamedLimit{NamedLimit: breaker.NamedLimit{Name: name, Unit: unit}}
	}
	d := &decider{s: settings{limits: []NamedLimit{named("calls", ""), named("in", "tokens"), named("out", "tokens"), named("other", "bytes")}}}
	got := d.really(&jobs.Job{Cost: 7, Costs: map[string]int{"tokens": 3, ":out": 5}})
	if want := "[{calls  7} {in  3} {out  5}]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// A job without limits is admitted at no cost.
func TestAdmitAllocatesNothing(t *testing.T) {
	b, err := breaker.New(t.Context(), redistest.Shared(t).Client(t), breaker.Options{Destination: redistest.Name(t, "d")})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	d := &decider{}
	g := &gate{b: b, reach: &reach{}, priceOf: d.priceOf, unknown: d.s.unknown()}
	g.reserve(nil)
	p, err := b.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var permit any = p
	for name, has := range map[string]any{"without a permit": nil, "with one": permit} {
		if n := testing.AllocsPerRun(100, func() { g.Admit(t.Context(), "q", "", 1, "", has) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
