package breaker

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// sight makes an observation of a breaker at a revision, by a reply that was
// asked for and received at these seconds, or a message (asked < 0).
func sight(version uint64, asked, received int, r record) observation {
	base := time.Unix(1_000_000, 0)
	o := observation{version: version, now: epoch, record: r, received: base.Add(time.Duration(received) * time.Second)}
	if asked >= 0 {
		o.started = base.Add(time.Duration(asked) * time.Second)
	}
	return o
}

const aMessage = -1

func openFor(d time.Duration) record {
	return record{State: policy.State{
		Circuit: policy.Circuit{State: policy.Open, Cause: CauseThreshold, OpenUntil: epoch/1000 + d.Milliseconds()}, Meter: policy.Meter{UpdatedAt: epoch / 1000},
	}}
}

func TestNewestTruthWins(t *testing.T) {
	t.Parallel()
	closed, failed := record{}, record{State: policy.State{Meter: policy.Meter{Counts: policy.Counts{Failures: 1}}}}
	open := openFor(time.Minute)
	for _, c := range []struct {
		name  string
		have  observation
		comes observation
		want  State
		lost  bool
	}{
		{"a newer message", sight(5, 0, 1, closed), sight(6, aMessage, 2, open), Open, false},
		{"an older message comes late", sight(6, 0, 1, open), sight(5, aMessage, 2, closed), Open, false},
		{"a newer reply", sight(5, 0, 1, closed), sight(6, 0, 2, open), Open, false},
		{"an older reply, asked for before the message came", sight(6, aMessage, 3, open), sight(5, 2, 4, failed), Open, false},
		{"an older reply, asked for after: Redis lost its data", sight(6, aMessage, 3, open), sight(0, 4, 5, closed), Closed, true},
		{"a failover to a replica that was behind", sight(9, 0, 3, closed), sight(6, 4, 5, open), Open, true},
		{"the same version once more", sight(6, 0, 1, open), sight(6, aMessage, 2, open), Open, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			start := &view{changed: make(chan struct{})}
			have, _ := start.after(c.have)
			next, lost := have.after(c.comes)
			if next.state != c.want || lost != c.lost {
				t.Errorf("state %v, lost %v; want %v, %v", next.state, lost, c.want, c.lost)
			}
		})
	}
}

func TestLocalCountGivesWayToRedis(t *testing.T) {
	t.Parallel()
	start := &view{changed: make(chan struct{})}
	known, _ := start.after(sight(5, 0, 1, record{}))
	local := known.countLocally(sight(0, 0, 10, record{}).received, 1, time.Minute, 0, false)
	if local.state != Open || !local.local {
		t.Fatalf("one local failure with a threshold of one: %+v", local)
	}
	if next, _ := local.after(sight(5, 9, 11, record{})); next != local {
		t.Errorf("a read that was asked for before replaced it: %+v", next)
	}
	if next, _ := local.after(sight(5, aMessage, 11, record{})); next != local {
		t.Errorf("a repeated message replaced it: %+v", next)
	}
	if next, lost := local.after(sight(5, 11, 12, record{})); next.state != Closed || next.local || lost {
		t.Errorf("a later read did not replace it: %+v, lost %v", next, lost)
	}
	if next, _ := local.after(sight(6, aMessage, 11, openFor(time.Hour))); next.local || next.state != Open {
		t.Errorf("news from Redis did not replace it: %+v", next)
	}
}

// An instant of Redis's lies between what was left when a reply was asked for
// and when it came: later looks narrow that down, and never make it early.
func TestInstantsAreRefined(t *testing.T) {
	t.Parallel()
	base := time.Unix(1_000_000, 0)
	start := &view{changed: make(chan struct{})}
	slow, _ := start.after(sight(5, 0, 20, openFor(time.Minute))) // due in the 60th to the 80th second
	if want := base.Add(80 * time.Second); !slow.until.Equal(want) {
		t.Fatalf("until %v, want %v", slow.until, want)
	}
	look := func(v *view, asked, received, passed int) *view {
		o := sight(5, asked, received, openFor(time.Minute))
		o.now += int64(passed) * 1_000_000
		next, _ := v.after(o)
		return next
	}
	if next := look(slow, 30, 31, 20); !next.until.Equal(base.Add(71 * time.Second)) {
		t.Errorf("a quicker look: until %v, want the 71st second", next.until)
	}
	if next := look(slow, 30, 50, 20); next != slow {
		t.Errorf("a look that tells nothing new: %+v", next)
	}
	if next := look(slow, 61, 62, 30); !next.until.Equal(base.Add(92 * time.Second)) {
		t.Errorf("it was too early: until %v, want the 92nd second", next.until)
	}
	if next := look(slow, 60, 61, 60); !next.until.Equal(base.Add(61 * time.Second)) {
		t.Errorf("its time has come: until %v, want the 61st second", next.until)
	}
	select {
	case <-slow.changed:
		t.Error("looking closed a channel")
	default:
	}
}

func TestChangedIsClosedByEveryChangeAndNothingElse(t *testing.T) {
	t.Parallel()
	b, err := newTestBreaker(redistest.Embedded(t), Options{Destination: "api"}, realClock)
	if err != nil {
		t.Fatal(err)
	}
	changed := b.Changed()
	step := func(what string, o observation, want bool) {
		t.Helper()
		b.observe("", o)
		select {
		case <-changed:
			if !want {
				t.Errorf("%s: told of a change", what)
			}
		default:
			if want {
				t.Errorf("%s: not told", what)
			}
		}
		changed = b.Changed()
	}
	step("the first look", sight(5, 0, 1, record{}), true)
	step("the same again", sight(5, 2, 3, record{}), false)
	step("an opening", sight(6, aMessage, 4, openFor(time.Minute)), true)
	step("the same again", sight(6, 5, 5, openFor(time.Minute)), true) // Redis's clock stood still: later
	step("an old message", sight(5, aMessage, 6, record{}), false)
}
