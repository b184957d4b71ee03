package breaker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// costing does an action with calls of that cost.
func costing(n int, do action) action {
	return func(h *harness) string {
		other := *h
		other.b = h.b.Cost(n)
		return do(&other)
	}
}

// forCall makes of a permit one for a call of that cost, which goes by the same name.
func forCall(name, key string, cost int) action {
	return func(h *harness) string {
		p, err := h.permits[name].ForCall(h.t.Context(), key, cost)
		return h.got(name, p, err) // a refusal keeps the former one
	}
}

func TestCosts(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"a cost is taken from all windows or none", windowed("10/1s:20,60/1m:60", ""), []row{
			{0, costing(15, try("a")), "rate"},
			{0, costing(6, try("x")), "D CLOSED rate 10/1s:20 for 100ms"},
			{0, costing(5, try("b")), "rate"},
			{0, costing(20, try("x")), "D CLOSED rate 10/1s:20 for 2s"},
			{2 * second, costing(20, try("c")), "rate"},
			{4 * second, costing(20, try("d")), "rate"}, // 60, of which 4 are back
			{4 * second, release("d"), "CLOSED"},
			{4 * second, costing(20, try("e")), "rate"},
			{4 * second, try("x"), "D CLOSED rate 10/1s:20 for 100ms"},
			{6 * second, costing(20, try("x")), "D CLOSED rate 60/1m:60 for 14s"},
			{6 * second, tries(9, "f"), "6, then D CLOSED rate 60/1m:60 for 1s"}, // the refused one took nothing
		}},
		// A permit that was acquired before the call was known.
		{"the permit of a call with a cost", windowed("10/1s:10,100/1h@Europe/Paris", "20/1h:20"), []row{
			{0, try("a"), "rate"},
			{0, forCall("a", "", 4), "rate"},
			{0, costing(7, try("x")), "D CLOSED rate 10/1s:10 for 100ms"},
			{0, costing(3, try("y")), "rate"},
			{0, forCall("a", "", 10), "D CLOSED rate 10/1s:10 for 300ms"},
			{0, release("y"), "CLOSED"},
			{0, forCall("a", "", 10), "rate"},
			{0, forCall("a", "", 2), "rate"}, // 8 are given back
			{0, costing(9, try("x")), "D CLOSED rate 10/1s:10 for 100ms"},
			{0, costing(8, try("b")), "rate"},
			{second, forCall("b", "k", 10), "key-rate rate"}, // takes 2 of the destination, 10 of the key
			{second, of("k", costing(9, try("x"))), "D CLOSED rate 10/1s:10 for 100ms"},
			{second, of("k", costing(8, try("c"))), "key-rate rate"},
			{2 * second, try("d"), "rate"},
			{2 * second, forCall("d", "k", 5), "D/k CLOSED rate 20/1h:20 for 8m59s"},
			{2 * second, costing(9, try("e")), "rate"}, // what the key refused took nothing of the destination
			{2 * second, of("k", release("c")), "CLOSED"},
			{2 * second, costing(9, try("x")), "D CLOSED rate 10/1s:10 for 100ms"},
			{2 * second, forCall("d", "k", 5), "key-rate rate"},
		}},
	})
}

// A cost above the burst waits until nothing is used, and leaves a debt. One above a window is
// refused for ever.
func TestALargeCost(t *testing.T) {
	t.Parallel()
	runRows(t, windowed("10/1s:2", ""),
		row{0, try("a"), "rate"},
		row{0, costing(5, try("x")), "D CLOSED rate for 100ms"},
		row{100 * time.Millisecond, costing(5, try("b")), "rate"},
		row{100 * time.Millisecond, try("x"), "D CLOSED rate for 400ms"},
		row{500 * time.Millisecond, try("c"), "rate"},
	)
	b, err := newTestBreaker(redistest.Database(t).Client(t), Options{
		Destination: "shop", Rate: windowed("10/1s:2,100/1d@UTC", "").Rate, KeyRate: windowed("5/1m:40", "").Rate,
	}, newFakeClock().clock())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	for _, tc := range []struct {
		key  string
		cost int
		want string
	}{
		{"", 11, "a call of cost 11 can never run: the declared limit of shop is 10/1s:2"},
		{"", 1 << 40, "a call of cost 1099511627776 can never run: the declared limit of shop is 10/1s:2"},
		{"", 10, ""},
		{"k", 10, ""},
		{"", -5, ""},
	} {
		_, err := b.Key(tc.key).Cost(tc.cost).Allow(t.Context())
		if never, is := errors.AsType[*CostError](err); (tc.want != "") != is || is && never.Error() != tc.want {
			t.Errorf("cost %d of key %q: %v, want %q", tc.cost, tc.key, err, tc.want)
		}
	}
	if _, never := (Rates{{Calls: 5, Per: minute, Burst: 40}}).TooSmall(40); never {
		t.Error("a burst of 40 has no room for a cost of 40")
	}
}

