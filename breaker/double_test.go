package breaker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/breaker/internal/learner"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// The scripts start and count calls as the double does, with which the learner is measured.
func TestMeterAndItsDouble(t *testing.T) {
	redistest.Slow(t) // not parallel: it sets flags
	setDefault(t, "rapid.checks", "60")
	setDefault(t, "rapid.steps", "80")
	setDefault(t, "rapid.nofailfile", "true")
	rdb := redistest.Database(t).Client(t)
	n := 0
	type call struct {
		Permit
		sent    float64
		decides bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		n++
		c := newFakeClock()
		cooldown := time.Duration(rapid.SampledFrom([]int{3, 30, 300}).Draw(rt, "cooldown")) * time.Second
		b, err := newTestBreaker(rdb, Options{Destination: fmt.Sprint("double-", n), Cooldown: cooldown, CooldownJitter: -1, MaxInFlight: 16, ProbeTimeout: 10 * time.Hour}, c.clock())
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		if err := rdb.HSet(t.Context(), b.place.keys[1], ":capacity", 16).Err(); err != nil {
			rt.Fatal(err)
		}
		if err := b.readSnapshot(patient(t)); err != nil {
			rt.Fatal(err)
		}
		d := &learner.Double{Cooldown: cooldown.Seconds(), Capacity: 16}
		var calls []call
		now := func() float64 { return float64(c.redis) / 1e6 }
		metered := func() (n int) {
			for _, c := range calls {
				if c.Metered() && !c.Probe() {
					n++
				}
			}
			return n
		}
		ask := func(rt *rapid.T) bool {
			start, decides, wait := d.Ask(now(), metered())
			if !start && wait < .005 { // the scripts round to ms
				c.advance(10*time.Millisecond, 10*time.Millisecond)
				start, decides, wait = d.Ask(now(), metered())
			}
			p, err := b.Allow(patient(t))
			for range 3 {
				if start && errors.Is(err, ErrOpen) {
					c.advance(10*time.Millisecond, 10*time.Millisecond)
					p, err = b.Allow(patient(t))
				}
			}
			if start != (err == nil) || err != nil && !errors.Is(err, ErrOpen) {
				rt.Fatalf("the scripts say %v, and the double %v, wait %v: %s", err, start, wait, compare(b, d))
			}
			if start {
				calls = append(calls, call{Permit: p, sent: now(), decides: decides})
			}
			return start
		}
		report := func(rt *rapid.T, accepted bool) {
			if len(calls) == 0 {
				return
			}
			i := rapid.IntRange(0, len(calls)-1).Draw(rt, "call")
			one := calls[i]
			calls = append(calls[:i], calls[i+1:]...)
			o := RateLimited(0)
			if accepted {
				o = Success()
			}
			if _, err := one.Report(patient(t), o); err != nil {
				rt.Fatal(err)
			}
			if accepted {
				d.Accepted(now(), one.sent, one.decides, metered())
			} else {
				d.Refused(now(), one.sent, one.decides, metered())
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) { ask(rt) },
			"calls": func(rt *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(rt, "n") {
					if ask(rt) {
						report(rt, true)
					}
					d := time.Duration(math.Exp(rapid.Float64Range(8, 15).Draw(rt, "ln µs"))) * time.Microsecond
					c.advance(d, d)
				}
			},
			"accept": func(rt *rapid.T) { report(rt, true) },
			"refuse": func(rt *rapid.T) { report(rt, false) },
			"wait": func(rt *rapid.T) {
				d := time.Duration(math.Exp(rapid.Float64Range(5, 17).Draw(rt, "ln µs"))) * time.Microsecond
				c.advance(d, d)
			},
			"": func(rt *rapid.T) {
				if difference := compare(b, d); difference != "" {
					rt.Fatal(difference)
				}
			},
		})
	})
}

// compare says how what the scripts keep differs from what the double knows.
func compare(b *Breaker, d *learner.Double) string {
	r := &b.view.Load().record
	known, m := d.Known()
	refused := r.Failures
	if r.State != Closed {
		refused = r.Probes
	}
	counted := meterOf(r, refused) // but what each call changes is not published
	if err := b.rdb.HGet(context.Background(), b.place.keys[0], "round_used").Scan(&counted.Used); err != nil && !errors.Is(err, redis.Nil) {
		return err.Error()
	}
	read := r.learner()
	for is, want := range map[*float64]*float64{&read.Pace.Fast: &known.Pace.Fast, &read.Pace.Slow: &known.Pace.Slow, &read.Pace.Length: &known.Pace.Length} {
		if math.Abs(*is-*want) < .01+.02**want { // the scripts round
			*want = *is
		}
	}
	d.Round(known.Pace) // else calls in a round would differ by one now and then
	is, want := sketch(r.State == Closed, read, counted), sketch(d.Closed(), known, m)
	if is == want {
		return ""
	}
	return "the scripts: " + is + "\nthe double:  " + want
}

func sketch(closed bool, s learner.State, m learner.Meter) string {
	p := &s.Pace
	if !closed {
		m.Room, m.Confirm = 0, 0
	}
	return fmt.Sprintf("closed %v, refused %d, room %d, confirm %d, used %v, %s pace %.3f to %.3f s, length %.3f s, seen %d, slots %+v",
		closed, m.Refused, m.Room, m.Confirm, m.Used, p.Stage, p.Fast, p.Slow, p.Length, p.Seen, s.Slots)
}

// meterOf are the numbers that the scripts count, after so many refusals in a row.
func meterOf(r *record, refused int) learner.Meter {
	return learner.Meter{
		Round: float64(r.RoundStarted) / 1e6, Anchor: float64(r.RoundAnchor) / 1e6, Used: r.RoundUsed, Total: r.RoundTotal,
		Paced: r.RoundPaced, Calm: r.RoundCalm, Refused: refused, LastNo: float64(r.RefusedAt) / 1e6, Room: r.Ramp, Confirm: r.Confirming,
	}
}
