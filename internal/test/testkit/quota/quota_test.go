package quota

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func run(m Model, seed uint64) (Run, *rand.Rand) {
	start := 1_700_000_000 * time.Second
	rng := rand.New(rand.NewPCG(seed, 7))
	return Run{Start: start, End: start + time.Duration(m.Windows)*m.Window, Rand: rng}, rng
}

// An oracle that makes each call at the instant that Next names is never refused, but by stray
// refusals and calls whose cost was not known.
func TestNextIsWhenACallIsAccepted(t *testing.T) {
	t.Parallel()
	for _, m := range Models() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			r, rng := run(m, 1)
			limiter := m.New(r)
			now, waits, refused, most := r.Start, 0, 0, 6000
			for n := range most {
				next := limiter.Next(now)
				if next < now {
					t.Fatalf("call %d: Next(%v) is %v before that", n, now, now-next)
				}
				if next > now {
					waits++
				}
				now = next
				if !limiter.Take(now, now+m.Slowest) {
					refused++
				}
				now += time.Duration(rng.Int64N(int64(m.Slowest) / 50)).Truncate(tick)
			}
			if limited := !strings.HasPrefix(m.Name, "no limit"); limited != (waits > 0) {
				t.Errorf("the oracle waited %d times", waits)
			}
			switch {
			case strings.Contains(m.Name, "stray"):
				if refused == 0 || refused > most/10 {
					t.Errorf("%d of %d calls were refused", refused, most)
				}
			case refused > 1: // one where a limit changes
				t.Errorf("%d of %d calls were refused", refused, most)
			}
		})
	}
}

// What a call before the instant of Next gets is a refusal.
func TestNoCallIsAcceptedBeforeNext(t *testing.T) {
	t.Parallel()
	for _, m := range Models() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			r, _ := run(m, 2)
			for at := range 40 {
				limiter := m.New(r)
				now := r.Start
				for limiter.Next(now) == now && now < r.End {
					limiter.Take(now, now+m.Slowest)
					now += tick
					if strings.HasPrefix(m.Name, "no limit") && now > r.Start+1000*tick {
						return
					}
				}
				early := now + (limiter.Next(now)-now)*time.Duration(at)/41
				if limiter.Take(early, early+m.Slowest) {
					t.Fatalf("a call was accepted %v before Next", limiter.Next(now)-early)
				}
			}
		})
	}
}

func TestModelsHaveDifferentNames(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range Models() {
		if names[m.Name] {
			t.Errorf("two models are named %q", m.Name)
		}
		names[m.Name] = true
	}
	if len(names) < 62 {
		t.Errorf("there are %d models", len(names))
	}
}
