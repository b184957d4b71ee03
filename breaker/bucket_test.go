package breaker

import (
	"math"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// bucket is an API whose bucket holds so many calls and gets so many back a second. It
// announces what is left, and as reset when the next one is back or, if whole, all of them.
type bucket struct {
	size, rate float64
	whole      bool
	limit      int // announced; 0: none
	unit       time.Duration

	left    float64
	at      time.Duration
	refused int
}

func (b *bucket) call(at time.Duration) Outcome {
	b.left = min(b.size, b.left+b.rate*(at-b.at).Seconds())
	b.at = at
	refused := b.left < 1
	if refused {
		b.refused++
	} else {
		b.left--
	}
	missing := 1 - (b.left - math.Floor(b.left))
	if b.whole {
		missing = b.size - b.left
	}
	reset := time.Duration(missing / b.rate * float64(time.Second))
	reset = (reset + b.unit - 1).Truncate(b.unit)
	o := Success()
	if refused {
		o = RateLimited(0)
	}
	return o.WithBudget(Budget{Remaining: int(b.left), Reset: reset, Limit: b.limit})
}

// An API whose reset is the next token is neither called in vain nor left waiting: callers
// that keep asking, each with calls of 50 ms, make nearly as many calls as it allows.
func TestBucketsWhoseResetIsTheNextToken(t *testing.T) {
	t.Parallel()
	const callers, took, span = 10, 50 * time.Millisecond, 40 * time.Second
	for _, row := range []struct {
		name string
		api  bucket
	}{
		{"40, 2/s, next token", bucket{size: 40, rate: 2, limit: 40, unit: time.Millisecond}},
		{"40, 2/s, next token, whole seconds", bucket{size: 40, rate: 2, limit: 40, unit: time.Second}},
		{"40, 2/s, until full", bucket{size: 40, rate: 2, limit: 40, unit: time.Second, whole: true}},
		{"10, 1/s, next token", bucket{size: 10, rate: 1, limit: 10, unit: time.Millisecond}},
		{"1, 1/s, no limit", bucket{size: 1, rate: 1, unit: time.Second}},
		{"5, 10/s, next token", bucket{size: 5, rate: 10, limit: 5, unit: time.Millisecond}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Embedded(t)
			h := newHarness(t, rdb, Options{MaxInFlight: callers, ProbeTimeout: 35 * second})
			live(h)
			api := row.api
			api.left = api.size
			type running struct {
				permit Permit
				ends   time.Duration
				answer Outcome
			}
			var inFlight []running
			const tick = 10 * time.Millisecond
			accepted := 0
			var askAt [callers]time.Duration
			for at := time.Duration(0); at < span; at += tick {
				for i := 0; i < len(inFlight); {
					r := inFlight[i]
					if at < r.ends {
						i++
						continue
					}
					if _, err := r.permit.Report(patient(t), r.answer); err != nil {
						t.Fatal(err)
					}
					inFlight = append(inFlight[:i], inFlight[i+1:]...)
					clear(askAt[:]) // the view may have changed
				}
				for n := len(inFlight); n < callers; n++ {
					if at < askAt[n] {
						continue
					}
					p, err := h.b.Allow(patient(t))
					if err != nil {
						askAt[n] = at + tick*5
						break
					}
					before := api.refused
					o := api.call(at)
					if api.refused == before {
						accepted++
					}
					inFlight = append(inFlight, running{p, at + took, o})
				}
				h.clock.advance(tick, tick)
			}
			ideal := api.size + api.rate*span.Seconds()
			t.Logf("%d calls of %.0f (%.0f%%), %d refused", accepted, ideal, 100*float64(accepted)/ideal, api.refused)
			// Before the first answer nothing is known.
			if first := max(0, callers-int(api.size)); api.refused > first {
				t.Errorf("%d calls were refused, want %d at most", api.refused, first)
			}
			if float64(accepted) < 0.6*ideal { // the whole bucket at once, then a wait until it is full
				t.Errorf("%d calls, the API allows %.0f", accepted, ideal)
			}
		})
	}
}
