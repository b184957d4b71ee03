package breaker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// grant is a permit that was not released.
type grant struct {
	Permit
	at time.Time
}

// Whatever is asked, released and however time passes: no window of the destination or of a key
// holds more calls than it may, a call that is refused takes from no window, and a released one is
// there again.
func TestDeclaredLimitsHold(t *testing.T) {
	redistest.Slow(t) // not parallel: it sets flags
	setDefault(t, "rapid.checks", "40")
	setDefault(t, "rapid.nofailfile", "true")
	rdb := redistest.Database(t).Client(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		o := Options{Destination: fmt.Sprint("windows-", n)}
		o.Rate, o.KeyRate = drawRates(rt, "rate"), drawRates(rt, "key rate")
		c := newFakeClock()
		b, err := newTestBreaker(rdb, o, c.clock())
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		if err := rdb.HSet(t.Context(), placeOf(o.Destination, "").keys[1], ":capacity", 1).Err(); err != nil {
			rt.Fatal(err)
		}
		if err := b.readSnapshot(patient(t)); err != nil {
			rt.Fatal(err)
		}
		keys := []string{"k", "l"}
		defer func() {
			for _, key := range keys {
				rdb.Del(t.Context(), placeOf(o.Destination, key).keys...)
			}
		}()
		held := map[string][]grant{}
		now := func() time.Time { return time.UnixMicro(c.redis) }
		key := func(rt *rapid.T) string { return rapid.SampledFrom(keys).Draw(rt, "key") }
		allow := func(rt *rapid.T, key string) error {
			p, err := b.Key(key).Allow(patient(t))
			if err != nil && !errors.Is(err, ErrOpen) {
				rt.Fatal(err)
			}
			if err == nil {
				held[key] = append(held[key], grant{p, now()})
			}
			return err
		}
		rt.Repeat(map[string]func(*rapid.T){
			"allow": func(rt *rapid.T) {
				k := key(rt)
				for range rapid.IntRange(1, 6).Draw(rt, "calls") {
					_ = allow(rt, k)
				}
			},
			"wait": func(rt *rapid.T) { // a refusal names the instant at which a call is granted
				k := key(rt)
				if refused, ok := errors.AsType[*OpenError](allow(rt, k)); ok {
					c.advance(refused.RetryAfter, refused.RetryAfter)
					if err := allow(rt, k); err != nil {
						rt.Fatalf("after a wait of %v: %v", refused.RetryAfter, err)
					}
				}
			},
			"release": func(rt *rapid.T) {
				k := key(rt)
				last := len(held[k]) - 1
				if last < 0 || !held[k][last].at.Equal(now()) {
					return
				}
				if err := held[k][last].Release(patient(t)); err != nil {
					rt.Fatal(err)
				}
				held[k] = held[k][:last]
				if err := allow(rt, k); err != nil {
					rt.Fatalf("after a release: %v", err)
				}
			},
			"time": func(rt *rapid.T) {
				d := time.Duration(rapid.Int64Range(1, int64(40*second)).Draw(rt, "time"))
				c.advance(d, d)
			},
			"": func(rt *rapid.T) {
				var all []grant
				for _, k := range keys {
					checkWindows(rt, "key "+k, o.KeyRate, held[k])
					all = append(all, held[k]...)
				}
				slices.SortFunc(all, func(a, b grant) int { return a.at.Compare(b.at) })
				checkWindows(rt, "destination", o.Rate, all)
			},
		})
	})
}

func drawRates(rt *rapid.T, name string) Rates {
	var all Rates
	for _, per := range []time.Duration{second, 10 * second, minute} {
		if !rapid.Bool().Draw(rt, fmt.Sprint(name, " has ", per)) {
			continue
		}
		r := Rate{Calls: rapid.IntRange(1, 12).Draw(rt, "calls"), Per: per}
		if rapid.Bool().Draw(rt, "fixed") {
			r.Zone = "Europe/Paris"
		} else {
			r.Burst = rapid.IntRange(1, 20).Draw(rt, "burst")
		}
		all = append(all, r)
	}
	return all
}

// checkWindows fails if a window has more than its calls and burst.
func checkWindows(rt *rapid.T, of string, rates Rates, calls []grant) {
	for _, r := range rates {
		from, most := 0, r.Calls+r.Burst
		for i, g := range calls {
			for !calls[from].at.Add(r.Per).After(g.at) || r.Zone != "" && calls[from].at.Truncate(r.Per) != g.at.Truncate(r.Per) {
				from++
			}
			if i-from+1 > most {
				rt.Fatalf("%s: %d calls by %s until %v", of, i-from+1, r, g.at)
			}
		}
	}
}
