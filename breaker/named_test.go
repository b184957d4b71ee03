package breaker

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// limitedBy are options with named limits: name, rate and calls in flight, such as "tokens 100/1s:200 5".
func limitedBy(limits ...string) (o Options) {
	o = Options{FailureThreshold: 1, Cooldown: minute}
	for _, text := range limits {
		var l NamedLimit
		var rate string
		_, _ = fmt.Sscan(text, &l.Name, &rate, &l.Concurrency)
		if rate != "-" {
			l.Rate = windowed(rate, "").Rate
		}
		o.Limits = append(o.Limits, l)
	}
	return o
}

// drawing does an action with calls that take that.
func drawing(do action, draws ...Draw) action {
	return func(h *harness) string {
		other := *h
		other.b = h.b.Draws(draws...)
		return do(&other)
	}
}

// elsewhere does an action at another destination, with those limits.
func elsewhere(do action, limits ...string) action {
	return func(h *harness) string {
		other := *h
		o := limitedBy(limits...)
		o.Destination = h.place.name + "-2"
		b, err := newTestBreaker(h.rdb, o, h.clock.clock())
		if err != nil {
			h.t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		other.b, other.place = b, placeOf(o.Destination, "")
		look(&other)
		h.known(b)
		return do(&other)
	}
}

func TestNamedLimits(t *testing.T) {
	t.Parallel()
	runRules(t, namedRules())
}

func namedRules() []rule {
	drawn := func(name, key string, cost int) Draw { return Draw{Limit: name, Key: key, Cost: cost} }
	apart := limitedBy("flights-2 - 2", "hourly 100/1h@UTC")
	apart.Rate, apart.KeyRate = windowed("1/1s:1", "").Rate, windowed("1/1h@UTC", "").Rate
	return []rule{
		{"a call takes from all or none", limitedBy("all-calls 10/1s:10", "all-tokens 100/1s:100"), []row{
			{0, drawing(try("a"), drawn("all-tokens", "", 80)), "named"},
			{0, drawing(try("x"), drawn("all-tokens", "", 30)), "D CLOSED rate 100/1s:100 all-tokens for 100ms"},
			{0, drawing(tries(20, "b"), drawn("all-tokens", "", 1)), "9, then D CLOSED rate 10/1s:10 all-calls for 100ms"}, // the refused one took none
			{0, release("a"), "CLOSED"},
			{0, drawing(try("c"), drawn("all-tokens", "", 91)), "named"},
			{0, drawing(try("x"), drawn("all-tokens", "", 101)), "a call that takes 101 of limit all-tokens can never run: the limit is 100/1s:100"},
			{0, drawing(try("x"), drawn("typo", "", 1)), "breaker: allow D: a call draws on limit \"typo\", which the options do not have"},
		}},
		{"destinations share it", limitedBy("shared 10/1s:10"), []row{
			{0, tries(6, "a"), "6"},
			{0, elsewhere(tries(9, "b"), "shared 10/1s:10"), "4, then D CLOSED rate 10/1s:10 shared for 100ms"},
			{0, try("x"), "D CLOSED rate 10/1s:10 shared for 100ms"},
			// One that has another value: together they keep the larger.
			{0, elsewhere(tries(9, "c"), "shared 10/1s:12"), "2, then D CLOSED rate 10/1s:12 shared for 100ms"},
		}},
		{"a budget for each value of its key", limitedBy("by-model 10/1s:10"), []row{
			{0, drawing(try("a"), drawn("by-model", "gpt/4", 10)), "named"},
			{0, drawing(try("b"), drawn("by-model", "gpt-5", 10)), "named"},
			{0, drawing(try("x"), drawn("by-model", "gpt-5", 1)), "D CLOSED rate 10/1s:10 by-model/gpt-5 for 100ms"},
			{0, release("b"), "CLOSED"},
			{0, drawing(try("b"), drawn("by-model", "gpt-5", 10)), "named"},
		}},
		{"the response corrects it", limitedBy("real 100/1s:100"), []row{
			{0, drawing(try("a"), drawn("real", "", 50)), "named"},
			{0, tell("a", Success().WithDraws(drawn("real", "", 10))), "CLOSED"},
			{0, tell("a", Success().WithDraws(drawn("real", "", 10))), "CLOSED"}, // again: it counts nothing
			{0, drawing(try("b"), drawn("real", "", 90)), "named"},
			{0, tell("b", RateLimited(0).WithDraws(drawn("real", "", 140))), "OPEN 1m0s failures=1 threshold wasted=1"},
		}},
		{"a permit that was acquired before the call was known", limitedBy("calls-2 10/1s:10 2", "tokens-2 100/1s:100"), []row{
			{0, try("a"), "named slots"},
			{0, forDraws("a", "", drawn("tokens-2", "", 60), drawn("calls-2", "k", 1)), "named slots"},
			{0, forDraws("a", "", drawn("tokens-2", "", 101)), "a call that takes 101 of limit tokens-2 can never run: the limit is 100/1s:100"},
			{0, drawing(try("x"), drawn("tokens-2", "", 41)), "D CLOSED rate 100/1s:100 tokens-2 for 10ms"},
			{0, drawing(try("b"), drawn("tokens-2", "", 40)), "named slots"},
			{0, release("a"), "CLOSED"},
			{0, drawing(try("c"), drawn("tokens-2", "", 60)), "named slots"},
		}},
		{"what stays as it was before a window's end is not given back after it", limitedBy("by-hour 100/1h@UTC", "by-second 100/1s:100"), []row{
			{59 * minute, drawing(try("a"), drawn("by-hour", "", 60)), "named"},
			{61 * minute, forDraws("a", "", drawn("by-hour", "", 60), drawn("by-second", "", 5)), "named"},
			{61 * minute, drawing(try("b"), drawn("by-hour", "", 100)), "named"},
			{61 * minute, release("a"), "CLOSED"},
			{61 * minute, try("x"), "D CLOSED rate 100/1h@UTC by-hour for 58m59.877s"},
		}},
		{"calls in flight", limitedBy("flights - 2"), []row{
			{0, tries(3, "a"), "2, then D CLOSED concurrency flights for 100ms"},
			{0, elsewhere(try("x"), "flights - 2"), "D CLOSED concurrency flights for 100ms"},
			{0, tell("a0", Success().Ongoing()), "CLOSED"},
			{0, try("x"), "D CLOSED concurrency flights for 100ms"},
			{0, end("a0"), ""},
			{0, try("b"), "named slots"},
			{0, tell("a1", RateLimited(time.Second)), "OPEN 1s failures=1 hint wasted=1"},
			{0, elsewhere(try("c"), "flights - 2"), "named slots"},
			{36 * second, elsewhere(tries(3, "d"), "flights - 2"), "2, then D CLOSED concurrency flights for 100ms"}, // leases have ended
		}},
		{"what the destination or a key refuses has taken nothing", apart, []row{
			{0, drawing(try("a"), drawn("hourly", "", 10)), "named rate slots"},
			{0, drawing(try("x"), drawn("hourly", "", 10)), "D CLOSED rate 1/1s for 1s"},
			{1 * second, forDraws("a", "k", drawn("hourly", "", 30)), "key-rate named rate slots"},
			{1 * second, drawing(try("b"), drawn("hourly", "", 10)), "named rate slots"},
			{1 * second, forDraws("b", "k", drawn("hourly", "", 40), drawn("flights-2", "other", 1)), "D/k CLOSED rate 1/1h@UTC for 59m58.877s"},
			{1 * second, usage("hourly", ""), "40 of 100"},
			{1 * second, usage("flights-2", ""), "2 of 2"},
			{1 * second, usage("flights-2", "other"), "0 of 2"},
			{1 * second, release("a"), "CLOSED"},
			{1 * second, release("a"), "CLOSED"},
			{1 * second, usage("hourly", ""), "10 of 100"},
			{1 * second, usage("flights-2", ""), "1 of 2"},
		}},
		{"a report that is repeated", limitedBy("hourly-2 100/1h@UTC 2"), []row{
			{0, drawing(try("a"), drawn("hourly-2", "", 50)), "named slots"},
			{0, drawing(try("b"), drawn("hourly-2", "", 10)), "named slots"},
			{0, repeated("a", Success().WithDraws(drawn("hourly-2", "", 20))), "CLOSED"},
			{0, usage("hourly-2", ""), "30 of 100, 1 of 2"},
			{0, repeated("b", RateLimited(time.Second).WithDraws(drawn("hourly-2", "", 30))), "OPEN 1s failures=1 hint wasted=1"},
			{0, usage("hourly-2", ""), "50 of 100, 0 of 2"},
			{time.Hour, tell("a", Success().WithDraws(drawn("hourly-2", "", 1))), "HALF_OPEN failures=1 hint wasted=1"},
			{time.Hour, usage("hourly-2", ""), "0 of 100, 0 of 2"},
		}},
		{"what is drawn later is of its own window", limitedBy("hourly-3 10/1h@UTC", "tokens-3 100/1s:100"), []row{
			{0, try("a"), "named"},
			{time.Hour, forDraws("a", "", drawn("tokens-3", "", 5)), "named"},
			{time.Hour, try("b"), "named"},
			{time.Hour, release("a"), "CLOSED"},
			{time.Hour, usage("hourly-3", ""), "1 of 10"}, // that of b
		}},
	}
}

// repeated reports a permit, and once more as if the reply had been lost.
func repeated(name string, o Outcome) action {
	return func(h *harness) string {
		got := tell(name, o)(h)
		h.permits[name].oweReport(o)
		h.b.sendOwed(patient(h.t))
		return got
	}
}

// usage is what is used of a limit: of its first window, and of its calls in flight.
func usage(name, key string) action {
	return func(h *harness) string {
		keys := DefaultNamespace.limitKeys(name, key)
		var parts []string
		for _, l := range h.options.Limits {
			if l.Name != name {
				continue
			}
			now := time.UnixMicro(h.clock.redis)
			for _, w := range usedOf(l.Rate, h.rdb.HGetAll(h.t.Context(), keys[0]).Val(), now) {
				parts = append(parts, fmt.Sprint(w.Used, " of ", l.Rate[0].Calls))
			}
			if l.Concurrency > 0 {
				parts = append(parts, fmt.Sprint(h.rdb.ZCount(h.t.Context(), keys[1], fmt.Sprint("(", now.UnixMilli()), "+inf").Val(), " of ", l.Concurrency))
			}
		}
		return strings.Join(parts, ", ")
	}
}

// forDraws makes of a permit one for a call that takes that, and may have a key. A refused one stays as it is.
func forDraws(name, key string, draws ...Draw) action {
	return func(h *harness) string {
		had := h.permits[name]
		p, err := had.ForCall(h.t.Context(), key, 1, draws...)
		got := h.got(name, p, err)
		if err != nil {
			h.permits[name] = had
		}
		return got
	}
}

func end(name string) action {
	return func(h *harness) string {
		if err := h.permits[name].End(patient(h.t)); err != nil {
			h.t.Fatal(err)
		}
		return ""
	}
}

// A call that draws on three limits costs one script, as one that draws on one.
func TestNamedLimitsCostOneScript(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := limitedBy("a 1000/1s:1000", "b 1000/1h@UTC", "c 1000/1s:1000")
	o.Destination, o.RefreshInterval, o.Rate = "api", time.Hour, manyCalls
	b := start(t, server.Client(t), o).Draws(Draw{"b", "k", 7}, Draw{"c", "", 3})
	if _, err := b.Allow(t.Context()); err != nil { // then Redis knows the script
		t.Fatal(err)
	}
	server.ResetStats(t)
	const calls = 50
	for range calls {
		p, err := b.Allow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Report(t.Context(), Success()); err != nil {
			t.Fatal(err)
		}
	}
	if got := server.CommandStats(t)["evalsha"]; got != calls {
		t.Errorf("%d scripts for %d calls, want one for each", got, calls)
	}
}

// On a Redis Cluster the limits lie on other nodes: calls are never more than a limit allows, and what a refused call
// took of the others is given back.
func TestNamedLimitsOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("forms a Redis Cluster")
	}
	t.Parallel()
	rdb := redistest.StartCluster(t).Client(t)
	for _, r := range namedRules() {
		t.Run(r.name, func(t *testing.T) { newHarness(t, rdb, r.options).run(r.rows) })
	}
	o := limitedBy("wide 50/1h:50", "narrow 20/1h:20", "flights - 3")
	var granted, flying atomic.Int64
	var callers sync.WaitGroup
	for i := range 3 {
		o.Destination = fmt.Sprint("api-", i)
		b := start(t, rdb, o).Draws(Draw{Limit: "wide", Key: "k"})
		for range 3 {
			callers.Go(func() {
				for {
					p, err := b.Allow(t.Context())
					open, refused := errors.AsType[*OpenError](err)
					switch {
					case refused && open.Limit == "narrow":
						return
					case refused && open.Limit == "flights":
						continue
					case err != nil:
						t.Error(err)
						return
					}
					granted.Add(1)
					if n := flying.Add(1); n > 3 {
						t.Errorf("%d calls in flight", n)
					}
					flying.Add(-1)
					if _, err := p.Report(t.Context(), Success().WithDraws(Draw{Limit: "wide", Cost: 2})); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	callers.Wait()
	read, err := DefaultNamespace.ReadOne(t.Context(), rdb, Query{Limits: true}, "api-0")
	if err != nil {
		t.Fatal(err)
	}
	use := read.Limits.Named
	got := fmt.Sprintln(granted.Load(), use[0].Key, use[0].Windows[0].Used, use[1].Windows[0].Used, use[2].Concurrency.Used)
	if want := "20 k 40 20 0\n"; got != want {
		t.Errorf("calls, key, used of wide and narrow, and in flight are %s, want %s", got, want)
	}
}

// What a permit and its report cost by the number of named limits: one script, and a second one for calls in flight.
//
//	go test ./breaker -run '^$' -bench NamedLimits -benchtime 3s
func BenchmarkNamedLimits(b *testing.B) {
	rdb := redistest.Database(b).Client(b)
	for _, n := range []int{1, 3, 8} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			o := Options{Destination: redistest.Name(b, "named"), RefreshInterval: time.Hour}
			for i := range n {
				o.Limits = append(o.Limits, NamedLimit{Name: fmt.Sprint("limit-", i), Rate: manyCalls})
			}
			br := start(b, rdb, o)
			for b.Loop() {
				p, err := br.Allow(b.Context())
				if err == nil {
					_, err = p.Report(b.Context(), Success())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