func TestTheTrueCostCorrects(t *testing.T) {
	t.Parallel()
	runRows(t, windowed("10/1s:20,100/1h@Europe/Paris", ""),
		row{0, costing(15, try("a")), "rate"},
		row{0, tell("a", Success().WithCost(5)), "CLOSED"}, // 10 are given back
		row{0, tell("a", Success().WithCost(5)), "CLOSED"}, // once
		row{0, costing(16, try("x")), "D CLOSED rate 10/1s:20 for 100ms"},
		row{0, costing(15, try("b")), "rate"},
		row{0, tell("b", Answered(500).WithCost(25)), "CLOSED"}, // a debt of 10
		row{0, try("x"), "D CLOSED rate 10/1s:20 for 1.1s"},
		row{1100 * time.Millisecond, try("c"), "rate"},
		row{time.Minute, costing(20, try("d")), "rate"},
		row{time.Minute, tell("d", Success().WithCost(1000)), "CLOSED"},                                                // a debt is bounded
		row{time.Minute, try("x"), "D CLOSED rate 100/1h@Europe/Paris for 58m59.877s"},                                 // it is used up
		row{59*minute + 59*second + 877*time.Millisecond, tries(99, "e"), "20, then D CLOSED rate 10/1s:20 for 100ms"}, // a new one
	)
	runRows(t, windowed("10/1s:20", ""),
		row{0, try("a"), "rate"},
		row{0, tell("a", Success().WithCost(5000)), "CLOSED"},
		row{time.Second, try("x"), "D CLOSED rate for 1.1s"},
		row{2100 * time.Millisecond, try("b"), "rate"},
	)
}

// Whatever costs, corrections and releases there are: what is charged stays within the window and
// its burst, unless calls have cost more than they were permitted.
func TestChargedCostsStayWithinTheWindow(t *testing.T) {
	redistest.Slow(t) // not parallel: it sets flags
	setDefault(t, "rapid.checks", "30")
	setDefault(t, "rapid.nofailfile", "true")
	rdb := redistest.Database(t).Client(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		r := Rate{Calls: rapid.IntRange(1, 30).Draw(rt, "calls"), Per: 10 * second, Burst: rapid.IntRange(1, 40).Draw(rt, "burst")}
		if rapid.Bool().Draw(rt, "fixed") {
			r.Burst, r.Zone = 0, "UTC"
		}
		c := newFakeClock()
		b, err := newTestBreaker(rdb, Options{Destination: fmt.Sprint("costs-", n), Rate: Rates{r}}, c.clock())
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		if err := rdb.HSet(t.Context(), b.place.keys[1], ":capacity", 1).Err(); err != nil {
			rt.Fatal(err)
		}
		if err := b.readSnapshot(patient(t)); err != nil {
			rt.Fatal(err)
		}
		most := max(r.Calls, r.Burst)
		type charge struct {
			Permit
			at   time.Time
			cost int
		}
		var all []charge
		now := func() time.Time { return time.UnixMicro(c.redis) }
		allow := func(rt *rapid.T, cost int) error {
			p, err := b.Cost(cost).Allow(patient(t))
			if err != nil && !errors.Is(err, ErrOpen) {
				rt.Fatal(err)
			}
			if err == nil {
				all = append(all, charge{p, now(), cost})
			}
			return err
		}
		cost := func(rt *rapid.T) int { return rapid.IntRange(1, most).Draw(rt, "cost") }
		rt.Repeat(map[string]func(*rapid.T){
			"allow": func(rt *rapid.T) { _ = allow(rt, cost(rt)) },
			"wait": func(rt *rapid.T) { // a refusal names the instant at which the cost is granted
				n := cost(rt)
				if refused, ok := errors.AsType[*OpenError](allow(rt, n)); ok {
					c.advance(refused.RetryAfter, refused.RetryAfter)
					if err := allow(rt, n); err != nil {
						rt.Fatalf("cost %d after a wait of %v: %v", n, refused.RetryAfter, err)
					}
				}
			},
			"charge": func(rt *rapid.T) {
				if len(all) == 0 || !all[len(all)-1].at.Equal(now()) {
					return
				}
				last := &all[len(all)-1]
				n := cost(rt)
				p, err := last.ForCall(patient(t), "", n)
				if err == nil {
					last.Permit, last.cost = p, n
				} else if n <= last.cost || !errors.Is(err, ErrOpen) {
					rt.Fatal(err)
				}
			},
			"report": func(rt *rapid.T) {
				if len(all) == 0 || !all[len(all)-1].at.Equal(now()) {
					return
				}
				last := &all[len(all)-1]
				n := rapid.IntRange(1, last.cost).Draw(rt, "true cost")
				if _, err := last.Report(patient(t), Success().WithCost(n)); err != nil {
					rt.Fatal(err)
				}
				last.cost = n
				last.at = last.at.Add(-1) // reported
			},
			"time": func(rt *rapid.T) {
				d := time.Duration(rapid.Int64Range(1, int64(8*second)).Draw(rt, "time"))
				c.advance(d, d)
			},
			"": func(rt *rapid.T) {
				for i, last := range all {
					sum, largest := 0, 1
					for _, g := range all[:i+1] {
						same := g.at.After(last.at.Add(-r.Per))
						if r.Zone != "" {
							same = g.at.Add(1).Truncate(r.Per).Equal(last.at.Add(1).Truncate(r.Per))
						}
						if same {
							sum, largest = sum+g.cost, max(largest, g.cost)
						}
					}
					bound := r.Calls + max(r.Burst, largest)
					if r.Zone != "" {
						bound = r.Calls
					}
					if sum > bound {
						rt.Fatalf("%d were charged by %s until %v, want at most %d", sum, r, last.at, bound)
					}
				}
			},
		})
	})
}
