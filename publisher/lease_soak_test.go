//go:build soak

package publisher_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A call that is longer than a lease and the time until it would be recovered runs
// once, although Redis is full and takes no write that needs memory.
func TestSoakLongCallOnAFullRedis(t *testing.T) {
	t.Parallel()
	const call = 130 * time.Second
	b := fixtureOn(t, redistest.Start(t))
	var calls atomic.Int32
	slow := func(ctx context.Context, _ *jobs.Job) error {
		if calls.Add(1) > 1 {
			return nil
		}
		select {
		case <-time.After(call):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	job := b.enqueue()
	for range 2 { // the other one would recover the job
		b.run(b.options(), slow, publisher.Timeout(2*call), publisher.Concurrency(1))
	}
	redistest.Eventually(t, "the call has started", func() bool { return calls.Load() == 1 })
	if err := b.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(call + 30*time.Second)
	for b.get(job.ID).Status != jobs.Completed && time.Now().Before(deadline) {
		<-time.After(time.Second)
	}
	if got := b.get(job.ID); got.Status != jobs.Completed || got.Crashes != 0 || calls.Load() != 1 {
		t.Errorf("the job is %s after %d calls with %d crashes; want completed, 1 and 0", got.Status, calls.Load(), got.Crashes)
	}
}

// What was decided about a job during an outage longer than its lease is carried out
// afterwards: it does not run again, and no crash is counted.
func TestSoakFailureInAnOutageLongerThanALease(t *testing.T) {
	t.Parallel()
	const outage = 75 * time.Second
	server := redistest.Start(t, redistest.WithAOF())
	b := fixtureOn(t, server)
	var calls atomic.Int32
	inCall, goOn := make(chan struct{}, 10), make(chan struct{})
	job := b.enqueue()
	b.run(b.options(), func(context.Context, *jobs.Job) error {
		calls.Add(1)
		inCall <- struct{}{}
		<-goOn
		return jobs.Discard(errors.New("no"))
	})
	<-inCall
	server.Kill()
	close(goOn)
	<-time.After(outage)
	server.Restart()
	deadline := time.Now().Add(2 * time.Minute)
	for j, err := b.client.Get(t.Context(), job.ID); (err != nil || j.Status != jobs.Failed) && time.Now().Before(deadline); j, err = b.client.Get(t.Context(), job.ID) {
		<-time.After(100 * time.Millisecond)
	}
	if got := b.get(job.ID); got.Status != jobs.Failed || got.Crashes != 0 || calls.Load() != 1 {
		t.Errorf("the job is %s (%q) after %d calls with %d crashes; want failed, 1 and 0", got.Status, got.LastError, calls.Load(), got.Crashes)
	}
}
