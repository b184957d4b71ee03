package publisher_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A Redis that has lost its data soon knows destinations and queues again.
func TestLostDataIsRegisteredAgain(t *testing.T) {
	t.Parallel()
	b := fixtureOn(t, redistest.Start(t))
	b.run(b.options(), func(context.Context, *jobs.Job) error { return nil })
	ctx := t.Context()
	registered := func() bool {
		queue, err := b.rdb.SIsMember(ctx, store.QueuesKey, b.queue()).Result()
		if err != nil {
			t.Fatal(err)
		}
		destinations, err := b.client.Destinations(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return queue && len(destinations) == 1
	}
	redistest.Eventually(t, "registered", registered)
	if err := b.rdb.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	lost := time.Now()
	redistest.Eventually(t, "registered again", registered)
	if took := time.Since(lost); took > 5*time.Second { // a heartbeat is 10 s, the check 1 s
		t.Errorf("registered again after %v", took)
	}
	if e := b.result(b.enqueue().ID); e.Result != "completed" {
		t.Errorf("a job after the loss: %+v", e)
	}
}
