package policy

import "testing"

// A limit whose calls come back at once accepts each test. The calls beside the test show it, but not those for jobs that
// are refused again and again, nor the few that an API refuses at random.
func TestCallsBesideATest(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		accepted, refused, again int // beside each test
		limit                    bool
		hint                     int64
	}{
		"a fast limit":    {1, 4, 0, true, 0},
		"calls at once":   {3, 3, 0, true, 0},
		"hopeless jobs":   {1, 0, 5, false, 0},
		"hopeless, hints": {1, 4, 0, false, 5 * second},
		"a short hint":    {1, 4, 0, true, second},
		"some at random":  {6, 1, 0, false, 0},
		"one in a third":  {6, 3, 0, false, 0},
		"nothing beside":  {0, 0, 0, false, 0},
		"all is accepted": {5, 0, 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options
			o.Learn, o.EarlyTests = true, true
			p := Pair{Destination: closedState(), Capacity: 16}
			p.Destination.AloneAt, p.Destination.Ramp = epoch/1000, 8
			now := int64(epoch)
			report := func(kind Kind, permit string, again bool) {
				now += 1000
				p.InFlight = 5
				hint := int64(0)
				if kind == Limited {
					hint = row.hint
				}
				p, _ = p.Next(Event{
					Kind: kind, Permit: permit, Job: permit, Doubt: again, Metered: true, Sent: now - 50_000, Threshold: 3,
					Generation: p.Destination.Generation, Hint: hint,
				}, now, o)
			}
			for range 3 {
				if p.Destination.LearnedSince > 0 {
					break
				}
				report(Limited, "first", false)
				for range row.accepted {
					report(Succeeded, "accepted", false)
				}
				for range row.refused {
					report(Limited, "refused", false)
				}
				for range row.again {
					report(Limited, "again", true)
				}
				p.Destination.ProbeToken = "test" // the meter grants it
				report(Succeeded, "test", false)
			}
			if d := p.Destination; d.State != Closed || d.LearnedSince > 0 != row.limit || d.AloneAt > 0 == row.limit {
				t.Errorf("%s, learned since %d, a job was refused alone at %d, want a limit: %v", d.State, d.LearnedSince, d.AloneAt, row.limit)
			}
		})
	}
}

// A limit is forgotten if the API refuses only jobs that it refused before, and accepts others between them.
func TestRefusedAgain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fresh, accepts, forgotten bool
	}{
		"only jobs refused before": {false, true, true},
		"another one, too":         {true, true, false},
		"none is accepted":         {false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options
			o.Learn, o.EarlyTests = true, true
			p := Pair{Destination: closedState(), Capacity: 16}
			p.Destination.LearnedSince = epoch / 1000
			now := int64(epoch)
			for i := range mostAgain {
				now += 1_000_000
				if row.accepts {
					p.Destination.RoundTotal++ // the meter counts it
				}
				e := Event{Kind: Neutral, Doubt: true, Permit: "again", Job: "again", Sent: now - 50_000, Threshold: 3, Generation: p.Destination.Generation}
				if row.fresh && i == mostAgain/2 {
					e.Kind, e.Doubt = Limited, false
				}
				p, _ = p.Next(e, now, o)
			}
			if d := p.Destination; (d.LearnedSince == 0) != row.forgotten || (d.AloneAt > 0) != row.forgotten {
				t.Errorf("learned since %d, a job was refused alone at %d, want forgotten: %v", d.LearnedSince, d.AloneAt, row.forgotten)
			}
		})
	}
}

// A limit that was taken for everyone's is over with a reset: of a key that is refused later, the key alone waits.
func TestResetEndsALimitOfAll(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Reset, Forcing} {
		o := options
		o.Learn, o.EarlyTests = true, true
		destination, now := closedState(), int64(epoch)
		report := func(key string, kind Kind, hint, length int64) Pair {
			now += 1_000_000
			p := Pair{Destination: destination, Key: State{Name: destination.Name + "/" + key}, Keyed: key != "", Capacity: 1}
			p, _ = p.Next(Event{
				Kind: kind, Permit: key, Job: key, Sent: now - 1000, Threshold: 3, Generation: destination.Generation, Hint: hint, Length: length,
			}, now, o)
			destination = p.Destination
			return p
		}
		for _, key := range []string{"a", "b", "c"} {
			report(key, Limited, 5*second, 0)
		}
		if destination.State != Open {
			t.Fatalf("three keys were refused: %+v", destination)
		}
		report("", kind, 0, second)
		report("", Due, 0, 0)
		if destination.State != Closed {
			t.Fatalf("%s: %+v", kind, destination)
		}
		if destination.Watches(Succeeded) {
			t.Errorf("%s: successes are watched for", kind)
		}
		if p := report("e", Limited, 5*second, 0); p.Destination.State != Closed || p.Key.State != Open {
			t.Errorf("after %s, one key is refused: the destination is %s, and the key %s", kind, p.Destination.State, p.Key.State)
		}
	}
}
