package publisher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A bound that the job sets holds for refused credentials, too, and without a circuit breaker
// nothing would hold the next call back.
func TestRefusedTokenFailsTheJob(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		rules breaker.Options
		want  string
	}{
		"at its max_reschedules":  {breaker.Options{Cooldown: time.Millisecond}, "max reschedules (2) exceeded"},
		"with a disabled breaker": {breaker.Options{Disabled: true}, "answered 401"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			b.run(b.options(), func(context.Context, *jobs.Job) error {
				return jobs.Unauthorized(errors.New("answered 401"))
			}, publisher.Breaker(row.rules))
			job := b.waitStatus(b.enqueue(jobs.MaxReschedules(2)).ID, jobs.Failed)
			if job.LastError != row.want {
				t.Errorf("failed with %q, want %q", job.LastError, row.want)
			}
		})
	}
}
