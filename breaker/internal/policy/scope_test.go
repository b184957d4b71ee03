package policy

import "testing"

// A limit whose calls come back at once accepts each test. The calls beside the test show it, but not those for jobs that
// are refused again and again, nor the few that an API refuses at random.
func TestCallsBesideATest(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		accepted, refused, again int // beside each test
		limit                    bool
	}{
		"a fast limit":    {1, 4, 0, true},
		"calls at once":   {3, 3, 0, true},
		"hopeless jobs":   {1, 0, 5, false},
		"some at random":  {6, 1, 0, false},
		"one in a third":  {6, 3, 0, false},
		"nothing beside":  {0, 0, 0, false},
		"all is accepted": {5, 0, 0, false},
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
				p, _ = p.Next(Event{
					Kind: kind, Permit: permit, Job: permit, Doubt: again, Metered: true, Sent: now - 50_000, Threshold: 3,
					Generation: p.Destination.Generation,
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
