package publisher_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// An absurd hint is capped also where there is no breaker to cap it, and ignored
// where hints are not trusted.
func TestHintsWithoutABreaker(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		options  breaker.Options
		from, to time.Duration
	}{
		{"disabled", breaker.Options{Disabled: true, MaxCooldown: time.Minute, Cooldown: time.Second}, 55 * time.Second, time.Minute},
		{"disabled, default cap", breaker.Options{Disabled: true}, 55 * time.Minute, time.Hour},
		{"not trusted", breaker.Options{IgnoreHints: true}, 0, 2 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			job := b.enqueue()
			before := b.redisNow()
			b.run(b.options(), b.once(func(context.Context, *jobs.Job) error {
				return jobs.RateLimited(100 * 365 * 24 * time.Hour)
			}), publisher.Breaker(tc.options))
			if e := b.event(); e.Result != publisher.Rescheduled {
				t.Fatalf("event %+v", e)
			}
			took := b.redisNow().Sub(before)
			if wait := b.get(job.ID).AvailableAt.Sub(before); wait < tc.from || wait > tc.to+took {
				t.Errorf("put off by %s, want %s to %s", wait, tc.from, tc.to)
			}
		})
	}
}
