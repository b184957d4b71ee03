package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A million random events, with a clock that also goes back: whatever happens, the next call is never further away than the
// longest cooldown, no transition is without its entry, a repeated report changes nothing, and neither does an outcome that
// is not watched for.
func TestAMillionSteps(t *testing.T) {
	t.Parallel()
	const steps = 1_000_000
	random := rand.New(rand.NewPCG(1, 2))
	o := options
	o.Learn, o.Multiplier, o.Jitter = true, 2, .1
	p := Pair{Destination: State{Name: "D"}, Keyed: true, Capacity: 16}
	keys := []State{{Name: "D/a"}, {Name: "D/b"}, {Name: "D/c"}, {Name: "D/d"}}
	now := int64(epoch)
	kinds := []Kind{Limited, Limited, Limited, Succeeded, Succeeded, Succeeded, Failed, Neutral, Unauthorized, Due, Due, Due, Counted}
	watched := [...]Kind{Succeeded, Failed, Neutral}
	rare := []Kind{Tripped, Forcing, Reset, Renewed, Forgotten}
	began := time.Now()
	for step := range steps {
		switch random.IntN(1000) {
		case 0:
			now -= random.Int64N(2 * 3600e6)
		default:
			now += random.Int64N(20e6)
		}
		o.EarlyTests = step/100_000%2 == 0
		key := &keys[random.IntN(len(keys))]
		p.Key = *key
		e := Event{
			Kind: kinds[random.IntN(len(kinds))], Permit: "p", Generation: p.Destination.Generation, Sent: now - 50_000, Threshold: 3, Enough: 10,
			Metered: random.IntN(2) == 0, KeyMetered: random.IntN(2) == 0, OfKey: random.IntN(2) == 0,
		}
		if random.IntN(1000) == 0 {
			e.Kind, e.Length = rare[random.IntN(len(rare))], random.Int64N(60*second)
		}
		switch random.IntN(8) {
		case 0:
			e.Hint = random.Int64N(30 * second)
		case 1:
			e.Announces, e.Left, e.ResetIn = true, random.Int64N(40), random.Int64N(60*second)
		case 2:
			e.Outage = "down"
		case 3:
			e.Scope = "global"
		}
		if random.IntN(3) == 0 { // the meter grants the probe's lease
			for _, s := range []*State{&p.Destination, &p.Key} {
				if s.State == HalfOpen && s.ProbeToken == "" {
					s.ProbeToken, s.ProbeStarted, s.ProbeUntil = "p", now/1000, now/1000+30*second
				}
			}
		}
		if q := (Event{Kind: watched[step/16%3], Permit: "q", Generation: e.Generation, Sent: e.Sent, Threshold: 3, Enough: 10}); step%16 == 0 {
			settled, _ := p.Next(Event{Kind: Counted}, now, o) // the clock may have gone back
			unseen, more := settled.Next(q, now, o)
			if !settled.Destination.Watches(q.Kind) && !settled.Key.Watches(q.Kind) && len(more) > 0 {
				t.Fatalf("%+v is not watched for, and changes\n%+v to\n%+v", q, settled, unseen)
			}
		}
		was := [2]State{p.Destination, p.Key}
		next, effects := p.Next(e, now, o)
		if step%8 == 0 && slices.Contains(kinds[:9], e.Kind) {
			once, _ := next.Next(Event{Kind: Counted}, now, o) // the clock may have gone back
			again := e
			again.Known, again.Metered, again.KeyMetered = true, false, false
			if twice, more := once.Next(again, now, o); len(more) > 0 {
				t.Fatalf("%+v, repeated, changes\n%+v to\n%+v", e, once, twice)
			}
		}
		for i, s := range []State{next.Destination, next.Key} {
			moved := ""
			for _, effect := range effects {
				if effect.OfKey == (i == 1) && effect.Event != nil && !effect.Note {
					moved = effect.Event.To
				}
			}
			if was[i].State == "" {
				was[i].State = Closed
			}
			if s.State != was[i].State && moved != s.State {
				t.Fatalf("%s: from %s to %s by %+v without an event: %+v", s.Name, was[i].State, s.State, e, effects)
			}
			longest := int64(25*3600*second) + 2
			if e.Kind != Limited && was[i].LearnedSince == 0 && s.LearnedSince == 0 {
				longest = int64(o.MaxCooldown) + 2
			}
			if wait := max(s.OpenUntil, s.ProbeAfter) - now/1000; len(effects) > 0 && moved != "" && wait > longest {
				t.Fatalf("%s: the next call is %d ms away after %+v: %+v", s.Name, wait, e, s)
			}
			if s.State == Open && s.OpenUntil == 0 && s.Cause != "manual" {
				t.Fatalf("%s: OPEN without an end after %+v: %+v", s.Name, e, s)
			}
		}
		p, *key = next, next.Key
		p.NewBudget, p.KeyBudget = false, false
	}
	t.Logf("%.0f steps a second", steps/time.Since(began).Seconds())
}

func BenchmarkNext(b *testing.B) {
	p := Pair{Destination: closedState(), Capacity: 16}
	for b.Loop() {
		q, _ := p.Next(Event{Kind: Limited, Permit: "p", Generation: 1000, Threshold: 3}, epoch, options)
		_ = q
	}
}
