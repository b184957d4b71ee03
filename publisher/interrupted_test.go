package publisher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A handler that ignores the end of its time has timed out, however late it returns: its
// process has not stood still.
func TestSlowHandlerWasNotInterrupted(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.run(b.options(), func(context.Context, *jobs.Job) error {
		<-time.After(2500 * time.Millisecond)
		return errors.New("too late")
	}, publisher.Timeout(50*time.Millisecond))
	job := b.enqueue()
	if e := b.result(job.ID); e.Result != publisher.FailedFinal || e.Outcome != publisher.OutcomeTimeout {
		t.Errorf("%s, outcome %s; want %s and %s", e.Result, e.Outcome, publisher.FailedFinal, publisher.OutcomeTimeout)
	}
}
