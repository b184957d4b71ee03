package publisher_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// incident runs an incident: jobs in hand are deferred by the breaker, which is then
// reset. It returns the time from the reset until those and the ready jobs have run,
// and what Redis did meanwhile.
func (b *fixture) incident(server *redistest.Server, ready, concurrency int) (time.Duration, map[string]int64) {
	b.t.Helper()
	limited := make(chan struct{})
	var runs tally
	stop := b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
		if runs.add(j.ID) == 1 && j.Batch == "deferred" {
			<-limited
			return jobs.RateLimited(time.Hour)
		}
		return nil
	}, publisher.Concurrency(concurrency), rules(time.Hour))
	b.enqueueMany(concurrency, jobs.Batch("deferred"))
	redistest.Eventually(b.t, "all slots are taken", func() bool { return runs.total() == concurrency })
	b.enqueueMany(ready)
	close(limited)
	for range concurrency {
		if e := b.want(publisher.Rescheduled); e.Incident == "" {
			b.t.Fatalf("job %s was not deferred by the breaker: %+v", e.Job.ID, e)
		}
	}
	server.ResetStats(b.t)
	began := time.Now()
	if _, err := breaker.DefaultNamespace.Reset(context.Background(), b.rdb, b.dest, "test"); err != nil {
		b.t.Fatal(err)
	}
	for range ready + concurrency {
		b.want(publisher.Completed)
	}
	took := time.Since(began)
	stats := server.CommandStats(b.t)
	stop()
	return took, stats
}

// Jobs that a breaker has deferred are found without walking the others that wait for
// a time, so that publishing goes on at once after an incident.
func TestDeferredJobsBesideManyDelayedOnes(t *testing.T) {
	t.Parallel()
	const delayed, ready, concurrency = 20_000, 100, 5
	server := redistest.Start(t)
	b := fixtureOn(t, server)
	b.enqueueMany(delayed, jobs.Delay(10*time.Minute))
	_, stats := b.incident(server, ready, concurrency)
	total := int64(0)
	for _, n := range stats {
		total += n
	}
	// About 30 for each job, and the polls of a few seconds.
	if total > delayed/2 {
		t.Errorf("%d commands for %d jobs beside %d delayed ones, want at most %d: %v", total, ready+concurrency, delayed, delayed/2, stats)
	}
	if n := b.rdb.ZCard(context.Background(), "asynq:{"+b.queue()+"}:scheduled").Val(); n != delayed {
		t.Errorf("%d jobs are scheduled afterwards, want the %d delayed ones", n, delayed)
	}
}
