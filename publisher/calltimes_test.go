package publisher_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A job and its history show how long its calls took, not how long it waited in its worker before
// them or for Redis after them.
func TestCallsOfAJobAreTimed(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
		if j.RescheduleCount == 0 {
			return jobs.Reschedule(0)
		}
		return nil
	})
	id := b.enqueue().ID
	first, second := b.want(publisher.Rescheduled), b.want(publisher.Completed)
	near := func(secs float64, took time.Duration, slack float64) bool {
		return secs > 0 && math.Abs(secs-took.Seconds()) <= slack+took.Seconds()/10
	}
	job := b.waitStatus(id, jobs.Completed)
	if job.CallSecs == nil || !near(*job.CallSecs, second.Took, 0.006) {
		t.Errorf("the job says %v, its last call took %v", job.CallSecs, second.Took)
	}
	history, err := b.client.History(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	took := map[string]float64{}
	for _, e := range history {
		took[e.Event] += e.Took
	}
	if !near(took["rescheduled"], first.Took, 0.001) || took["completed"] != *job.CallSecs || took["started"] != 0 {
		t.Errorf("the history says %v, the calls took %v and %v", took, first.Took, second.Took)
	}
}
